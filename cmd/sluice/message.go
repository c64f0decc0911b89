package main

import (
	"time"
	"unicode/utf8"

	"github.com/sluicemq/sluice/protocol/message"
)

// shownMessage is a message as the commands print it in JSON.
type shownMessage struct {
	Topic      string            `json:"topic"`
	Queue      int32             `json:"queue"`
	Offset     int64             `json:"offset"`
	ID         string            `json:"id,omitempty"`
	Tag        string            `json:"tag,omitempty"`
	Keys       string            `json:"keys,omitempty"`
	Born       string            `json:"born"`
	Stored     string            `json:"stored"`
	Attempts   int32             `json:"attempts,omitempty"`
	Properties map[string]string `json:"properties,omitempty"` // the user's own
	Body       *string           `json:"body,omitempty"`       // when it is UTF-8
	Bytes      []byte            `json:"bytes,omitempty"`      // base64, when it is not
}

func shown(m *message.Message) shownMessage {
	s := shownMessage{
		Topic: m.Topic, Queue: m.QueueID, Offset: m.QueueOffset, Attempts: m.ReconsumeTimes,
		Born: wallTime(m.BornTimestamp), Stored: wallTime(m.StoreTimestamp),
	}
	s.ID, _ = m.Property(message.PropertyUniqueKey)
	s.Tag, _ = m.Property(message.PropertyTags)
	s.Keys, _ = m.Property(message.PropertyKeys)
	for name, value := range message.ParseProperties(m.Properties) {
		if !message.IsSystemProperty(name) {
			if s.Properties == nil {
				s.Properties = map[string]string{}
			}
			s.Properties[name] = value
		}
	}
	if utf8.Valid(m.Body) {
		body := string(m.Body)
		s.Body = &body
	} else {
		s.Bytes = m.Body
	}
	return s
}

func wallTime(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z") }
