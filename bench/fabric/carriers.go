package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/frame"
	"github.com/ndklab/ndklab/internal/fabric/lab/link"
	"github.com/ndklab/ndklab/internal/fabric/linkem"
	"github.com/ndklab/ndklab/topology"
	"golang.org/x/sys/unix"
)

func init() {
	programs["engine"] = func([]string) error { return linkem.Main(os.NewFile(3, "control"), 1) }
	programs["forward"] = forward
}

// A carrier takes a rig's packets from one middle to the other until it is ended.
type carrier func(context.Context, *rig) (end func() error, err error)

// byKernel has the kernel redirect, as on a plain link.
func byKernel(_ context.Context, r *rig) (func() error, error) {
	return func() error { return r.network.Part(0) }, r.network.Join(0)
}

// byEngine has linkem carry them, in the way that is asked for.
func byEngine(seed uint64, there topology.Impairment) carrier {
	return func(ctx context.Context, r *rig) (func() error, error) {
		conn, theirs, err := control.Pair(nil)
		if err != nil {
			return nil, err
		}
		defer theirs.Close()
		cmd := exec.CommandContext(ctx, self, programArg, "engine")
		cmd.Stderr = os.Stderr
		cmd.ExtraFiles = []*os.File{theirs}
		if err := cmd.Start(); err != nil {
			conn.Close()
			return nil, err
		}
		end := func() error {
			conn.Close() // which ends the process
			return cmd.Wait()
		}
		engine, name := linkem.NewEngine(conn), "a:"+iface
		err = engine.Attach(ctx, linkem.Link{
			Name: name, Seed: seed, Interfaces: [2]string{link.Middle(0, 0), link.Middle(0, 1)},
			Directions: [2]topology.Impairment{there, {}},
		})
		if err == nil {
			err = engine.Start(ctx, name)
		}
		if err != nil {
			return nil, errors.Join(err, end())
		}
		return end, nil
	}
}

// byForwarder has a program carry them that does nothing else.
func byForwarder(ctx context.Context, r *rig) (func() error, error) {
	here := place(func(ctx context.Context, args []string, stdin, stdout, stderr *os.File) error {
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, stderr
		if err := cmd.Run(); err != nil && ctx.Err() == nil {
			return err
		}
		return nil
	})
	program, err := here.start(ctx, "forward", link.Middle(0, 0), link.Middle(0, 1))
	if err != nil {
		return nil, err
	}
	return func() error { program.stop(); return nil }, program.ready()
}

// Of the forwarder: frames received at once, and buffers to ask for in bytes. They
// are the engine's.
const (
	forwardBatch  = 8
	forwardBuffer = 32 << 20
	forwardSend   = 8 << 20
)

// forward FROM TO is the least that a process can do to carry frames between two
// interfaces: it waits for some, and sends each at the other one. Its priority is
// that of any program: with the engine's it would carry a quarter less, since it
// would take the processor from the sender for every frame.
func forward(args []string) error {
	var fds [2]int
	poll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return err
	}
	for i, name := range args {
		if fds[i], err = frame.Open(name, false, forwardBuffer); err != nil {
			return err
		}
		if err := unix.SetsockoptInt(fds[i], unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1); err != nil {
			return err
		}
		if unix.SetsockoptInt(fds[i], unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, forwardSend) != nil {
			// Without privilege there is less.
			_ = unix.SetsockoptInt(fds[i], unix.SOL_SOCKET, unix.SO_SNDBUF, forwardSend)
		}
		if err := unix.EpollCtl(poll, unix.EPOLL_CTL_ADD, fds[i], &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(i)}); err != nil {
			return err
		}
	}
	buffers := make([][]byte, forwardBatch)
	for i := range buffers {
		buffers[i] = make([]byte, frame.MaxLen)
	}
	receiver := frame.NewReceiver(buffers)
	fmt.Println("ready")
	var events [2]unix.EpollEvent
	for {
		n, err := unix.EpollWait(poll, events[:], -1)
		if err != nil && err != unix.EINTR {
			return err
		}
		for _, e := range events[:max(0, n)] {
			got, err := receiver.Receive(fds[e.Fd])
			if err != nil && err != unix.EAGAIN {
				return err
			}
			for i := range got {
				// A frame that the kernel has no room for is lost, as on a wire.
				_, _ = unix.Write(fds[1-e.Fd], receiver.Frame(i))
			}
		}
	}
}
