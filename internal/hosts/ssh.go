package hosts

import "fmt"

// sshPlan starts one worker on every host that is named. The assignment goes to its standard input, since sshd takes no variables
// of the environment that it does not know, and arguments are for all users to read.
func (s Spec) sshPlan() plan {
	p := plan{names: s.Names}
	for i, name := range s.Names {
		p.commands = append(p.commands, command{
			what: "host " + name, index: i, input: true, remedy: sshRemedy,
			// Nobody is there to be asked for a password. A connection that others were to share would outlive the worker, and
			// hold its standard error open.
			args: []string{"ssh", "-o", "BatchMode=yes", "-o", "ControlMaster=no", "-T", name, "ndklab", workerCommand},
		})
	}
	return p
}

// sshRemedy returns what can be done about an end of ssh, by its exit status: that of the shell of the host where it finds no
// such command, and that of ssh's own failures (ssh(1)).
func sshRemedy(status int, _ string) string {
	switch status {
	case 127, 126:
		return "install this build of ndklab there, in the PATH of commands by ssh"
	case 255:
		return fmt.Sprintf("`ssh -o BatchMode=yes HOST ndklab %s` has to work without a password", workerCommand)
	}
	return ""
}
