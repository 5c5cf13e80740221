package ui

import (
	"fmt"
	"path/filepath"

	"github.com/landlock-lsm/go-landlock/landlock"
	access "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"github.com/ndklab/ndklab/internal/confine"
)

// confineServer confines this process (package confine), since pages of the web may ask it. It can open terminals, and remove
// the folder that leads a browser to the page, if there is one. Where the kernel has Landlock (5.13), it can write to no other
// file, and remove none. Files that it has it keeps.
func confineServer(lead string) error {
	if !confine.Wanted() {
		return nil
	}
	rules := []landlock.Rule{
		landlock.PathAccess(access.AccessFSReadFile|access.AccessFSReadDir, "/"),
		landlock.PathAccess(access.AccessFSReadFile|access.AccessFSWriteFile, "/dev/ptmx", "/dev/pts"),
	}
	if lead != "" {
		rules = append(rules, landlock.PathAccess(access.AccessFSRemoveFile, lead), landlock.PathAccess(access.AccessFSRemoveDir, filepath.Dir(lead)))
	}
	if err := landlock.V3.BestEffort().RestrictPaths(rules...); err != nil {
		return fmt.Errorf("confine: %w", err)
	}
	return confine.ExceptFiles()
}
