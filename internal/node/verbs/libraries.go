package verbs

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/ndklab/ndklab/internal/node/mount"
	"github.com/ndklab/ndklab/internal/node/verbs/ldcache"
	"github.com/ndklab/ndklab/internal/node/verbs/rdmacm"
)

const (
	linkerCache = "/etc/ld.so.cache"
	libc        = "libc.so.6"
)

// readCache returns the libraries that the dynamic linker of glibc knows.
func readCache() (*ldcache.Cache, error) {
	file, err := os.ReadFile(linkerCache)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s is not there, expected a system with glibc whose ldconfig has run", linkerCache)
	}
	if err != nil {
		return nil, err
	}
	cache, err := ldcache.Parse(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", linkerCache, err)
	}
	return cache, nil
}

// coverInstalled covers the libraries that programs find by the linker's cache and in the
// folders of searchPath. Where there is no libibverbs they find ndklab's by the cache.
func (m *Mounts) coverInstalled(searchPath string) error {
	cache, err := readCache()
	if err != nil {
		return errors.Join(err, m.CoverIn(searchPath))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	err = errors.Join(
		m.cover(Ibverbs, slices.Concat(cache.Find(Ibverbs), inFolders(searchPath, Ibverbs))),
		m.cover(RDMACM, slices.Concat(cache.Find(RDMACM), inFolders(searchPath, RDMACM))),
	)
	if !slices.ContainsFunc(cache.Find(Ibverbs), isNative) {
		err = errors.Join(err, prefixed(linkerCache, m.extend(cache)))
	}
	return err
}

// cover mounts a node's library over each of the paths that have one of that name. The caller
// holds m.mu.
func (m *Mounts) cover(library string, paths []string) error {
	var all error
	for _, path := range paths {
		real, err := filepath.EvalSymlinks(path)
		if err != nil || m.seen[real] || !isNative(real) {
			continue // there is none, or it is for programs of another architecture
		}
		m.seen[real] = true
		over := filepath.Join(m.libraries, library)
		if library == RDMACM {
			over, err = m.renamed(real)
		}
		if err == nil {
			err = mount.Over(over, real)
		}
		if err != nil {
			all = errors.Join(all, fmt.Errorf("%s: %w", path, err))
		}
	}
	return all
}

// renamed makes a copy of a librdmacm.so.1 whose imports are renamed.
func (m *Mounts) renamed(path string) (string, error) {
	library, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	if library, err = rdmacm.Rename(library); err != nil {
		return "", err
	}
	copied := filepath.Join(devices, stash, fmt.Sprintf("%d-%s", len(m.seen), RDMACM))
	return copied, os.WriteFile(copied, library, 0o755)
}

// extend has the linker find ndklab's libibverbs.so.1.
func (m *Mounts) extend(cache *ldcache.Cache) error {
	extended, err := cache.Add(Ibverbs, filepath.Join(m.libraries, Ibverbs), libc)
	if err != nil {
		return err
	}
	copied := filepath.Join(devices, stash, filepath.Base(linkerCache))
	if err := os.WriteFile(copied, extended, 0o644); err != nil {
		return err
	}
	return mount.Over(copied, linkerCache)
}

// isNative reports whether a file is a library for the programs of this architecture.
func isNative(path string) bool {
	f, err := elf.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	machine := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[runtime.GOARCH]
	return f.Class == elf.ELFCLASS64 && f.Machine == machine
}
