package faultfs

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sort"

	"github.com/sluicemq/sluice/spool/segment"
)

const sectorSize = 512

// An inode is a file's content, whatever its names: durable sectors, and the
// versions that each unsynced one went through. Guarded by FS.mu.
type inode struct {
	source string // where the content is, until it is loaded
	loaded bool

	size, durableSize int64
	durable           map[int64][]byte
	dirty             map[int64][][]byte
}

func (in *inode) load() error {
	if in.loaded {
		return nil
	}
	b, err := os.ReadFile(in.source)
	if err != nil {
		return err
	}
	in.loaded = true
	in.size, in.durableSize = int64(len(b)), int64(len(b))
	in.durable = make(map[int64][]byte)
	for i := int64(0); i*sectorSize < int64(len(b)); i++ {
		s := make([]byte, sectorSize)
		copy(s, b[i*sectorSize:])
		if string(s) != string(make([]byte, sectorSize)) {
			in.durable[i] = s
		}
	}
	return nil
}

func (in *inode) sector(i int64) []byte {
	if v := in.dirty[i]; len(v) > 0 {
		return v[len(v)-1]
	}
	if s := in.durable[i]; s != nil {
		return s
	}
	return make([]byte, sectorSize)
}

func (in *inode) write(p []byte, off int64) {
	if in.dirty == nil {
		in.dirty = make(map[int64][][]byte)
	}
	in.size = max(in.size, off+int64(len(p)))
	for len(p) > 0 {
		i, at := off/sectorSize, off%sectorSize
		s := append([]byte(nil), in.sector(i)...)
		n := copy(s[at:], p)
		in.dirty[i] = append(in.dirty[i], s)
		p, off = p[n:], off+int64(n)
	}
}

// truncate treats the cut bytes as gone at once: the engine shrinks no file
// whose content matters.
func (in *inode) truncate(size int64) {
	in.size = size
	for i := range in.dirty {
		if i*sectorSize >= size {
			delete(in.dirty, i)
		}
	}
}

func (in *inode) sync() {
	if in.durable == nil {
		in.durable = make(map[int64][]byte)
	}
	for i, v := range in.dirty {
		in.durable[i] = v[len(v)-1]
	}
	in.dirty = nil
	in.durableSize = in.size
}

// handle is an open file.
type handle struct {
	segment.File
	fs   *FS
	in   *inode
	name string
}

func (h *handle) WriteAt(p []byte, off int64) (int, error) {
	ft := h.fs.before(Op{Kind: Write, Name: h.name, Off: off, Len: len(p)})
	if ft != nil {
		p = p[:min(ft.Written, len(p))]
	}
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	n, err := h.File.WriteAt(p, off)
	h.in.write(p[:n], off)
	if ft != nil {
		return n, ft.Err
	}
	return n, err
}

func (h *handle) Sync() error {
	// What is written while the hook or the disk takes its time may miss.
	if ft := h.fs.before(Op{Kind: Sync, Name: h.name}); ft != nil {
		h.fs.mu.Lock()
		defer h.fs.mu.Unlock()
		h.in.dirty = nil // lost, although reads still see it
		return ft.Err
	}
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	h.in.sync()
	return nil
}

func (h *handle) Truncate(size int64) error {
	if ft := h.fs.before(Op{Kind: Truncate, Name: h.name}); ft != nil {
		return ft.Err
	}
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if err := h.File.Truncate(size); err != nil {
		return err
	}
	h.in.truncate(size)
	return nil
}

func (h *handle) Map(size int64) ([]byte, error) {
	if ft := h.fs.before(Op{Kind: Map, Name: h.name}); ft != nil {
		return nil, ft.Err
	}
	return h.File.Map(size)
}

func (h *handle) ReadAt(p []byte, off int64) (int, error) {
	if ft := h.fs.before(Op{Kind: Read, Name: h.name}); ft != nil {
		return 0, ft.Err
	}
	return h.File.ReadAt(p, off)
}

// Crash writes what a power cut at this moment might leave into dst, which
// must not exist. The same source of randomness gives the same outcome.
func (f *FS) Crash(rng *rand.Rand, dst string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	names := make(map[string]*inode, len(f.durable))
	for n, in := range f.durable {
		names[n] = in
	}
	for _, op := range f.pending[:rng.IntN(len(f.pending)+1)] {
		op.apply(names)
	}
	// Sectors per decision, and the chance of each unsynced one to be there.
	unit := []int64{1, 8}[rng.IntN(2)]
	chance := []float64{0, 0.5, 0.9, 1}[rng.IntN(4)]
	sorted := make([]string, 0, len(names))
	for n := range names {
		sorted = append(sorted, n)
	}
	sort.Strings(sorted)
	for _, n := range sorted {
		rel, err := filepath.Rel(f.root, n)
		if err != nil {
			return err
		}
		to := filepath.Join(dst, rel)
		if in := names[n]; in != nil {
			err = in.dump(rng, unit, chance, to)
		} else {
			err = os.MkdirAll(to, 0o755)
		}
		if err != nil {
			return fmt.Errorf("faultfs: crash copy of %s: %w", n, err)
		}
	}
	return nil
}

func (in *inode) dump(rng *rand.Rand, unit int64, chance float64, to string) error {
	if err := in.load(); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	size := in.durableSize
	if rng.IntN(2) == 0 {
		size = in.size
	}
	out := make(map[int64][]byte, len(in.durable)+len(in.dirty))
	for i, s := range in.durable {
		out[i] = s
	}
	dirty := make([]int64, 0, len(in.dirty))
	for i := range in.dirty {
		dirty = append(dirty, i)
	}
	sort.Slice(dirty, func(a, b int) bool { return dirty[a] < dirty[b] })
	group, take := int64(-1), false
	for _, i := range dirty {
		if g := i / unit; g != group {
			group, take = g, rng.Float64() < chance
		}
		if v := in.dirty[i]; take {
			out[i] = v[len(v)-1-rng.IntN(min(len(v), 3))]
			size = max(size, min(in.size, (i+1)*sectorSize))
		}
	}
	w, err := os.Create(to)
	if err != nil {
		return err
	}
	defer w.Close()
	if err := w.Truncate(size); err != nil {
		return err
	}
	for i, s := range out {
		if at := i * sectorSize; at < size {
			if _, err := w.WriteAt(s[:min(sectorSize, size-at)], at); err != nil {
				return err
			}
		}
	}
	return nil
}
