package configs

import (
	"testing"
	"time"
)

func TestParseSize(t *testing.T) {
	tests := []struct {
		text string
		want Size
	}{
		{"0", 0}, {"1", 1}, {"4096", 4096}, {"7B", 7},
		{"1KB", 1000}, {"1KiB", 1024}, {"64MiB", 64 << 20}, {"1GB", 1e9}, {"10GiB", 10 << 30},
		{"2TiB", 2 << 40}, {"1.5GiB", 3 << 29}, {"0.5KB", 500}, {" 64 MiB ", 64 << 20}, {"64mib", 64 << 20},
		{"9223372036854775807", 1<<63 - 1},
	}
	for _, tt := range tests {
		got, err := ParseSize(tt.text)
		if err != nil || got != tt.want {
			t.Errorf("ParseSize(%q) = %d, %v; want %d", tt.text, int64(got), err, int64(tt.want))
		}
	}
	for _, text := range []string{"", "MiB", "64M", "1g", "-1", "-1KB", "1e9", "0x10", "1_000", "1.5", "0.3B", "1.2.3KB",
		"1..5KB", ".5KB", "5.KB", "64 MiB x", "Inf", "NaNKB", "9223372036854775808", "9000000TiB", "99999999.5TiB", "٣KB"} {
		if got, err := ParseSize(text); err == nil {
			t.Errorf("ParseSize(%q) = %d, want an error", text, int64(got))
		}
	}
}

func TestParseDuration(t *testing.T) {
	tests := []struct {
		text string
		want time.Duration
		back string
	}{
		{"0", 0, "0s"}, {"500ms", 500 * time.Millisecond, "500ms"}, {"72h", 72 * time.Hour, "72h"},
		{"1h30m", 90 * time.Minute, "1h30m"}, {"3d", 72 * time.Hour, "72h"}, {"1d12h", 36 * time.Hour, "36h"},
		{"10s", 10 * time.Second, "10s"}, {"2m", 2 * time.Minute, "2m"}, {"1h0m5s", time.Hour + 5*time.Second, "1h0m5s"},
	}
	for _, tt := range tests {
		got, err := ParseDuration(tt.text)
		if err != nil || time.Duration(got) != tt.want || got.String() != tt.back {
			t.Errorf("ParseDuration(%q) = %s, %v; want %s", tt.text, got, err, tt.back)
		}
	}
	for _, text := range []string{"", "5", "d", "-1d", "1.5d", "1d-5h", "1d5", "1dd", "fast", "65535d200000000h", "99999999999h"} {
		if got, err := ParseDuration(text); err == nil {
			t.Errorf("ParseDuration(%q) = %s, want an error", text, got)
		}
	}
}

// FuzzParseSize checks that what is accepted is in range and that its printed form reads back
// as the same size.
func FuzzParseSize(f *testing.F) {
	for _, s := range []string{"0", "64MiB", "1.5GiB", "10 GB", "9223372036854775807", "8191.9999PiB", "-1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		size, err := ParseSize(text)
		if err != nil {
			return
		}
		if size < 0 {
			t.Fatalf("ParseSize(%q) = %d", text, int64(size))
		}
		again, err := ParseSize(size.String())
		if err != nil || again != size {
			t.Fatalf("ParseSize(%q) = %d prints as %q, which reads as %d, %v", text, int64(size), size, int64(again), err)
		}
	})
}
