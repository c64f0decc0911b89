package namesrv

import "github.com/sluicemq/sluice/protocol"

// Codes lists the request codes that a name server answers.
func Codes() []protocol.RequestCode {
	table := new(handlers).table()
	codes := make([]protocol.RequestCode, 0, len(table))
	for code := range table {
		codes = append(codes, code)
	}
	return codes
}
