package lab

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"os"
	"time"
)

// This file keeps a lab's log from filling the file system that it is on, which is memory: programs in nodes write to it as much as
// they like.

const (
	// mostLog bounds the log, bytes, but for what comes until it is looked at again.
	mostLog = 64 << 20
	// keptLog bounds the last lines that stay when it is longer, bytes.
	keptLog = 64 << 10
	// logLook lies between two looks at it.
	logLook = 250 * time.Millisecond
)

// boundLog cuts the log, to which all processes of a lab append, each time that it is too long.
func boundLog(file *os.File) {
	for range time.Tick(logLook) {
		if err := cutLog(file, mostLog, keptLog); err != nil {
			log.Printf("the log can grow without bound: %v", err)
			return
		}
	}
}

// cutLog leaves of a log that is longer than most only whole lines among the last kept bytes, behind a line that says so. Lines written
// meanwhile may be lost.
func cutLog(file *os.File, most, kept int64) error {
	info, err := file.Stat()
	if err != nil || info.Size() <= most {
		return err
	}
	tail := make([]byte, kept)
	n, err := file.ReadAt(tail, info.Size()-kept)
	if err != nil && err != io.EOF {
		return err
	}
	_, tail, _ = bytes.Cut(tail[:n], []byte("\n"))
	if err := file.Truncate(0); err != nil {
		return err
	}
	_, err = file.Write(append(fmt.Appendf(nil, "log: %d bytes are left out here, since it was longer than %d\n", info.Size()-int64(len(tail)), most), tail...))
	return err
}
