package protocol

import (
	"errors"
	"fmt"
	"testing"
)

func TestErrorsCarryTheirCode(t *testing.T) {
	missing := Errorf(TopicNotExist, "topic %s", "t")
	for _, tc := range []struct {
		err  error
		want Error
		text string
	}{
		{missing, *missing, "TOPIC_NOT_EXIST: topic t"},
		{fmt.Errorf("send: %w", missing), *missing, "TOPIC_NOT_EXIST: topic t"},
		{errors.New("disk full"), Error{SystemError, "disk full"}, "SYSTEM_ERROR: disk full"},
		{&Error{Code: GoAway}, Error{GoAway, ""}, "GO_AWAY"},
	} {
		got := AsError(tc.err)
		if *got != tc.want || got.Error() != tc.text {
			t.Errorf("%v becomes %v (%q)", tc.err, *got, got.Error())
		}
	}
	if AsError(nil) != nil {
		t.Error("no error became one")
	}
}

func TestResponseAsError(t *testing.T) {
	if err := NewResponse(Success, "FOUND", nil, nil).Err(); err != nil {
		t.Errorf("success is %v", err)
	}
	err := NewResponse(SystemBusy, "later", nil, nil).Err()
	if e := AsError(err); e.Code != SystemBusy || e.Remark != "later" {
		t.Errorf("busy is %v", err)
	}
}

func TestFlagsAndLanguages(t *testing.T) {
	r := NewRequest(UpdateConsumerOffset, nil, nil)
	if r.IsOneWay() || r.IsResponse() {
		t.Error("a new request is one-way or a response")
	}
	if r.SetOneWay(); !r.IsOneWay() || r.Flag != 2 {
		t.Errorf("flag %d", r.Flag)
	}
	if p := NewResponse(Success, "", nil, nil); !p.IsResponse() || p.Flag != 1 || p.Version != CurrentVersion || p.Language != LanguageGo {
		t.Errorf("response %+v", p)
	}
	for l := LanguageJava; l <= LanguageNodeJS; l++ {
		if parseLanguage([]byte(l.String())) != l {
			t.Errorf("%d is read back from %q as another language", l, l)
		}
	}
	if Language(-1).String() != "OTHER" || Language(99).String() != "OTHER" || parseLanguage([]byte("FOO")) != LanguageOther {
		t.Error("unknown languages are not OTHER")
	}
	if o := (Opt[int32]{}); o.Or(5) != 5 || Some[int32](0).Or(5) != 0 {
		t.Error("absent and zero are confused")
	}
}
