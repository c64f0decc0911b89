package topics

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"time"

	"github.com/sluicemq/sluice/broker/statefile"
	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/protocol/message"
	"github.com/sluicemq/sluice/spool/segment"
)

// ErrNotCreated means that a topic does not exist and must not be created by
// sending to it.
var ErrNotCreated = errors.New("topic does not exist and is not created by a send")

// Options configure a Table. Zero values take the defaults.
type Options struct {
	AutoCreate    bool // topics come to life by the first message sent to them
	DefaultQueues int  // queues of the template for such topics; 8
	MaxQueues     int  // most queues of one topic; 1024
	MaxTopics     int  // most topics; 100000
	Cluster       string
	Broker        string
	// OnChange (may be nil) hears of topics that were made or changed, and of
	// the names of those deleted, after they are saved and visible, in order.
	// It must not wait and must not change the table. Open does not call it.
	OnChange func(changed []*Topic, deleted []string)
	Logger   *slog.Logger
	Now      func() time.Time // wall clock for data versions; time.Now
}

func (o *Options) setDefaults() {
	if o.DefaultQueues <= 0 {
		o.DefaultQueues = 8
	}
	if o.MaxQueues <= 0 {
		o.MaxQueues = 1024
	}
	if o.MaxTopics <= 0 {
		o.MaxTopics = 100_000
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
}

// A Table holds the topics and keeps them in topics.json (RocketMQ storage
// formats, "config"). Reads take no lock; a change returns when it is saved.
// All methods are safe for concurrent use.
type Table struct {
	o     Options
	file  *statefile.File[topicsFile]
	state *statefile.Value[state]
}

// state is what one DataVersion stands for: both are always read together.
type state struct {
	topics  map[string]*Topic
	version protocol.DataVersion
}

func (s *state) clone() *state {
	c := &state{topics: make(map[string]*Topic, len(s.topics)+1), version: s.version}
	for name, t := range s.topics {
		c.topics[name] = t
	}
	return c
}

// topicsFile is the text of topics.json.
type topicsFile struct {
	DataVersion      protocol.DataVersion            `json:"dataVersion"`
	TopicConfigTable map[string]protocol.TopicConfig `json:"topicConfigTable"`
}

func (f *topicsFile) check() error {
	if f.TopicConfigTable == nil {
		return errors.New("has no topicConfigTable")
	}
	return nil
}

// Open loads the table at path, or begins a new one, and adds the system topics.
// It fails rather than start without topics that it once had.
func Open(fsys segment.FS, path string, o Options) (*Table, error) {
	o.setDefaults()
	onChange := o.OnChange
	o.OnChange = nil // nobody has seen the table yet
	t := &Table{o: o, file: statefile.New(fsys, path, o.Logger, (*topicsFile).check)}
	loaded, err := t.file.Load()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		loaded = &topicsFile{}
	case err != nil:
		return nil, fmt.Errorf("topics: %w", err)
	}
	s := &state{topics: make(map[string]*Topic, len(loaded.TopicConfigTable)), version: loaded.DataVersion}
	for name, c := range loaded.TopicConfigTable {
		c.TopicName = name
		if err := t.checkStored(&c); err != nil {
			o.Logger.Warn("topic in the table is left out", "path", path, "topic", name, "err", err)
			continue
		}
		s.topics[name] = t.newTopic(c)
	}
	t.state = statefile.NewValue(s, statefile.ValueOptions[state]{
		Clone: (*state).clone, Save: t.save, Saved: t.saved,
	})
	if err := t.state.Change(t.addSystemTopics); err != nil {
		return nil, fmt.Errorf("topics: %w", err)
	}
	t.o.OnChange = onChange
	return t, nil
}

// addSystemTopics makes the table agree with the options: the template for
// automatic creation is there only while that is on, so that no route to it
// outlives the setting.
func (t *Table) addSystemTopics(s *state) (bool, error) {
	changed := false
	for _, c := range systemTopics(&t.o) {
		old, ok := s.topics[c.TopicName]
		if !ok || c.TopicName == message.TopicAutoCreate && old.WriteQueueNums != c.WriteQueueNums {
			s.topics[c.TopicName] = t.newTopic(c)
			changed = true
		}
	}
	if _, ok := s.topics[message.TopicAutoCreate]; ok && !t.o.AutoCreate {
		delete(s.topics, message.TopicAutoCreate)
		changed = true
	}
	if changed {
		s.version = s.version.Next(t.o.Now().UnixMilli())
	}
	return changed, nil
}

func (t *Table) save(s *state) error {
	return t.file.Save(&topicsFile{DataVersion: s.version, TopicConfigTable: s.configs()})
}

// saved finds what one save changed; a save may carry many changes.
func (t *Table) saved(before, after *state) {
	if t.o.OnChange == nil {
		return
	}
	var changed []*Topic
	var deleted []string
	for name, topic := range after.topics {
		if before.topics[name] != topic {
			changed = append(changed, topic)
		}
	}
	for name := range before.topics {
		if after.topics[name] == nil {
			deleted = append(deleted, name)
		}
	}
	t.o.OnChange(changed, deleted)
}

