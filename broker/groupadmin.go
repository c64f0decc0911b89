package broker

import (
	"context"

	"github.com/sluicemq/sluice/broker/groups"
	"github.com/sluicemq/sluice/broker/offsets"
	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/protocol/message"
	"github.com/sluicemq/sluice/remoting"
)

// groupAdmin answers operators about consumer groups: 200, 201, 207 and 352.
type groupAdmin struct {
	groups  *groups.Table
	offsets *offsets.Table
}

func (a *groupAdmin) update(_ context.Context, _ *remoting.Conn, req *protocol.Command) (*protocol.Command, error) {
	config := protocol.NewSubscriptionGroupConfig("")
	if err := protocol.Unmarshal(req.Body, &config); err != nil {
		return nil, protocol.Errorf(protocol.InvalidParameter, "group settings: %v", err)
	}
	if err := a.groups.Update(config); err != nil {
		return nil, err
	}
	return protocol.NewResponse(protocol.Success, "", nil, nil), nil
}

func (a *groupAdmin) all(context.Context, *remoting.Conn, *protocol.Command) (*protocol.Command, error) {
	table := a.groups.Snapshot()
	return protocol.NewJSONResponse(
		&protocol.GetAllSubscriptionGroupResponse{TotalGroupNum: protocol.Some(int32(len(table.Groups)))},
		protocol.SubscriptionGroupWrapper{
			DataVersion: table.Version, ForbiddenTable: table.Forbidden, SubscriptionGroupTable: table.Groups,
		})
}

func (a *groupAdmin) remove(_ context.Context, _ *remoting.Conn, req *protocol.Command) (*protocol.Command, error) {
	var h protocol.DeleteSubscriptionGroupRequest
	if err := req.DecodeHeader(&h); err != nil {
		return nil, err
	}
	existed, err := a.groups.Delete(h.GroupName)
	if err != nil {
		return nil, err
	}
	if err := message.ValidateGroup(h.GroupName); err != nil && !existed {
		return nil, protocol.Errorf(protocol.InvalidParameter, "%v", err)
	}
	if h.CleanOffset {
		if err := a.offsets.RemoveGroup(h.GroupName); err != nil {
			return nil, err
		}
	}
	return protocol.NewResponse(protocol.Success, "", nil, nil), nil
}

func (a *groupAdmin) config(_ context.Context, _ *remoting.Conn, req *protocol.Command) (*protocol.Command, error) {
	var h protocol.GetSubscriptionGroupConfigRequest
	if err := req.DecodeHeader(&h); err != nil {
		return nil, err
	}
	group, ok := a.groups.Get(h.Group)
	if !ok {
		return nil, protocol.Errorf(protocol.SubscriptionGroupNotExist, "No group in this broker. group: %s", h.Group)
	}
	return protocol.NewJSONResponse(nil, group.SubscriptionGroupConfig)
}
