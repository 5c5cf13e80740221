package ui

import (
	"errors"
	"fmt"
	"html"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
)

// opener is the program that opens files with what the desktop has for them (freedesktop.org, xdg-utils).
const opener = "xdg-open"

// hasDesktop reports whether there is a desktop of the user who asks, of which env has the environment. As root by sudo it is another user's.
func hasDesktop(env func(string) string) bool {
	return (env("DISPLAY") != "" || env("WAYLAND_DISPLAY") != "") && env("SUDO_UID") == ""
}

// browse opens a page in the browser of the desktop. The page's address, which has the secret, would be seen by all users of this machine among the
// arguments of the browser: it gets a file instead that only its user reads, in a folder, and that leads to the page. The function that is
// returned removes both, and may be called again.
func browse(url string, stderr io.Writer) (folder string, remove func(), err error) {
	path, err := exec.LookPath(opener)
	if err != nil {
		return "", nil, err
	}
	folder, err = os.MkdirTemp(os.Getenv("XDG_RUNTIME_DIR"), "ndklab-ui-") // only its user has access
	if err != nil {
		return "", nil, err
	}
	remove = sync.OnceFunc(func() {
		if err := os.RemoveAll(folder); err != nil {
			fmt.Fprintln(stderr, "warning:", err)
		}
	})
	file := filepath.Join(folder, "ndklab.html")
	lead := fmt.Sprintf("<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta http-equiv=\"refresh\" content=\"0;url=%[1]s\"><title>ndklab</title><a href=\"%[1]s\">ndklab</a></html>\n", html.EscapeString(url))
	err = os.WriteFile(file, []byte(lead), 0o600)
	cmd := exec.Command(path, file)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // the browser stays when we go
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		remove()
		return "", nil, err
	}
	go func() {
		if err := cmd.Wait(); errors.As(err, new(*exec.ExitError)) {
			fmt.Fprintf(stderr, "no browser was opened (%s: %v): the URL is above\n", opener, err)
		}
	}()
	return folder, remove, nil
}
