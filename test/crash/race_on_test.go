//go:build race

package crash

// buildFlags give the binary the race detector where the tests have it.
var buildFlags = []string{"-race"}
