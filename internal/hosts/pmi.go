package hosts

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// A pmi is a task's connection to the daemon of its step, through which tasks tell each other values, by the
// second version of PMI's wire protocol. Slurm serves it (srun --mpi=pmi2; its sources, src/plugins/mpi/pmi2), and
// it comes from MPICH (src/pmi/pmi2). It is for one goroutine.
type pmi struct {
	conn net.Conn
	r    *bufio.Reader
	job  string
}

// chunkLen is the length of the pieces of a value. Slurm takes values up to 1023 bytes (PMI2_MAX_VALLEN).
const chunkLen = 1000

// A chunk of a value begins with one of these.
const (
	moreChunks = "+"
	lastChunk  = "."
)

// openPMI begins to talk as a task, by number, of a job as PMI calls it.
func openPMI(ctx context.Context, conn net.Conn, job string, rank int) (*pmi, error) {
	p := &pmi{conn: conn, r: bufio.NewReader(conn), job: job}
	// The first message is one of the first version's, a line, so that either end may have another version.
	err := p.within(ctx, func() error {
		if _, err := io.WriteString(conn, "cmd=init pmi_version=2 pmi_subversion=0\n"); err != nil {
			return err
		}
		line, err := p.r.ReadString('\n')
		if err == nil && !strings.Contains(line, "rc=0") {
			err = errors.New(strings.TrimSpace(line))
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("PMI-2: init: %w", err)
	}
	if _, err := p.call(ctx, "fullinit", "pmijobid="+job, "pmirank="+strconv.Itoa(rank), "threaded=FALSE"); err != nil {
		return nil, err
	}
	return p, nil
}

// close ends the conversation. Slurm takes a task that ends without for one that has failed.
func (p *pmi) close(ctx context.Context) error {
	_, err := p.call(ctx, "finalize")
	return errors.Join(err, p.conn.Close())
}

// put makes a value known to those who get it after the next fence.
func (p *pmi) put(ctx context.Context, key, value string) error {
	rest := base64.RawURLEncoding.EncodeToString([]byte(value)) // no semicolon
	for i := 0; ; i++ {
		lead, chunk := lastChunk, rest
		if len(rest) > chunkLen {
			lead, chunk, rest = moreChunks, rest[:chunkLen], rest[chunkLen:]
		}
		if _, err := p.call(ctx, "kvs-put", "key="+chunkKey(key, i), "value="+lead+chunk); err != nil {
			return err
		}
		if lead == lastChunk {
			return nil
		}
	}
}

// get returns a value that a task has put before the last fence.
func (p *pmi) get(ctx context.Context, key string) (string, error) {
	text := ""
	for i := 0; ; i++ {
		answer, err := p.call(ctx, "kvs-get", "jobid="+p.job, "srcid=-1", "key="+chunkKey(key, i))
		if err != nil {
			return "", err
		}
		value := answer["value"]
		if answer["found"] == "FALSE" || value == "" {
			return "", fmt.Errorf("PMI-2: nobody has put %s", key)
		}
		text += value[1:]
		if value[:1] == lastChunk {
			break
		}
	}
	value, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return "", fmt.Errorf("PMI-2: %s: %w", key, err)
	}
	return string(value), nil
}

func chunkKey(key string, i int) string { return key + "-" + strconv.Itoa(i) }

// fence returns when all tasks have called it.
func (p *pmi) fence(ctx context.Context) error {
	_, err := p.call(ctx, "kvs-fence")
	return err
}

// call sends a command, a length of six characters and keys with values, and returns the answer's.
func (p *pmi) call(ctx context.Context, command string, pairs ...string) (answer map[string]string, err error) {
	err = p.within(ctx, func() error {
		text := "cmd=" + command + ";"
		for _, pair := range pairs {
			text += pair + ";"
		}
		if _, err := fmt.Fprintf(p.conn, "%6d%s", len(text), text); err != nil {
			return err
		}
		var head [6]byte
		if _, err := io.ReadFull(p.r, head[:]); err != nil {
			return err
		}
		length, err := strconv.ParseUint(strings.TrimSpace(string(head[:])), 10, 20)
		if err != nil {
			return fmt.Errorf("the answer's length is %q, expected a number", head[:])
		}
		body := make([]byte, length)
		if _, err := io.ReadFull(p.r, body); err != nil {
			return err
		}
		answer = map[string]string{}
		for pair := range strings.SplitSeq(string(body), ";") {
			key, value, _ := strings.Cut(pair, "=")
			answer[key] = value
		}
		if want := command + "-response"; answer["cmd"] != want {
			return fmt.Errorf("the answer is %q, expected %s", body, want)
		}
		if rc := answer["rc"]; rc != "" && rc != "0" {
			return fmt.Errorf("refused (rc=%s): %s", rc, answer["errmsg"])
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("PMI-2: %s: %w", command, err)
	}
	return answer, nil
}

// within does what reads and writes, which fails when ctx ends.
func (p *pmi) within(ctx context.Context, do func() error) error {
	if err := p.conn.SetDeadline(time.Time{}); err != nil {
		return err
	}
	// A deadline that is over ends what is under way. It fails only if the connection is closed, which does, too.
	stop := context.AfterFunc(ctx, func() { _ = p.conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	err := do()
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
