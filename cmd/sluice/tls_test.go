package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluicemq/sluice/configs"
)

// certificate writes a self-signed certificate for 127.0.0.1 and its key.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, data []byte) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return write("cert.pem", "CERTIFICATE", der), write("key.pem", "PRIVATE KEY", secret)
}

// TestTLSFromFiles lets both sides that are configured by files shake hands.
func TestTLSFromFiles(t *testing.T) {
	cert, key := certificate(t)
	server, err := serverTLS(configs.TLS{Cert: cert, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	client, err := clientTLS(configs.ClientTLS{Enabled: true, CA: cert, Cert: cert, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", server)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	accepted := make(chan error, 1)
	go func() {
		conn, err := listener.Accept()
		if err == nil {
			err = conn.(*tls.Conn).Handshake()
			conn.Close()
		}
		accepted <- err
	}()
	conn, err := tls.Dial("tcp", listener.Addr().String(), client)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := <-accepted; err != nil {
		t.Fatal(err)
	}
}

func TestTLSRefusesWrongFiles(t *testing.T) {
	cert, key := certificate(t)
	if c, err := serverTLS(configs.TLS{}); c != nil || err != nil {
		t.Errorf("got %v, %v", c, err)
	}
	if c, err := clientTLS(configs.ClientTLS{}); c != nil || err != nil {
		t.Errorf("got %v, %v", c, err)
	}
	if _, err := serverTLS(configs.TLS{Cert: key, Key: cert}); err == nil {
		t.Error("a key was taken for a certificate")
	}
	for _, o := range []configs.ClientTLS{{CA: key}, {CA: cert + ".none"}, {Cert: key, Key: cert}} {
		o.Enabled = true
		if _, err := clientTLS(o); err == nil {
			t.Errorf("%+v was taken", o)
		}
	}
}
