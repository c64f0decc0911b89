// Package spool is the storage engine of every role: a commit log in RocketMQ's
// record layout, consume queues that index it, cursors that remember who read
// how far, and recovery that puts all of them back together.
//
// The promise: once WaitDurable returns without error, the messages before its
// offset survive a power cut, in order, with their queue offsets, and are read
// by everyone; and nobody reads a message that a power cut could still take
// back. docs/STORAGE.md tells how, file by file and line by line.
//
// Lock order, outermost first: life, appendMu, retireMu, checkpointFile.mu,
// dispatcher.mu, cursorSet.making, cursorSet.saving, then the locks inside segment, queueFiles,
// table, cursorSet and Queue, which never nest in one another.
package spool