// Get returns the topic called name.
func (t *Table) Get(name string) (*Topic, bool) {
	topic, ok := t.state.Load().topics[name]
	return topic, ok
}

// GetBytes is Get for a name that lies in a request; it does not allocate.
func (t *Table) GetBytes(name []byte) (*Topic, bool) {
	topic, ok := t.state.Load().topics[string(name)]
	return topic, ok
}

// All returns every topic by name, as of one version. The map must not be
// changed.
func (t *Table) All() map[string]*Topic { return t.state.Load().topics }

// Version returns the table's version, which every change moves.
func (t *Table) Version() protocol.DataVersion { return t.state.Load().version }

// Snapshot returns the settings of all topics and the version that they belong
// to, for a registration or a follower. The map is the caller's; the attributes
// in it are shared.
func (t *Table) Snapshot() (map[string]protocol.TopicConfig, protocol.DataVersion) {
	s := t.state.Load()
	return s.configs(), s.version
}

func (s *state) configs() map[string]protocol.TopicConfig {
	configs := make(map[string]protocol.TopicConfig, len(s.topics))
	for name, topic := range s.topics {
		configs[name] = topic.TopicConfig
	}
	return configs
}

// AutoCreate returns the topic called name, or makes it in the likeness of
// template, as Apache's broker does for a send: with at most as many queues as
// the template has, and its permissions but for inheritance. ErrNotCreated
// means that automatic creation is off or that template is none.
func (t *Table) AutoCreate(name, template string, queues int) (*Topic, error) {
	if topic, ok := t.Get(name); ok {
		return topic, nil
	}
	if !t.o.AutoCreate {
		return nil, fmt.Errorf("topic %s: %w", name, ErrNotCreated)
	}
	if err := message.ValidateTopic(name); err != nil {
		return nil, protocol.Errorf(protocol.InvalidParameter, "%v", err)
	}
	if internal(name) {
		return nil, protocol.Errorf(protocol.NoPermission, "topic[%s] is the broker's own", name)
	}
	return t.ensure(name, func(s *state) (protocol.TopicConfig, error) {
		like, ok := s.topics[template]
		if !ok || like.Perm&protocol.PermInherit == 0 {
			return protocol.TopicConfig{}, fmt.Errorf("topic %s in the likeness of %q: %w", name, template, ErrNotCreated)
		}
		c := readWrite(name, min(max(queues, 1), int(like.WriteQueueNums)), like.Perm&^protocol.PermInherit)
		c.TopicFilterType = like.TopicFilterType
		return c, nil
	})
}

// Ensure returns the topic that c names, or makes it as c says: for topics that
// the broker itself needs.
func (t *Table) Ensure(c protocol.TopicConfig) (*Topic, error) {
	if topic, ok := t.Get(c.TopicName); ok {
		return topic, nil
	}
	if err := t.checkStored(&c); err != nil {
		return nil, protocol.Errorf(protocol.InvalidParameter, "topic[%s]: %v", c.TopicName, err)
	}
	return t.ensure(c.TopicName, func(*state) (protocol.TopicConfig, error) { return c, nil })
}

// ensure makes one topic unless another caller has just made it.
func (t *Table) ensure(name string, config func(*state) (protocol.TopicConfig, error)) (*Topic, error) {
	var topic *Topic
	err := t.state.Change(func(s *state) (bool, error) {
		var ok bool
		if topic, ok = s.topics[name]; ok {
			return false, nil
		}
		c, err := config(s)
		if err != nil {
			return false, err
		}
		if err := t.room(len(s.topics) + 1); err != nil {
			return false, err
		}
		// The name may alias a request's buffer or a longer text.
		c.TopicName = strings.Clone(name)
		topic = t.newTopic(c)
		t.putStaged(s, topic)
		return true, nil
	})
	if err != nil {
		return nil, err
	}
	return topic, nil
}

// room says whether a table of so many topics is within the limit.
func (t *Table) room(count int) error {
	if count > t.o.MaxTopics {
		return protocol.Errorf(protocol.SystemError, "no room for another topic: the limit is %d topics", t.o.MaxTopics)
	}
	return nil
}

// putStaged adds or replaces a topic in the state that will be saved next.
func (t *Table) putStaged(s *state, topic *Topic) {
	s.topics[topic.Name] = topic
	s.version = s.version.Next(t.o.Now().UnixMilli())
}

// Delete removes a topic and says whether it was there. The broker's own topics
// stay.
func (t *Table) Delete(name string) (existed bool, err error) {
	if t.system(name) {
		return false, systemTopicError(name)
	}
	err = t.state.Change(func(s *state) (bool, error) {
		if _, existed = s.topics[name]; !existed {
			return false, nil
		}
		delete(s.topics, name)
		s.version = s.version.Next(t.o.Now().UnixMilli())
		return true, nil
	})
	return existed && err == nil, err
}
