package configs

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// A Size is a number of bytes, written in human units: "64MiB", "10GiB", "1GB", "1048576".
// KB, MB, GB and TB are powers of 1000; KiB, MiB, GiB and TiB powers of 1024. A bare
// "64M" is refused, because half of the world reads it one way and half the other.
type Size int64

// A Duration is a time span, written as Go does ("500ms", "1h30m") and with "d" for days of
// 24 hours in front ("3d", "1d12h").
type Duration time.Duration

// sizeUnits are in the order in which String tries them: the greatest unit that divides the
// size exactly wins, binary before decimal.
var sizeUnits = []struct {
	name  string
	bytes int64
}{
	{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
	{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}, {"B", 1},
}

// ParseSize reads a size. Fractions are allowed when they come out as whole bytes
// ("1.5GiB"); negative sizes and those beyond 2^63-1 are not.
func ParseSize(text string) (Size, error) {
	number, unit := splitUnit(text)
	factor, err := sizeFactor(unit)
	if err != nil {
		return 0, fmt.Errorf("%q is not a size: %w", text, err)
	}
	if n, err := strconv.ParseInt(number, 10, 64); err == nil {
		if n < 0 || n > math.MaxInt64/factor {
			return 0, fmt.Errorf("%q is not a size: out of range", text)
		}
		return Size(n * factor), nil
	}
	if !plainDecimal(number) {
		return 0, fmt.Errorf("%q is not a size: want a number and a unit, such as 64MiB", text)
	}
	f, err := strconv.ParseFloat(number, 64)
	if err != nil || f*float64(factor) >= math.MaxInt64 {
		return 0, fmt.Errorf("%q is not a size: out of range", text)
	}
	bytes := f * float64(factor)
	if bytes != math.Trunc(bytes) {
		return 0, fmt.Errorf("%q is not a size: not a whole number of bytes", text)
	}
	return Size(bytes), nil
}

// splitUnit cuts "64 MiB" into "64" and "MiB".
func splitUnit(text string) (number, unit string) {
	text = strings.TrimSpace(text)
	end := strings.LastIndexAny(text, "0123456789.") + 1
	return text[:end], strings.TrimSpace(text[end:])
}

func sizeFactor(unit string) (int64, error) {
	if unit == "" {
		return 1, nil
	}
	for _, u := range sizeUnits {
		if strings.EqualFold(u.name, unit) {
			return u.bytes, nil
		}
	}
	if len(unit) == 1 && strings.Contains("KMGT", strings.ToUpper(unit)) {
		letter := strings.ToUpper(unit)
		return 0, fmt.Errorf("say %sB (powers of 1000) or %siB (powers of 1024)", letter, letter)
	}
	return 0, fmt.Errorf("unknown unit %q (known: B, KB, MB, GB, TB, KiB, MiB, GiB, TiB)", unit)
}

// plainDecimal tells whether the text is digits with one point among them. ParseFloat alone
// would take "1e9", "0x1p4" and "Inf" as well.
func plainDecimal(text string) bool {
	whole, fraction, found := strings.Cut(text, ".")
	return found && whole != "" && fraction != "" &&
		strings.Trim(whole, "0123456789") == "" && strings.Trim(fraction, "0123456789") == ""
}

// String prints the size so that ParseSize reads the same number back.
func (s Size) String() string {
	if s == 0 {
		return "0"
	}
	for _, u := range sizeUnits {
		if int64(s)%u.bytes == 0 {
			return strconv.FormatInt(int64(s)/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

// ParseDuration reads a duration. A number needs its unit, except 0.
func ParseDuration(text string) (Duration, error) {
	rest := strings.TrimSpace(text)
	var days time.Duration
	if before, after, found := strings.Cut(rest, "d"); found {
		n, err := strconv.ParseUint(before, 10, 16)
		if err != nil {
			return 0, fmt.Errorf("%q is not a duration: want a number and a unit, such as 500ms, 30s, 72h or 3d", text)
		}
		days, rest = time.Duration(n)*24*time.Hour, after
	}
	if rest == "" && days > 0 {
		return Duration(days), nil
	}
	d, err := time.ParseDuration(rest)
	if err != nil || (days > 0 && d < 0) {
		return 0, fmt.Errorf("%q is not a duration: want a number and a unit, such as 500ms, 30s, 72h or 3d", text)
	}
	if d > math.MaxInt64-days {
		return 0, fmt.Errorf("%q is not a duration: out of range", text)
	}
	return Duration(days + d), nil
}

// String prints the duration without the zero parts that Go's own form trails ("72h0m0s").
func (d Duration) String() string {
	text := time.Duration(d).String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
