package main

import (
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/ndklab/ndklab/internal/fabric/report/words"
	"github.com/ndklab/ndklab/internal/hosts"
	"github.com/ndklab/ndklab/internal/hosts/manifest"
	"github.com/ndklab/ndklab/internal/topology/parts"
	"github.com/ndklab/ndklab/topology"
	"github.com/spf13/cobra"
)

func generateKubernetesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "kubernetes [FILE|-] --hosts N --image IMAGE [--name NAME] [--namespace NAMESPACE] [-w FILE]",
		Short: "A manifest by which Kubernetes runs a lab over several hosts",
		Long: `Writes a manifest that has Kubernetes run the lab of a topology file over N hosts: an
Indexed Job with a pod on each, the Service by which the pods find each other, a
NetworkPolicy that keeps others away, and a ConfigMap with the file. The pod of index 0
prints the report, and the Job completes if the run passes. The manifest has comments,
and is to be edited; the same file and flags give the same text. The key by which pods
know each other is no part of it: a comment has the command that makes it.

The image has ndklab in its PATH, and whatever programs the nodes are to run. Pods have
the capabilities SYS_ADMIN, NET_ADMIN and NET_RAW, and are not privileged. Variables of
the environment that the file has are in the manifest with their present values.

` + fileHelp,
		Example: `  ndklab generate kubernetes big.ndklab.yaml --hosts 8 --image example/ndklab:1
  ndklab generate kubernetes big.ndklab.yaml --hosts 8 --image example/ndklab:1 -w big.yaml
  ndklab generate kubernetes - --hosts 2 --image ndklab --namespace labs <big.ndklab.yaml`,
		Args: arguments(0, 1, "one file"),
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	order := manifest.Order{}
	flags.IntVar(&order.Hosts, "hosts", 0, "number `N` of hosts, each with one pod")
	flags.StringVar(&order.Image, "image", "", "`IMAGE` of the pods' container, which has ndklab")
	files := new(fileFlags)
	files.addName(cmd)
	flags.StringVar(&order.Namespace, "namespace", "", "`NAMESPACE` of all that is made; without it that of kubectl")
	file := flags.StringP("write", "w", "", "write to this `FILE`, which must not exist yet")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case order.Hosts < 1 || order.Hosts > hosts.MaxHosts:
			return misuse("--hosts: %d is out of range, expected 1 to %d", order.Hosts, hosts.MaxHosts)
		case order.Image == "" || strings.ContainsFunc(order.Image, func(r rune) bool { return r <= ' ' || r > '~' }):
			return misuse("--image: %q is no image, expected such as registry.example/ndklab:1", order.Image)
		}
		if order.Namespace != "" {
			if err := topology.CheckName(order.Namespace); err != nil {
				return misuse("--namespace: %w", err)
			}
		}
		name, err := fileArgument(cmd, args, "one file")
		if err != nil {
			return err
		}
		text, err := readText(cmd.Context(), name)
		if err != nil {
			return err
		}
		t, err := files.parse(cmd, text, nil)
		if err != nil {
			return err
		}
		if err := placeable(t, order.Hosts); err != nil {
			return err
		}
		for source := range text.sources {
			return misuse("%s names the file %s, and the ConfigMap has one alone, expected a file that names no others", name, source)
		}
		order.Name, order.File, order.Variables = t.Name, string(text.data), slices.Sorted(slices.Values(text.variables))
		line := []string{"ndklab", "generate", "kubernetes", name, "--hosts", strconv.Itoa(order.Hosts), "--image", order.Image}
		if files.name != "" {
			order.Arguments = []string{"--name", files.name}
			line = append(line, order.Arguments...)
		}
		if order.Namespace != "" {
			line = append(line, "--namespace", order.Namespace)
		}
		order.Command = words.CommandLine(line)
		if err := order.Check(); err != nil {
			return misuse("%s: %w", name, err)
		}
		if *file != "" {
			return writeNew(*file, order.Generate())
		}
		_, err = io.WriteString(cmd.OutOrStdout(), order.Generate())
		return written(err)
	}
	return cmd
}

// placeable reports what keeps a lab from being laid over the pods of a Job, whose hosts are JOB-0 and so on.
func placeable(t *topology.Topology, count int) error {
	on := parts.Alike(count)
	for i := range on {
		on[i].Name = t.Name + "-" + strconv.Itoa(i)
	}
	_, err := parts.Plan(t, on, parts.UsualApart)
	if list := (topology.ErrorList)(nil); err != nil && !errors.As(err, &list) { // it has no one place
		return misuse("%v", err)
	}
	return err
}
