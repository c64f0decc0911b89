package message

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// Errors of Compress and Decompress.
var (
	ErrBodyTooLong     = errors.New("decompressed body too long")
	ErrBadCompression  = errors.New("bad compressed body")
	errCompressionKind = errors.New("unknown compression")
)

// compressionLevel is the level that Java clients use by default.
const compressionLevel = 5

// Compress returns body in one of the formats CompressionZlib (RFC 1950),
// CompressionLZ4 (LZ4 frame) and CompressionZstd. The sender then sets
// Compressed and the format's bits in the system flag.
func Compress(kind SysFlag, body []byte) ([]byte, error) {
	var out bytes.Buffer
	var w io.WriteCloser
	var err error
	switch kind & CompressionMask {
	case 0, CompressionZlib:
		w, err = zlib.NewWriterLevel(&out, compressionLevel)
	case CompressionLZ4:
		w = lz4.NewWriter(&out)
	case CompressionZstd:
		level := zstd.WithEncoderLevel(zstd.EncoderLevelFromZstd(compressionLevel))
		w, err = zstd.NewWriter(&out, level, zstd.WithEncoderConcurrency(1))
	default:
		err = errCompressionKind
	}
	if err == nil {
		_, err = w.Write(body)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("compress body: %w", err)
	}
	return out.Bytes(), nil
}

// Decompress returns the plain body. A body that flag does not call compressed
// is returned as it is. A result of more than limit bytes is ErrBodyTooLong;
// not much more than limit bytes are ever held.
func Decompress(flag SysFlag, body []byte, limit int) ([]byte, error) {
	if flag&Compressed == 0 {
		return body, nil
	}
	var r io.Reader
	var err error
	switch flag & CompressionMask {
	case 0, CompressionZlib:
		r, err = zlib.NewReader(bytes.NewReader(body))
	case CompressionLZ4:
		r = lz4.NewReader(bytes.NewReader(body))
	case CompressionZstd:
		var d *zstd.Decoder
		d, err = zstd.NewReader(bytes.NewReader(body), zstd.WithDecoderConcurrency(1),
			zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxZstdWindow))
		if err == nil {
			defer d.Close()
		}
		r = d
	default:
		err = errCompressionKind
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadCompression, err)
	}
	var out bytes.Buffer
	n, err := io.Copy(&out, io.LimitReader(r, int64(limit)+1))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadCompression, err)
	}
	if n > int64(limit) {
		return nil, fmt.Errorf("%w: more than %d bytes", ErrBodyTooLong, limit)
	}
	return out.Bytes(), nil
}

// maxZstdWindow bounds what a hostile frame header can make the decoder
// allocate; encoders of messages stay far below.
const maxZstdWindow = 8 << 20
