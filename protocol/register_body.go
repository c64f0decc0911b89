package protocol

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"strconv"
	"strings"

	"github.com/klauspost/compress/zlib"
)

const (
	// maxRegisterBody is what a compressed registration may unfold to: some
	// 500 000 topics.
	maxRegisterBody = 64 << 20
	// maxRegisterRatio bounds it by the bytes that arrived; topic tables
	// compress 10 to 40 times, zlib's best is 1032.
	maxRegisterRatio = 100
)

// RegisterBrokerBody is the body of REGISTER_BROKER: a broker's topics.
type RegisterBrokerBody struct {
	FilterServerList            []string                    `json:"filterServerList"`
	TopicConfigSerializeWrapper TopicConfigSerializeWrapper `json:"topicConfigSerializeWrapper"`
}

// BodyCRC32 returns the checksum that RegisterBrokerRequest carries, of the body
// as it is sent: Java's CRC-32 without its sign bit.
func BodyCRC32(body []byte) int32 { return int32(crc32.ChecksumIEEE(body) & 0x7FFFFFFF) }

// Encode returns the body as JSON, or in the compressed form: zlib of
//
//	i32 n, DataVersion as JSON (n bytes)
//	i32 number of topics, for each: i32 n, text "name readQ writeQ perm filterType {attributes}"
//	i32 n, filter servers as a JSON list
//	i32 number of static topics, for each: i32 n, TopicQueueMappingInfo as JSON
//
// which loses each topic's order and system flag.
func (b *RegisterBrokerBody) Encode(compressed bool) ([]byte, error) {
	if !compressed {
		return Marshal(b)
	}
	plain, err := b.appendSections(nil)
	if err != nil {
		return nil, fmt.Errorf("encode registration: %w", err)
	}
	var out bytes.Buffer
	z, err := zlib.NewWriterLevel(&out, zlib.BestCompression)
	if err != nil {
		return nil, fmt.Errorf("encode registration: %w", err)
	}
	if _, err := z.Write(plain); err != nil {
		return nil, fmt.Errorf("encode registration: %w", err)
	}
	if err := z.Close(); err != nil {
		return nil, fmt.Errorf("encode registration: %w", err)
	}
	return out.Bytes(), nil
}

func (b *RegisterBrokerBody) appendSections(dst []byte) ([]byte, error) {
	w := &b.TopicConfigSerializeWrapper
	dst, err := appendSection(dst, w.DataVersion)
	if err != nil {
		return nil, err
	}
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(w.TopicConfigTable)))
	for name, t := range w.TopicConfigTable {
		if name == "" || strings.ContainsRune(name, ' ') {
			return nil, fmt.Errorf("topic name %q has no compressed form", name)
		}
		text, err := topicText(name, &t)
		if err != nil {
			return nil, err
		}
		dst = binary.BigEndian.AppendUint32(dst, uint32(len(text)))
		dst = append(dst, text...)
	}
	if dst, err = appendSection(dst, b.FilterServerList); err != nil {
		return nil, err
	}
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(w.TopicQueueMappingInfoMap)))
	for _, m := range w.TopicQueueMappingInfoMap {
		if dst, err = appendSection(dst, m); err != nil {
			return nil, err
		}
	}
	return dst, nil
}

// appendSection appends v as JSON with its length before it.
func appendSection(dst []byte, v any) ([]byte, error) {
	text, err := Marshal(v)
	if err != nil {
		return nil, err
	}
	return append(binary.BigEndian.AppendUint32(dst, uint32(len(text))), text...), nil
}

func topicText(name string, t *TopicConfig) ([]byte, error) {
	filter := t.TopicFilterType
	if filter == "" {
		filter = SingleTag
	}
	head := fmt.Sprintf("%s %d %d %d %s ", name, t.ReadQueueNums, t.WriteQueueNums, t.Perm, filter)
	return appendValue([]byte(head), t.Attributes, false)
}

