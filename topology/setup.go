package topology

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"gopkg.in/yaml.v3"
)

// This file has what a host or router is given beside its interfaces and adapter:
// variables, files, commands, a check of its health and nodes that it waits for.

// A Setup has the things that a node is given, and what it does before it is ready. Slices and
// maps in it may be other nodes', too, and are never changed.
type Setup struct {
	Env         map[string]string `json:",omitempty"` // of every command in the node, before what the caller of a command has
	Files       []File            `json:",omitempty"` // by path
	Exec        []Exec            `json:",omitempty"`
	Healthcheck *Healthcheck      `json:",omitempty"` // nil: none
	WaitFor     []Wait            `json:",omitempty"`
}

// None reports whether the node is given nothing.
func (s *Setup) None() bool {
	return len(s.Env) == 0 && len(s.Files) == 0 && len(s.Exec) == 0 && s.Healthcheck == nil && len(s.WaitFor) == 0
}

// A File is a file that only one node sees.
type File struct {
	Path    string // absolute, and clean
	Mode    fs.FileMode
	Content []byte
}

// A Stage says how far a node has come.
type Stage string

// The stages, in order.
const (
	Created    Stage = "created"    // its namespaces and interfaces exist, and its files are in place
	Configured Stage = "configured" // its interfaces are up, and its adapter is open
	Executed   Stage = "executed"   // its commands of that stage have ended
	Healthy    Stage = "healthy"    // its healthcheck has succeeded, if it has one
)

// Stages are all stages, in order.
var Stages = []Stage{Created, Configured, Executed, Healthy}

// An Exec is a command that is run in a node by sh -c when the node has come to a
// stage, which is not Executed.
type Exec struct {
	Command string
	Stage   Stage
}

// A Healthcheck is a command that sh -c runs in a node again and again: the node is
// healthy if its status is 0.
type Healthcheck struct {
	Command  string
	Interval time.Duration // from the end of one check to the beginning of the next
	Timeout  time.Duration // from which a check has failed
	Retries  int           // this many checks in a row that fail make a node unhealthy
	// StartPeriod is the time in which checks that fail do not count, from the first one
	// until one succeeds.
	StartPeriod time.Duration
}

// A Wait is a node that another waits for before it goes on from Configured to
// Executed, and what that must have come to.
type Wait struct {
	Node  string
	Stage Stage
}

const (
	// maxArgument is the bytes of a command or of a variable with its name: the kernel's
	// MAX_ARG_STRLEN (include/uapi/linux/binfmts.h) less the final zero.
	maxArgument = 128<<10 - 1
	maxWaits    = 1024 // in one list
	maxPath     = 4095 // bytes: the kernel's PATH_MAX less the final zero
	// maxSetup bounds the bytes of what all nodes are given: a lab's start is one
	// message, and what a kind, group or default gives counts for each node anew.
	maxSetup = 32 << 20
	// setupEntry is the bytes that each variable, file, command and wait counts beside its text.
	setupEntry = 32
)

// defaultHealth has the values that a file does not give.
var defaultHealth = Healthcheck{Interval: 10 * time.Second, Timeout: 5 * time.Second, Retries: 3, StartPeriod: 30 * time.Second}

// A setupMap has what a map says of a setup beside what a Setup has.
type setupMap struct {
	files map[string]val[File]
	waits val[[]waitMap]
	size  int // bytes that the setup takes in a node
}

type waitMap struct {
	node  val[string]
	stage val[Stage]
}

