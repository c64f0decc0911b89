package client

import (
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/sluicemq/sluice/protocol/message"
)

// localIP is the address by which this host names itself in client ids and
// unique keys: an IPv4 address of a network when it has one, else an IPv6
// address, else loopback.
func localIP() netip.Addr {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return loopback()
	}
	return chooseIP(addrs)
}

func chooseIP(addrs []net.Addr) netip.Addr {
	chosen := loopback()
	for _, a := range addrs {
		prefix, err := netip.ParsePrefix(a.String())
		if err != nil {
			continue
		}
		ip := prefix.Addr().Unmap().WithZone("")
		if ip.IsLoopback() || ip.IsLinkLocalUnicast() || ip.IsMulticast() {
			continue
		}
		if ip.Is4() {
			return ip
		}
		if chosen.IsLoopback() {
			chosen = ip
		}
	}
	return chosen
}

func loopback() netip.Addr { return netip.AddrFrom4([4]byte{127, 0, 0, 1}) }

func newUniqueKeys(ip netip.Addr) *message.UniqueKeys {
	return message.NewUniqueKeys(ip, os.Getpid(), time.Now)
}
