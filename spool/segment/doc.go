// Package segment keeps a growing log in a sequence of files of one size, and
// holds the seam through which the storage engine reaches a file system.
//
// A segment is written with WriteAt at increasing positions and read through
// one read-only mapping. It is full size from its first moment and never
// shrinks, so a mapped read cannot run past the end of the file.
package segment
