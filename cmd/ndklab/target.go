package main

import (
	"context"
	"strings"

	"github.com/ndklab/ndklab/fabric/lab"
)

// target is what LAB or LAB/NODE names; node is "" for the former.
func target(arg string) (labName, node string, err error) {
	labName, node, given := strings.Cut(arg, "/")
	if labName == "" || given && node == "" {
		return "", "", misuse("%q is no lab or node, expected LAB or LAB/NODE", arg)
	}
	return labName, node, nil
}

// openTarget connects to the lab of LAB or LAB/NODE.
func openTarget(ctx context.Context, arg string) (l *lab.Lab, node string, err error) {
	labName, node, err := target(arg)
	if err != nil {
		return nil, "", err
	}
	l, err = lab.Open(ctx, labName)
	return l, node, err
}