// DecodeRegisterBrokerBody reads the body of a REGISTER_BROKER request. Version is
// that of the request: before Version3_0_11 the body is the topic table alone, and
// before Version5_0_0 the compressed form has no static topics. An empty body is
// a broker without topics. A compressed one may unfold to 64 MiB and to 100 times
// its size, whichever is less.
func DecodeRegisterBrokerBody(body []byte, compressed bool, version int32) (*RegisterBrokerBody, error) {
	b := new(RegisterBrokerBody)
	if len(body) == 0 {
		return b, nil
	}
	var err error
	switch {
	case version < Version3_0_11:
		err = Unmarshal(body, &b.TopicConfigSerializeWrapper)
	case compressed:
		err = b.decodeCompressed(body, version)
	default:
		err = Unmarshal(body, b)
	}
	if err != nil {
		return nil, fmt.Errorf("decode registration of %d bytes: %w", len(body), err)
	}
	return b, nil
}

func (b *RegisterBrokerBody) decodeCompressed(body []byte, version int32) error {
	z, err := zlib.NewReader(bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer z.Close()
	limit := min(maxRegisterBody, 1<<20+int64(len(body))*maxRegisterRatio)
	plain, err := io.ReadAll(io.LimitReader(z, limit+1))
	if err != nil {
		return err
	}
	if int64(len(plain)) > limit {
		return fmt.Errorf("unfolds to more than %d bytes", limit)
	}
	return b.decodeSections(&sections{plain}, version)
}

func (b *RegisterBrokerBody) decodeSections(s *sections, version int32) error {
	w := &b.TopicConfigSerializeWrapper
	if err := s.unmarshal("data version", &w.DataVersion); err != nil {
		return err
	}
	topics, err := s.count("topics")
	if err != nil {
		return err
	}
	w.TopicConfigTable = make(map[string]TopicConfig)
	for range topics {
		text, err := s.next("topic")
		if err != nil {
			return err
		}
		t, err := parseTopicText(string(text))
		if err != nil {
			return err
		}
		w.TopicConfigTable[t.TopicName] = t
	}
	if err := s.unmarshal("filter servers", &b.FilterServerList); err != nil || version < Version5_0_0 || len(s.rest) == 0 {
		return err
	}
	mappings, err := s.count("static topics")
	if err != nil {
		return err
	}
	w.TopicQueueMappingInfoMap = make(map[string]TopicQueueMappingInfo)
	for range mappings {
		var m TopicQueueMappingInfo
		if err := s.unmarshal("static topic", &m); err != nil {
			return err
		}
		w.TopicQueueMappingInfoMap[m.Topic] = m
	}
	return nil
}

// parseTopicText reads what topicText writes; the attributes may be missing.
func parseTopicText(text string) (t TopicConfig, err error) {
	parts := strings.SplitN(text, " ", 6)
	if len(parts) < 5 || parts[0] == "" {
		return t, fmt.Errorf("topic text %.80q has %d parts, needs 5", text, len(parts))
	}
	t.TopicName, t.TopicFilterType = parts[0], parts[4]
	for i, p := range []*int32{&t.ReadQueueNums, &t.WriteQueueNums, &t.Perm} {
		v, err := strconv.ParseInt(parts[1+i], 10, 32)
		if err != nil {
			return t, fmt.Errorf("topic text %.80q: %w", text, err)
		}
		*p = int32(v)
	}
	if len(parts) == 6 && parts[5] != "" {
		err = Unmarshal([]byte(parts[5]), &t.Attributes)
	}
	return t, err
}

// sections reads parts with a four-byte length before each.
type sections struct{ rest []byte }

func (s *sections) count(what string) (int, error) {
	if len(s.rest) < 4 {
		return 0, fmt.Errorf("ends where the number of %s was due", what)
	}
	n := int(int32(binary.BigEndian.Uint32(s.rest)))
	s.rest = s.rest[4:]
	if n < 0 || n > len(s.rest)/4 {
		return 0, fmt.Errorf("%d %s in %d bytes", n, what, len(s.rest))
	}
	return n, nil
}

func (s *sections) next(what string) ([]byte, error) {
	if len(s.rest) < 4 {
		return nil, fmt.Errorf("ends where the length of a %s was due", what)
	}
	n := int(int32(binary.BigEndian.Uint32(s.rest)))
	s.rest = s.rest[4:]
	if n < 0 || n > len(s.rest) {
		return nil, fmt.Errorf("%s of %d bytes with %d left", what, n, len(s.rest))
	}
	part := s.rest[:n]
	s.rest = s.rest[n:]
	return part, nil
}

func (s *sections) unmarshal(what string, v any) error {
	part, err := s.next(what)
	if err != nil || len(part) == 0 {
		return err
	}
	if err := Unmarshal(part, v); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
