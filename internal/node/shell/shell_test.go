package shell

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The folder of the program is the last of PATH, whether there is one or not.
func TestWithSelf(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(self)
	for env, want := range map[string]string{"PATH=/bin": "PATH=/bin:" + dir, "PATH=": "PATH=" + dir, "A=b": "A=b PATH=" + dir} {
		if got := strings.Join(WithSelf([]string{env}), " "); got != want {
			t.Errorf("%s: %s, want %s", env, got, want)
		}
	}
}

// The shell is that of the caller, or sh. Its prompt says where it is.
func TestPrompt(t *testing.T) {
	t.Setenv("SHELL", "/bin/dash")
	if Path() != "/bin/dash" {
		t.Error(Path())
	}
	t.Setenv("SHELL", "")
	if Path() != "sh" {
		t.Error(Path())
	}
	if env := WithPrompt([]string{"A=b"}, "lab/a"); len(env) != 3 || env[0] != "A=b" || env[1] != "PS1=[lab/a] # " || !strings.HasPrefix(env[2], "PROMPT_COMMAND=unset PROMPT_COMMAND; ") {
		t.Errorf("%q", env)
	}
}