// setupKeys are the keys of a setup. Of env and files each variable and file has the
// precedence by itself.
func setupKeys() []key[nodeMap] {
	return []key[nodeMap]{
		readBy("env", func() schema { return mapSchema(schema{"pattern": variableName.compiled().String()}, textSchema()) },
			func(r *reader, n *yaml.Node) func(*nodeMap) {
				env, size := environment(r, n)
				return func(m *nodeMap) {
					m.Setup.Env = merge(env, m.Setup.Env)
					m.size += size
				}
			},
			"a map of variables, which every command in the node has: those of `exec` and `healthcheck`, and those of `ndklab exec`, where they win over the caller's own"),
		readBy("files", filesSchema, func(r *reader, n *yaml.Node) func(*nodeMap) {
			files, size := files(r, n)
			return func(m *nodeMap) {
				m.files = merge(files, m.files)
				m.size += size
			}
		}, "a map of absolute paths to files that this node alone sees, see below"),
		readBy("exec", func() schema { return listSchema(reference("exec")) }, func(r *reader, n *yaml.Node) func(*nodeMap) {
			list, size := []Exec{}, 0
			r.items(n, func(n *yaml.Node) {
				e := execForm.of(r, n).is
				list = append(list, e)
				size += setupEntry + len(e.Command)
			})
			return func(m *nodeMap) {
				m.Setup.Exec = list
				m.size += size
			}
		}, "a list of commands, one after the other: text that `sh -c` runs, or `{command: ..., stage: ...}` with the stage from which it runs: `created`, `configured` (the default) or `healthy`"),
		readBy("healthcheck", func() schema { return orNone(healthForm.schema()) }, func(r *reader, n *yaml.Node) func(*nodeMap) {
			var check *Healthcheck
			if !isNone(n) {
				check = new(healthForm.of(r, n).is)
			}
			return func(m *nodeMap) {
				if m.Setup.Healthcheck = check; check != nil {
					m.size += setupEntry + len(check.Command)
				}
			}
		}, "a command that tells whether the node does what it is there for, see below; `none`: no check, whatever the group, the kind or the defaults say"),
		readBy("wait_for", func() schema {
			return schema{"type": []string{"array", "null"}, "items": waitForm.schema(), "maxItems": maxWaits}
		}, func(r *reader, n *yaml.Node) func(*nodeMap) {
			waits, size := val[[]waitMap]{at: n, ok: true}, 0
			if len(n.Content) > maxWaits {
				r.valueError(n, "%d nodes to wait for, expected at most %d", len(n.Content), maxWaits)
			} else {
				r.items(n, func(n *yaml.Node) {
					w := waitForm.of(r, n).is
					waits.is = append(waits.is, w)
					size += setupEntry + len(w.node.is)
				})
			}
			return func(m *nodeMap) {
				m.waits = waits
				m.size += size
			}
		}, "a list of `{node: server, stage: healthy}`: other nodes, and the `stage` that each must have reached before this node runs its commands of the stage `configured` and its healthcheck"),
	}
}

// setupNames are the names of the keys of a setup.
func setupNames() []string {
	return textsOf(setupKeys(), func(k key[nodeMap]) string { return k.name })
}

// variableName matches what a shell takes as the name of a variable.
var variableName = &pattern{text: `^[A-Za-z_][A-Za-z0-9_]*$`}

// environment reads variables, and returns also how many bytes of a setup they take.
func environment(r *reader, n *yaml.Node) (env map[string]string, size int) {
	env = make(map[string]string)
	for _, e := range r.entries(n) {
		name := e.key.Value
		if !variableName.compiled().MatchString(name) {
			r.valueError(e.key, "%s is no name of a variable, expected letters, digits and _, such as LOG_LEVEL", quote(name))
			continue
		}
		env[name] = scalar(r, e.value, argument(maxArgument-len(name)-len("="))).is
		size += setupEntry + len(name) + len(env[name])
	}
	return env, size
}

// argument is a parser for text that a process is started with.
func argument(most int) func(string) (string, error) {
	return func(text string) (string, error) {
		switch {
		case strings.ContainsRune(text, 0):
			return "", fmt.Errorf("found %s, expected text without the character U+0000, which ends what a process is given", quote(text))
		case len(text) > most:
			return "", fmt.Errorf("%d bytes are more than the kernel passes to a process, expected at most %d", len(text), most)
		}
		return text, nil
	}
}

// commandText reads a text that sh -c runs.
var commandText = single(func(text string) (string, error) {
	if strings.TrimSpace(text) == "" {
		return "", errors.New("an empty command, expected one such as ip address")
	}
	return argument(maxArgument)(text)
}, func() schema { return reference("commandText") })

var execTable = sync.OnceValue(func() *keyTable[Exec] {
	return &keyTable[Exec]{
		what: "a command", noun: "command of exec", required: []string{"command"}, initial: Exec{Stage: Configured},
		keys: []key[Exec]{
			one("command", commandText, func(m *Exec) *string { return &m.Command }, "what `sh -c` runs"),
			one("stage", fewWords(Created, Configured, Healthy), func(m *Exec) *Stage { return &m.Stage }, "from which stage of the node it runs: `created`, `configured` or `healthy`").orElse("`configured`"),
		},
	}
})

