package protocol

import (
	"errors"
	"fmt"
)

// An Error is an outcome that travels as the code and remark of a response.
type Error struct {
	Code   ResponseCode
	Remark string // for people; sent as it is
}

// Error returns the code's name and the remark.
func (e *Error) Error() string {
	if e.Remark == "" {
		return e.Code.String()
	}
	return e.Code.String() + ": " + e.Remark
}

// Errorf returns an Error whose remark is formatted like fmt.Sprintf does.
func Errorf(code ResponseCode, format string, args ...any) *Error {
	return &Error{Code: code, Remark: fmt.Sprintf(format, args...)}
}

// AsError returns the Error that err is or wraps. Any other error becomes
// SystemError with the error's text as its remark; nil stays nil.
func AsError(err error) *Error {
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Code: SystemError, Remark: err.Error()}
}
