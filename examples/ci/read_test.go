package ci_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

const (
	actionFile   = root + "/action.yml"
	templateFile = root + "/templates/ndklab/template.yml"
)

// read returns the documents of a file of YAML.
func read(t *testing.T, file string) []*yaml.Node {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all []*yaml.Node
	for decoder := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var document yaml.Node
		if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all = append(all, &document)
	}
}

// decode decodes a document. A key that into lacks is an error if it is strict.
func decode(t *testing.T, document *yaml.Node, strict bool, into any) {
	t.Helper()
	text, err := yaml.Marshal(document)
	if err != nil {
		t.Fatal(err)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(strict)
	if err := decoder.Decode(into); err != nil {
		t.Fatal(err)
	}
}

// An action has the keys that the metadata of composite actions has, as far as action.yml uses them.
type action struct {
	Name, Description string
	Branding          struct{ Icon, Color string }
	Inputs            map[string]struct{ Description, Default string }
	Runs              struct {
		Using string
		Steps []actionStep
	}
}

type actionStep struct {
	Name, If, Shell, Run, Uses string
	Env, With                  map[string]string
}

// expression is one of GitHub's.
var expression = regexp.MustCompile(`\$\{\{ *([a-z]+\.[a-z_]+) *\}\}`)

// evaluate replaces the expressions in a text by their values.
func evaluate(t *testing.T, text string, values map[string]string) string {
	t.Helper()
	return expression.ReplaceAllStringFunc(text, func(found string) string {
		name := expression.FindStringSubmatch(found)[1]
		value, isKnown := values[name]
		if !isKnown {
			t.Fatalf("%s is unknown", found)
		}
		return value
	})
}

// github reads the jobs of github.yml, each step of which is a step of action.yml or another's action.
func github(t *testing.T, inputs map[string]string, all map[string]job) {
	t.Helper()
	var file struct {
		Jobs map[string]struct {
			Steps []struct {
				Uses string
				With map[string]string
			}
		}
	}
	decode(t, read(t, "github.yml")[0], false, &file)
	var a action
	decode(t, read(t, actionFile)[0], true, &a)
	for name, found := range file.Jobs {
		j := job{
			env:     map[string]string{"GITHUB_STEP_SUMMARY": "summary.md", "GITHUB_PATH": "path", "RUNNER_TEMP": "temp"},
			folders: []string{"GITHUB_STEP_SUMMARY", "GITHUB_PATH", "RUNNER_TEMP"},
		}
		for _, s := range found.Steps {
			if !strings.HasPrefix(s.Uses, "ndklab/ndklab@") {
				continue
			}
			values := make(map[string]string)
			for input, described := range a.Inputs {
				values["inputs."+input] = described.Default
			}
			for input, value := range merge(s.With, inputs) {
				if _, isInput := a.Inputs[input]; !isInput {
					t.Fatalf("%s: the action has no input %s", name, input)
				}
				values["inputs."+input] = evaluate(t, value, map[string]string{"matrix.shard": "1"})
			}
			for _, s := range a.Runs.Steps {
				if strings.HasPrefix(s.Uses, "actions/upload-artifact@") && s.If == "always()" {
					j.keeps = append(j.keeps, evaluate(t, s.With["path"], values))
				}
				if s.Run == "" {
					continue
				}
				env := map[string]string{"GITHUB_ACTION_PATH": path(t, root)}
				for variable, value := range s.Env {
					env[variable] = evaluate(t, value, values)
				}
				j.steps = append(j.steps, step{[]string{s.Shell, "-e", "-c"}, s.Run, env, s.If == "always()"})
			}
		}
		all["github/"+name] = j
	}
}

// path returns the absolute path of a file of the repository.
func path(t *testing.T, file string) string {
	t.Helper()
	absolute, err := filepath.Abs(file)
	if err != nil {
		t.Fatal(err)
	}
	return absolute
}

// A header is the first document of a component.
type header struct {
	Spec struct {
		Inputs map[string]struct {
			Description, Type, Default string
			Options                    []string
		}
	}
}

// A component is the second one: jobs, with the keys of GitLab's that template.yml uses.
type component map[string]struct {
	Stage, Image string
	Parallel     int
	Variables    map[string]yaml.Node
	Script       []string
	Artifacts    struct {
		When    string
		Expire  string `yaml:"expire_in"`
		Expose  string `yaml:"expose_as"`
		Paths   []string
		Reports struct{ JUnit string }
	}
}

// block matches a place in which GitLab puts an input.
var block = regexp.MustCompile(`\$\[\[ inputs\.([a-z_]+) \]\]`)

// interpolate puts inputs into the texts of a document, as GitLab does: a text that is nothing but a number's block is a number.
func (h header) interpolate(t *testing.T, n *yaml.Node, values map[string]string) {
	t.Helper()
	if found := block.FindStringSubmatch(n.Value); found != nil && found[0] == n.Value && h.Spec.Inputs[found[1]].Type == "number" {
		n.Tag, n.Style = "!!int", 0
	}
	n.Value = block.ReplaceAllStringFunc(n.Value, func(found string) string {
		value, isKnown := values[block.FindStringSubmatch(found)[1]]
		if !isKnown {
			t.Fatalf("%s is unknown", found)
		}
		return value
	})
	for _, child := range n.Content {
		h.interpolate(t, child, values)
	}
}

// gitlab reads the jobs of gitlab-ci.yml, each of which is template.yml's with inputs. A runner takes bash if the image has it.
func gitlab(t *testing.T, inputs map[string]string, all map[string]job) {
	t.Helper()
	var file struct {
		Include []struct {
			Remote string
			Inputs map[string]string
		}
	}
	decode(t, read(t, "gitlab-ci.yml")[0], false, &file)
	for _, included := range file.Include {
		if _, err := os.Stat(strings.Replace(included.Remote, "https://raw.githubusercontent.com/ndklab/ndklab/main", root, 1)); err != nil {
			t.Fatal(err)
		}
		documents := read(t, templateFile)
		var h header
		decode(t, documents[0], true, &h)
		values := make(map[string]string)
		for input, described := range h.Spec.Inputs {
			values[input] = described.Default
		}
		for input, value := range merge(included.Inputs, inputs) {
			described, isInput := h.Spec.Inputs[input]
			if !isInput {
				t.Fatalf("the component has no input %s", input)
			}
			if _, err := strconv.Atoi(value); err != nil && described.Type == "number" {
				t.Fatalf("the input %s is %s, expected a number", input, value)
			}
			values[input] = value
		}
		h.interpolate(t, documents[1], values)
		var c component
		decode(t, documents[1], true, &c)
		for name, found := range c {
			j := job{
				env:     map[string]string{"CI_PROJECT_DIR": ".", "CI_NODE_INDEX": "1", "CI_NODE_TOTAL": strconv.Itoa(found.Parallel)},
				folders: []string{"CI_PROJECT_DIR"},
			}
			if a := found.Artifacts; a.When == "always" && a.Expose != "" && strings.HasSuffix(a.Paths[0], "/") {
				j.keeps = append(a.Paths, a.Reports.JUnit)
			}
			for variable, node := range found.Variables {
				raw := struct {
					Value  string
					Expand bool
				}{Value: node.Value}
				if node.Kind == yaml.MappingNode {
					decode(t, &node, true, &raw)
				}
				j.env[variable] = raw.Value
			}
			script := strings.Join(found.Script, "\n")
			j.steps = []step{{shell: []string{"bash", "-e", "-o", "pipefail", "-c"}, text: script}}
			all["gitlab/"+name] = j
			j.steps = []step{{shell: []string{"sh", "-e", "-c"}, text: script}}
			all["gitlab without bash/"+name] = j
		}
	}
}

// No input is a part of a shell's text, and GitLab replaces no variables in it.
func TestInputsAreNoCommands(t *testing.T) {
	var a action
	decode(t, read(t, actionFile)[0], true, &a)
	for _, s := range a.Runs.Steps {
		if strings.Contains(s.Run, "${{") {
			t.Errorf("%s: the step %s has an expression in its shell's text", actionFile, s.Name)
		}
		if (s.Run == "") == (s.Uses == "") || (s.Run == "") != (s.Shell == "") {
			t.Errorf("%s: the step %s has run and shell, or uses", actionFile, s.Name)
		}
	}
	documents := read(t, templateFile)
	var h header
	decode(t, documents[0], true, &h)
	var jobs map[string]struct {
		Variables map[string]yaml.Node
		Script    []string
	}
	decode(t, documents[1], false, &jobs)
	for _, found := range jobs {
		for _, line := range found.Script {
			if strings.Contains(line, "$[[") {
				t.Errorf("%s: a line of the script has an input: %s", templateFile, line)
			}
		}
		for variable, node := range found.Variables {
			var raw struct {
				Value  string
				Expand *bool
			}
			if node.Kind == yaml.MappingNode {
				decode(t, &node, true, &raw)
			} else {
				raw.Value = node.Value
			}
			input := h.Spec.Inputs[block.FindStringSubmatch(raw.Value)[1]]
			if free := input.Type != "number" && input.Options == nil; free && (raw.Expand == nil || *raw.Expand) {
				t.Errorf("%s: variables in %s are replaced", templateFile, variable)
			}
		}
	}
}

// The component has the text of both scripts, which the action runs from their files.
func TestComponentHasScripts(t *testing.T) {
	var jobs map[string]struct{ Script []string }
	decode(t, read(t, templateFile)[1], false, &jobs)
	for _, script := range []string{"install.sh", "run.sh"} {
		text, err := os.ReadFile(filepath.Join(filepath.Dir(templateFile), script))
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, j := range jobs {
			for _, line := range j.Script {
				found = found || line == "(\n"+string(text)+")\n"
			}
		}
		if !found {
			t.Errorf("%s has no line that is %s in parentheses: copy it", templateFile, script)
		}
	}
}
