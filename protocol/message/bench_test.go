package message

import "testing"

func BenchmarkAppendRecord(b *testing.B) {
	m := sample()
	m.Body = make([]byte, 1024)
	buf := make([]byte, 0, 4096)
	b.SetBytes(int64(RecordSize(&m, true)))
	for b.Loop() {
		buf, _ = AppendRecord(buf[:0], &m, true)
	}
}

func BenchmarkSeal(b *testing.B) {
	m := sample()
	m.Body = make([]byte, 1024)
	rec := encode(b, m, true)
	b.SetBytes(int64(len(rec)))
	for b.Loop() {
		Seal(rec, 1, 2, 3)
	}
}

func BenchmarkViewTags(b *testing.B) {
	m := sample()
	m.Body = make([]byte, 1024)
	rec := encode(b, m, true)
	for b.Loop() {
		v, _ := ViewOf(rec)
		tag, _ := Property(v.Properties(), PropertyTags)
		_ = TagHash(tag)
	}
}

func BenchmarkAppendStripped(b *testing.B) {
	m := sample()
	m.Body = make([]byte, 1024)
	rec := encode(b, m, true)
	buf := make([]byte, 0, 4096)
	b.SetBytes(int64(len(rec)))
	for b.Loop() {
		buf = AppendStripped(buf[:0], rec)
	}
}

func BenchmarkVerify(b *testing.B) {
	m := sample()
	m.Body = make([]byte, 1024)
	rec := encode(b, m, true)
	b.SetBytes(int64(len(rec)))
	for b.Loop() {
		_ = Verify(rec)
	}
}