var execForm = form[Exec]{
	schema: func() schema { return reference("exec") },
	read: func(r *reader, n *yaml.Node) Exec {
		if n.Kind != yaml.MappingNode {
			return Exec{commandText.of(r, n).is, Configured}
		}
		return execTable().read(r, n).is
	},
}

var healthTable = sync.OnceValue(func() *keyTable[Healthcheck] {
	d := defaultHealth
	return &keyTable[Healthcheck]{
		what: "a healthcheck", noun: "healthcheck", def: "healthcheck", required: []string{"command"}, initial: d,
		keys: []key[Healthcheck]{
			one("command", commandText, func(m *Healthcheck) *string { return &m.Command }, "what `sh -c` runs: status 0 is healthy"),
			one("interval", span(10*time.Millisecond, 24*time.Hour), func(m *Healthcheck) *time.Duration { return &m.Interval },
				"from the end of a check to the next, $range").orElse(FormatDuration(d.Interval)),
			one("timeout", span(10*time.Millisecond, time.Hour), func(m *Healthcheck) *time.Duration { return &m.Timeout },
				"from which a check has failed, $range").orElse(FormatDuration(d.Timeout)),
			one("retries", count[int](1, 1000), func(m *Healthcheck) *int { return &m.Retries },
				"so many checks that fail in a row make the node unhealthy, $range").orElse(strconv.Itoa(d.Retries)),
			one("start_period", span(0, 24*time.Hour), func(m *Healthcheck) *time.Duration { return &m.StartPeriod },
				"for how long checks that fail do not count, from the first check until one succeeds. In this time checks come sooner: 100 ms after the first, then after twice as long each time, up to `interval`").orElse(FormatDuration(d.StartPeriod)),
		},
	}
})

var healthForm = onlyMap("{command: ...}, or none", healthTable, itself)

var waitTable = sync.OnceValue(func() *keyTable[waitMap] {
	return &keyTable[waitMap]{
		what: "an entry of wait_for", noun: "entry of wait_for", def: "wait", required: []string{"node", "stage"},
		keys: []key[waitMap]{
			one("node", placed(anyText), func(m *waitMap) *val[string] { return &m.node }, "the node to wait for"),
			one("stage", placed(fewWords(Stages...)), func(m *waitMap) *val[Stage] { return &m.stage }, "what it must have come to"),
		},
	}
})

var waitForm = mapOf(waitTable, itself)

// filesSchema is the schema of files, by their paths.
func filesSchema() schema {
	return mapSchema(schema{"pattern": `^(/[^/\x00]+)+$`, "not": schema{"pattern": `/\.\.?(/|$)|^/(proc|sys|dev)(/|$)`}, "maxLength": maxPath}, fileTable().reference())
}

// files reads files by their paths, and returns also how many bytes of a setup they take.
func files(r *reader, n *yaml.Node) (files map[string]val[File], size int) {
	files = make(map[string]val[File])
	for _, e := range r.entries(n) {
		place, err := filePath(e.key.Value)
		if err != nil {
			r.valueError(e.key, "%v", err)
		}
		f := fileForm.of(r, e.value).is
		f.Path = place
		if err == nil {
			files[place] = val[File]{e.key, f, true}
		}
		size += setupEntry + len(place) + len(f.Content)
	}
	return files, size
}

// kernelFolders are those whose files are the kernel's own.
var kernelFolders = []string{"/proc", "/sys", "/dev"}

// filePath is a parser for the path of a file inside a node.
func filePath(text string) (string, error) {
	switch {
	case !path.IsAbs(text):
		return "", fmt.Errorf("%s is no absolute path, expected one inside the node such as /etc/app.conf", quote(text))
	case path.Clean(text) != text || text == "/":
		return "", fmt.Errorf("%s is no plain path of a file, expected one such as /etc/app.conf", quote(text))
	case strings.ContainsRune(text, 0) || len(text) > maxPath:
		return "", fmt.Errorf("%s is no path that the kernel takes, expected at most %d bytes without U+0000", quote(text), maxPath)
	}
	for _, folder := range kernelFolders {
		if below(folder, text) {
			return "", fmt.Errorf("%s is in %s, where the kernel has all files, expected another folder", quote(text), folder)
		}
	}
	return text, nil
}

