package remoting

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluicemq/sluice/protocol"
)

// selfSigned returns the two sides of TLS with a certificate made for the test.
func selfSigned(t testing.TB) (server, client *tls.Config) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}},
		&tls.Config{RootCAs: pool}
}

func TestOnePortSpeaksTLSAndPlainText(t *testing.T) {
	serverTLS, clientTLS := selfSigned(t)
	s := start(t, ServerOptions{TLS: serverTLS}, Table{codeEcho: {Handler: echo}, codeStream: {Stream: echoStreams()}})
	// Somebody who begins a handshake and does not go on keeps nobody waiting.
	stuck := dialPeer(t, s)
	stuck.send([]byte{tlsRecord})
	var wg sync.WaitGroup
	for name, o := range map[string]ClientOptions{"TLS": {TLS: clientTLS}, "plain": {}} {
		c := startClient(t, o)
		for _, code := range []protocol.RequestCode{codeEcho, codeStream} {
			wg.Go(func() {
				body := strings.Repeat(name, 50_000) // more than one TLS record
				resp, err := c.Call(t.Context(), s.Addr().String(), protocol.NewRequest(code, nil, []byte(body)))
				if err != nil || string(resp.Body) != body {
					t.Errorf("%s, %v: %v", name, code, err)
				}
			})
		}
	}
	wg.Wait()
}

func TestHandshakeThatDoesNotGoOnIsCut(t *testing.T) {
	serverTLS, _ := selfSigned(t)
	var log logBook
	s := start(t, ServerOptions{TLS: serverTLS, HandshakeTimeout: 50 * time.Millisecond, Logger: log.logger()}, nil)
	p := dialPeer(t, s)
	p.send([]byte{tlsRecord, 3, 1})
	p.wantClosed()
}

func TestTLSOnlyRefusesPlainText(t *testing.T) {
	serverTLS, clientTLS := selfSigned(t)
	s := start(t, ServerOptions{TLS: serverTLS, TLSOnly: true}, Table{codeEcho: {Handler: echo}})
	p := dialPeer(t, s)
	p.send(request(codeEcho, 1, "secret"))
	p.wantClosed()
	c := startClient(t, ClientOptions{TLS: clientTLS})
	if _, err := c.Call(t.Context(), s.Addr().String(), protocol.NewRequest(codeEcho, nil, nil)); err != nil {
		t.Error(err)
	}
}

func TestClientChecksTheCertificate(t *testing.T) {
	serverTLS, _ := selfSigned(t)
	_, strangerTLS := selfSigned(t)
	s := start(t, ServerOptions{TLS: serverTLS}, Table{codeEcho: {Handler: echo}})
	c := startClient(t, ClientOptions{TLS: strangerTLS})
	_, err := c.Call(t.Context(), s.Addr().String(), protocol.NewRequest(codeEcho, nil, nil))
	if err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("error %v", err)
	}
}
