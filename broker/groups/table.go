// Package groups is the table of a broker's subscription groups: who may
// consume, and how.
package groups

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"reflect"
	"strings"
	"time"

	"github.com/sluicemq/sluice/broker/statefile"
	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/protocol/message"
	"github.com/sluicemq/sluice/spool/segment"
)

// ForbidRead is the bit of a forbidden mask that keeps a group from reading a
// topic (RocketMQ storage formats, "subscriptionGroup.json").
const ForbidRead = 4

// A Group is one version of a group's settings. It never changes; an update puts
// another Group in its place.
type Group struct {
	protocol.SubscriptionGroupConfig
	// Name is the one copy of the group's name that the broker passes around.
	Name string
}

// Options configure a Table. Zero values take the defaults.
type Options struct {
	AutoCreate bool // groups come to life by their first consumer
	MaxGroups  int  // most groups; 100000
	Logger     *slog.Logger
	Now        func() time.Time // wall clock for data versions; time.Now
}

func (o *Options) setDefaults() {
	if o.MaxGroups <= 0 {
		o.MaxGroups = 100_000
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
}

// A Table holds the groups and keeps them in subscriptionGroup.json. Reads take
// no lock; a change returns when it is saved. All methods are safe for
// concurrent use.
type Table struct {
	o     Options
	file  *statefile.File[groupsFile]
	state *statefile.Value[state]
}

type state struct {
	groups    map[string]*Group
	forbidden map[string]map[string]int32 // inner maps never change
	version   protocol.DataVersion
}

func (s *state) clone() *state {
	return &state{groups: maps.Clone(s.groups), forbidden: maps.Clone(s.forbidden), version: s.version}
}

// groupsFile is the text of subscriptionGroup.json.
type groupsFile struct {
	DataVersion            protocol.DataVersion                        `json:"dataVersion"`
	ForbiddenTable         map[string]map[string]int32                 `json:"forbiddenTable"`
	SubscriptionGroupTable map[string]protocol.SubscriptionGroupConfig `json:"subscriptionGroupTable"`
}

func (f *groupsFile) check() error {
	if f.SubscriptionGroupTable == nil {
		return errors.New("has no subscriptionGroupTable")
	}
	return nil
}

// systemGroups exist from the start, as on Apache's broker. The one that reads
// half messages is left out: this broker has no transactions.
var systemGroups = [...]string{
	"TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "CID_ONS-HTTP-PROXY",
	"CID_ONSAPI_PULL", "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER",
}

// Open loads the table at path, or begins a new one, and adds the system groups.
// It fails rather than start without groups that it once had.
func Open(fsys segment.FS, path string, o Options) (*Table, error) {
	o.setDefaults()
	t := &Table{o: o, file: statefile.New(fsys, path, o.Logger, (*groupsFile).check)}
	loaded, err := t.file.Load()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		loaded = &groupsFile{}
	case err != nil:
		return nil, fmt.Errorf("groups: %w", err)
	}
	s := &state{
		groups:    make(map[string]*Group, len(loaded.SubscriptionGroupTable)),
		forbidden: loaded.ForbiddenTable, version: loaded.DataVersion,
	}
	if s.forbidden == nil {
		s.forbidden = map[string]map[string]int32{}
	}
	for name, c := range loaded.SubscriptionGroupTable {
		if err := checkStored(name); err != nil {
			o.Logger.Warn("group in the table is left out", "path", path, "group", name, "err", err)
			continue
		}
		c.GroupName = name
		s.groups[name] = newGroup(c)
	}
	t.state = statefile.NewValue(s, statefile.ValueOptions[state]{Clone: (*state).clone, Save: t.save})
	if err := t.state.Change(t.addSystemGroups); err != nil {
		return nil, fmt.Errorf("groups: %w", err)
	}
	return t, nil
}

func (t *Table) addSystemGroups(s *state) (bool, error) {
	changed := false
	for _, name := range systemGroups {
		if s.groups[name] == nil {
			t.putStaged(s, newGroup(protocol.NewSubscriptionGroupConfig(name)))
			changed = true
		}
	}
	return changed, nil
}

// checkStored allows what older releases allowed: group names as long as a
// derived topic's.
func checkStored(name string) error {
	return message.ValidateTopic(message.RetryPrefix + strings.TrimPrefix(name, message.RetryPrefix))
}

func newGroup(c protocol.SubscriptionGroupConfig) *Group {
	if c.Attributes == nil {
		c.Attributes = map[string]string{}
	}
	return &Group{SubscriptionGroupConfig: c, Name: c.GroupName}
}

func (t *Table) putStaged(s *state, g *Group) {
	s.groups[g.Name] = g
	s.version = s.version.Next(t.o.Now().UnixMilli())
}

func (t *Table) save(s *state) error {
	return t.file.Save(&groupsFile{
		DataVersion: s.version, ForbiddenTable: s.forbidden, SubscriptionGroupTable: s.configs(),
	})
}

func (s *state) configs() map[string]protocol.SubscriptionGroupConfig {
	configs := make(map[string]protocol.SubscriptionGroupConfig, len(s.groups))
	for name, g := range s.groups {
		configs[name] = g.SubscriptionGroupConfig
	}
	return configs
}

// Get returns the group called name.
func (t *Table) Get(name string) (*Group, bool) {
	g, ok := t.state.Load().groups[name]
	return g, ok
}