// below reports whether a path is that folder or in it.
func below(folder, place string) bool {
	return place == folder || strings.HasPrefix(place, folder+"/")
}

// modes matches a file's mode: in octal, as for chmod.
var modes = &pattern{text: `^(0o?)?[0-7]{3}$`}

// fileMode is a parser for the permissions of a file.
func fileMode(text string) (fs.FileMode, error) {
	if !modes.compiled().MatchString(text) {
		return 0, fmt.Errorf("found %s, expected permissions in octal such as 0644", quote(text))
	}
	bits, err := strconv.ParseUint(text[len(text)-3:], 8, 32)
	return fs.FileMode(bits), err
}

var fileTable = sync.OnceValue(func() *keyTable[File] {
	content := func(m *File) *[]byte { return &m.Content }
	return &keyTable[File]{
		what: "a file", noun: "file", def: "file", exactlyOne: []string{"source", "content"}, initial: File{Mode: 0o644},
		keys: []key[File]{
			one("source", form[[]byte]{schema: textSchema, read: source}, content, "the file to copy; a relative path is from the topology's folder. It is read when the topology is, up to 4 MiB"),
			one("content", made(anyText, func(text string) []byte { return []byte(text) }), content, "or the text itself. One of both is needed"),
			one("mode", single(fileMode, func() schema {
				return anyOf(schema{"type": "integer", "minimum": 0, "maximum": 777}, matching("(?:0o?)?[0-7]{3}"))
			}), func(m *File) *fs.FileMode { return &m.Mode }, "permissions in octal, `0755`").orElse("`0644`"),
		},
	}
})

var fileForm = mapOf(fileTable, itself)

// source returns the content of the file that n names. It is read here, so that what is
// wrong with it is said with a line, and so that a node that is started again has the same.
func source(r *reader, n *yaml.Node) []byte {
	word := anyText.of(r, n)
	if !word.ok {
		return nil
	}
	name := r.path(word.is)
	if content, ok := r.sources[name]; ok {
		return content
	}
	content, _ := r.content(n, name, maxReferred, "content: and the text", "%v")
	if r.sources == nil {
		r.sources = make(map[string][]byte)
	}
	r.sources[name] = content // what is wrong with a file is reported once
	return content
}

// merge is all of two maps, of which the first wins. It is not to be changed.
func merge[T any](first, less map[string]T) map[string]T {
	switch {
	case len(less) == 0:
		return first
	case len(first) == 0:
		return less
	}
	all := maps.Clone(less)
	maps.Copy(all, first)
	return all
}

// setupFits reports whether what all nodes are given, with what these maps of one have, is
// not too much, and the error if it is.
func (r *nodeReader) setupFits(at *yaml.Node, all layers[nodeMap]) bool {
	before := r.setups
	for _, m := range all {
		if m != nil {
			r.setups += m.is.size
		}
	}
	if r.setups > maxSetup && before <= maxSetup {
		r.errorf(at, "what nodes are given, each by itself, takes more than %d bytes (32 MiB) with this one, expected smaller files or fewer entries", maxSetup)
	}
	return r.setups <= maxSetup
}

// completeSetup gives a node its files, and notes what of its setup takes a machine.
func (r *nodeReader) completeSetup(n *nodeMap, all layers[nodeMap]) {
	if len(n.Setup.Exec) > 0 {
		r.need(n.Name, all.find("exec").at, "a node executes commands")
	}
	if n.Setup.Healthcheck != nil {
		r.need(n.Name, all.find("healthcheck").at, "a node has a healthcheck")
	}
	if len(n.Setup.Env) == 0 {
		n.Setup.Env = nil
	}
	for _, f := range n.files {
		n.Setup.Files = append(n.Setup.Files, f.is)
	}
	slices.SortFunc(n.Setup.Files, func(a, b File) int { return cmp.Compare(a.Path, b.Path) })
	for _, f := range n.Setup.Files {
		for folder := path.Dir(f.Path); folder != "/"; folder = path.Dir(folder) {
			if file, ok := n.files[folder]; ok {
				r.errorf(n.files[f.Path].at, "files: %s lies below %s, which is a file (line %d), expected it elsewhere", quote(f.Path), quote(folder), file.at.Line)
			}
		}
	}
}
