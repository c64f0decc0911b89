package message

import (
	"bytes"
	"errors"
	"testing"
)

func TestCompressionRoundTrip(t *testing.T) {
	body := bytes.Repeat([]byte("a message body, "), 1000)
	for name, c := range map[string]struct {
		kind  SysFlag
		magic string
	}{
		"zlib":        {CompressionZlib, "\x78"},
		"legacy zlib": {0, "\x78"},
		"lz4":         {CompressionLZ4, "\x04\x22\x4D\x18"},
		"zstd":        {CompressionZstd, "\x28\xB5\x2F\xFD"},
	} {
		t.Run(name, func(t *testing.T) {
			small, err := Compress(c.kind, body)
			if err != nil || len(small) >= len(body)/2 || !bytes.HasPrefix(small, []byte(c.magic)) {
				t.Fatalf("%d bytes %x…: %v", len(small), small[:4], err)
			}
			flag := c.kind | Compressed
			back, err := Decompress(flag, small, len(body))
			if err != nil || !bytes.Equal(back, body) {
				t.Errorf("%d bytes back, %v", len(back), err)
			}
			if _, err := Decompress(flag, small, len(body)-1); !errors.Is(err, ErrBodyTooLong) {
				t.Errorf("beyond the limit: %v", err)
			}
			if _, err := Decompress(flag, small[:len(small)/2], len(body)); !errors.Is(err, ErrBadCompression) {
				t.Errorf("cut: %v", err)
			}
			if _, err := Decompress(flag, []byte("no such format"), 100); !errors.Is(err, ErrBadCompression) {
				t.Errorf("garbage: %v", err)
			}
		})
	}
}

func TestDecompressPlainBody(t *testing.T) {
	body := []byte("plain")
	if got, err := Decompress(CompressionZstd, body, 1); err != nil || !bytes.Equal(got, body) {
		t.Errorf("%q %v", got, err)
	}
}

func TestUnknownCompression(t *testing.T) {
	if _, err := Compress(0x400, nil); err == nil {
		t.Error("compressed in an unknown format")
	}
	if _, err := Decompress(Compressed|0x700, []byte("x"), 10); !errors.Is(err, ErrBadCompression) {
		t.Errorf("%v", err)
	}
}
