package sidecar

import (
	"github.com/sluicemq/sluice/broker"
	"github.com/sluicemq/sluice/protocol"
)

// Codes lists the request codes that the RocketMQ door answers.
func Codes() []protocol.RequestCode {
	codes := broker.Codes()
	for code := range new(rocketDoor).routes() {
		codes = append(codes, code)
	}
	return codes
}
