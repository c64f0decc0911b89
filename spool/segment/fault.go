package segment

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
)

// ErrFault tells that mapped bytes could not be read: the device failed.
var ErrFault = errors.New("fault in mapped memory")

// PanicOnFault makes the calling goroutine panic, not the process die, when
// mapped memory cannot be read. Use it in this form around every read:
//
//	defer segment.PanicOnFault()()
//	defer segment.CatchFault(&err)
func PanicOnFault() (restore func()) {
	if debug.SetPanicOnFault(true) {
		return func() {}
	}
	return stopPanicOnFault
}

func stopPanicOnFault() { debug.SetPanicOnFault(false) }

// A FaultError is the fault of reading one address. It wraps ErrFault.
type FaultError struct{ Addr uintptr }

func (e *FaultError) Error() string { return fmt.Sprintf("%v at %#x", ErrFault, e.Addr) }

// Unwrap returns ErrFault.
func (e *FaultError) Unwrap() error { return ErrFault }

// CatchFault turns the panic of a fault in mapped memory into a
// *FaultError. Any other panic goes on. It must be deferred directly.
func CatchFault(err *error) {
	r := recover()
	if r == nil {
		return
	}
	if re, ok := r.(runtime.Error); ok {
		if a, ok := re.(interface{ Addr() uintptr }); ok {
			*err = &FaultError{a.Addr()}
			return
		}
	}
	panic(r)
}
