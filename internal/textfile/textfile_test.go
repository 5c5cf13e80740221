package textfile

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// fifo makes a pipe with a name.
func fifo(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// write writes to a pipe what is in parts, one after the other when it has been asked to.
func write(t *testing.T, name string, parts ...string) (next chan struct{}) {
	next = make(chan struct{})
	go func() {
		f, err := os.OpenFile(name, os.O_WRONLY, 0) // when it is opened for reading
		if err != nil {
			t.Error(err)
			return
		}
		for _, part := range parts {
			<-next
			if _, err := f.WriteString(part); err != nil {
				t.Error(err)
			}
		}
		<-next
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}()
	return next
}

func TestRead(t *testing.T) {
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		plain: "text", "/dev/null": "",
	} {
		if got, err := Read(file, 1000); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", file, got, err)
		}
	}
	if got, err := Read("/dev/zero", 1000); err != nil || !bytes.Equal(got, make([]byte, 1000)) {
		t.Errorf("/dev/zero: %d bytes, %v", len(got), err)
	}
	for file, want := range map[string]string{
		"": "empty", "/nonexistent/file": "no file /nonexistent/file", t.TempDir(): "is a directory, expected a file", plain + "/x": "not a directory",
	} {
		if _, err := Read(file, 1000); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", file, err)
		}
	}
}

func TestReadPipe(t *testing.T) {
	defer func(d time.Duration) { patience = d }(patience)
	type result struct {
		data []byte
		err  error
	}
	reading := func(name string) chan result {
		done := make(chan result)
		go func() {
			data, err := Read(name, 1000)
			done <- result{data, err}
		}()
		return done
	}
	t.Run("nobody writes", func(t *testing.T) {
		patience = 20 * time.Millisecond
		name := fifo(t)
		if _, err := Read(name, 1000); err == nil || err.Error() != name+" is a pipe that nobody writes to" {
			t.Error(err)
		}
	})
	patience = time.Minute
	t.Run("in parts", func(t *testing.T) {
		name := fifo(t)
		next := write(t, name, "one, ", "two")
		done := reading(name)
		for range 3 {
			next <- struct{}{}
		}
		if r := <-done; r.err != nil || string(r.data) != "one, two" {
			t.Errorf("%q, %v", r.data, r.err)
		}
	})
	t.Run("nothing", func(t *testing.T) {
		name := fifo(t)
		next := write(t, name)
		done := reading(name)
		next <- struct{}{}
		if r := <-done; r.err != nil || len(r.data) != 0 {
			t.Errorf("%q, %v", r.data, r.err)
		}
	})
	t.Run("too much", func(t *testing.T) {
		name := fifo(t)
		next := write(t, name, strings.Repeat("x", 2000))
		done := reading(name)
		next <- struct{}{}
		if r := <-done; r.err != nil || len(r.data) != 1000 {
			t.Errorf("%d bytes, %v", len(r.data), r.err)
		}
		next <- struct{}{}
	})
}

// TestReadPipeOfTheQuick: who opens a pipe, writes and closes it between two looks has written all the same.
func TestReadPipeOfTheQuick(t *testing.T) {
	written, open := "", false
	read := func() ([]byte, error) {
		data := []byte(written)
		if !open {
			written, open = "text", true // right after this look
		} else {
			written = ""
		}
		return data, nil
	}
	data, open, err := readPipe(read, func() bool { return open })
	if string(data) != "text" || !open || err != nil {
		t.Errorf("%q, open %t, %v", data, open, err)
	}
}

func TestOpen(t *testing.T) {
	defer func(d time.Duration) { patience = d }(patience)
	name := fifo(t)
	patience = 0
	if _, err := Open(name); err == nil || err.Error() != name+" is a pipe that nobody reads" {
		t.Error(err)
	}
	if _, err := Open(filepath.Join(t.TempDir(), "none")); !os.IsNotExist(err) {
		t.Error(err)
	}
	patience = time.Minute
	got := make(chan []byte)
	go func() {
		data, err := os.ReadFile(name) // from when it is opened for writing
		if err != nil {
			t.Error(err)
		}
		got <- data
	}()
	f, err := Open(name)
	if err != nil {
		t.Fatal(err)
	}
	text := bytes.Repeat([]byte("x"), 1<<20) // more than a pipe has room for
	if _, err := f.Write(text); err != nil {
		t.Error(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if data := <-got; !bytes.Equal(data, text) {
		t.Errorf("%d bytes", len(data))
	}
}
