// Package crash holds tests that kill the sluice binary without warning while it
// is under load, start it again on what it left behind, and demand every message
// that it had acknowledged.
//
// The normal test run has a few kills of each role in each flush mode; with the
// build tag crash there is a loop of as many as asked for:
//
//	go test ./test/crash -tags crash -timeout 1h -run Loop -kills 200
package crash