// Ensure returns the group called name, and makes it where groups come to life
// on their own: with AutoCreate, and always for system groups. Anything else is
// a *protocol.Error.
func (t *Table) Ensure(name string) (*Group, error) {
	if g, ok := t.Get(name); ok {
		return g, nil
	}
	return t.create(name)
}

// EnsureBytes is Ensure for a name that lies in a request; it does not allocate
// for a group that exists.
func (t *Table) EnsureBytes(name []byte) (*Group, error) {
	if g, ok := t.state.Load().groups[string(name)]; ok {
		return g, nil
	}
	return t.create(string(name))
}

func (t *Table) create(name string) (*Group, error) {
	if !t.o.AutoCreate && !message.IsSystemGroup(name) {
		return nil, notExist(name)
	}
	if err := message.ValidateGroup(name); err != nil {
		return nil, protocol.Errorf(protocol.InvalidParameter, "%v", err)
	}
	var g *Group
	err := t.state.Change(func(s *state) (bool, error) {
		var ok bool
		if g, ok = s.groups[name]; ok {
			return false, nil
		}
		if err := t.room(len(s.groups) + 1); err != nil {
			return false, err
		}
		g = newGroup(protocol.NewSubscriptionGroupConfig(strings.Clone(name)))
		t.putStaged(s, g)
		return true, nil
	})
	if err != nil {
		return nil, err
	}
	return g, nil
}

func notExist(name string) error {
	return protocol.Errorf(protocol.SubscriptionGroupNotExist, "subscription group [%s] does not exist", name)
}

func (t *Table) room(count int) error {
	if count > t.o.MaxGroups {
		return protocol.Errorf(protocol.SystemError, "no room for another group: the limit is %d groups", t.o.MaxGroups)
	}
	return nil
}

// Update creates groups or changes those that exist, as an operator asks
// (request 200 with one, 225 with several): all of them or, when one is refused,
// none. What already is as asked moves no version. Refusals are *protocol.Error
// with the code for the wire. Attributes stay as they are: this broker knows
// none to set.
func (t *Table) Update(configs ...protocol.SubscriptionGroupConfig) error {
	for i := range configs {
		if err := check(&configs[i]); err != nil {
			return err
		}
	}
	return t.state.Change(func(s *state) (bool, error) {
		next, count := make([]*Group, 0, len(configs)), len(s.groups)
		for _, c := range configs {
			old := s.groups[c.GroupName]
			if old == nil {
				count++
			} else {
				c.Attributes = old.Attributes
			}
			g := newGroup(c)
			if old != nil && reflect.DeepEqual(old, g) {
				continue
			}
			next = append(next, g)
		}
		if count > len(s.groups) {
			if err := t.room(count); err != nil {
				return false, err
			}
		}
		for _, g := range next {
			t.putStaged(s, g)
		}
		return len(next) > 0, nil
	})
}

func check(c *protocol.SubscriptionGroupConfig) error {
	if err := message.ValidateGroup(c.GroupName); err != nil {
		return protocol.Errorf(protocol.InvalidParameter, "%v", err)
	}
	if c.RetryQueueNums < 0 || c.RetryQueueNums > maxRetryQueues || c.RetryMaxTimes < -1 {
		return protocol.Errorf(protocol.InvalidParameter, "group[%s]: retryQueueNums is %d, want 0 to %d; retryMaxTimes is %d, want -1 or more",
			c.GroupName, c.RetryQueueNums, maxRetryQueues, c.RetryMaxTimes)
	}
	for name := range c.Attributes {
		return protocol.Errorf(protocol.InvalidParameter, "group[%s]: attribute %q is unknown", c.GroupName, name)
	}
	return nil
}

// maxRetryQueues bounds the queues that a heartbeat creates in a retry topic.
const maxRetryQueues = 1024

// Delete removes a group with its forbidden topics and says whether it was
// there. System groups stay.
func (t *Table) Delete(name string) (existed bool, err error) {
	if message.IsSystemGroup(name) {
		return false, protocol.Errorf(protocol.InvalidParameter, "the group[%s] is a system group", name)
	}
	err = t.state.Change(func(s *state) (bool, error) {
		if _, existed = s.groups[name]; !existed {
			return false, nil
		}
		delete(s.groups, name)
		delete(s.forbidden, name)
		s.version = s.version.Next(t.o.Now().UnixMilli())
		return true, nil
	})
	return existed && err == nil, err
}

// ReadForbidden says whether an operator keeps the group from reading the topic.
func (t *Table) ReadForbidden(group, topic string) bool {
	return t.state.Load().forbidden[group][topic]&ForbidRead != 0
}

// All returns every group by name, as of one version. The map must not be
// changed.
func (t *Table) All() map[string]*Group { return t.state.Load().groups }

// Version returns the table's version, which every change moves.
func (t *Table) Version() protocol.DataVersion { return t.state.Load().version }

// A Snapshot is the whole table as of one version.
type Snapshot struct {
	Groups    map[string]protocol.SubscriptionGroupConfig
	Forbidden map[string]map[string]int32 // must not be changed
	Version   protocol.DataVersion
}

// Snapshot returns the settings of all groups, what they must not read, and the
// version that these belong to.
func (t *Table) Snapshot() Snapshot {
	s := t.state.Load()
	return Snapshot{Groups: s.configs(), Forbidden: s.forbidden, Version: s.version}
}
