package broker

import "github.com/sluicemq/sluice/protocol"

// Codes lists the request codes that an engine answers.
func Codes() []protocol.RequestCode {
	table := new(parts).table(nil)
	codes := make([]protocol.RequestCode, 0, len(table))
	for code := range table {
		codes = append(codes, code)
	}
	return codes
}
