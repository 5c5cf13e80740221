package ucm

import (
	"syscall"
	"testing"
	"time"
)

// templates are commands about the id with a number, that the fuzzer changes.
func templates(id uint32, channel uint32) [][]byte {
	return [][]byte{
		command(cmdCreateID, 4, createID{UID: 9, Response: base, PortSpace: spaceTCP}),
		command(cmdCreateID, 4, createID{UID: 9, Response: base, PortSpace: spaceUDP}),
		command(cmdDestroyID, 4, destroyID{Response: base, ID: id}),
		command(cmdBindIP, 0, bindIP{ID: id, Address: sockaddr6("10.0.0.2:7471")}),
		command(cmdBind, 0, bind{ID: id, Size: 16, Address: storage("0.0.0.0:7471")}),
		command(cmdListen, 0, listen{ID: id}),
		command(cmdResolveIP, 0, resolveIP{ID: id, Destination: sockaddr6("10.0.0.2:7471")}),
		command(cmdResolveAddr, 0, resolveAddr{ID: id, DestinationSize: 16, Destination: storage("10.0.0.2:7471")}),
		command(cmdResolveRoute, 0, resolveRoute{ID: id}),
		command(cmdQueryRoute, 208, query{Response: base, ID: id}),
		command(cmdQuery, 280, query{Response: base, ID: id}),
		command(cmdConnect, 0, connect{ID: id, Param: params(5, "hello")}),
		command(cmdAccept, 0, accept{UID: 9, ID: id, Param: params(6, "welcome")}),
		command(cmdAccept, 0, accept{ID: id}),
		command(cmdReject, 0, reject{ID: id}),
		command(cmdDisconnect, 0, disconnect{id}),
		command(cmdInitQPAttr, 144, initQPAttr{Response: base, ID: id, QPState: qpRTR}),
		command(cmdGetEvent, EventSize, getEvent{base}),
		command(cmdSetOption, 0, setOption{Value: base, ID: id, Name: optionReuse, Length: 4}),
		command(cmdNotify, 0, notify{id, communicationEstablished}),
		command(cmdJoinIPMulticast, 4, joinIPMulticast{Response: base, UID: 9, ID: id, Address: sockaddr6("239.1.1.1:0")}),
		command(cmdJoinMulticast, 4, joinMulticast{Response: base, UID: 9, ID: id, Size: 16, Address: storage("239.1.1.1:0")}),
		command(cmdLeaveMulticast, 4, destroyID{Response: base, ID: id}),
		command(cmdMigrateID, 4, migrateID{Response: base, ID: id, Descriptor: channel}),
	}
}

// FuzzCommands gives two programs commands, some of them damaged, and then wants nothing to be left of it. Of five
// bytes of input, four choose a channel, a command and an id, and what is damaged where.
func FuzzCommands(f *testing.F) {
	f.Add([]byte{1, 0, 0, 0, 0, 1, 4, 4, 0, 0, 1, 5, 4, 0, 0, 0, 0, 0, 0, 0, 0, 6, 3, 0, 0, 0, 8, 3, 0, 0, 0, 11, 3, 0, 0, 1, 17, 0, 0, 0, 1, 12, 5, 0, 0})
	f.Add([]byte{1, 1, 0, 0, 0, 1, 3, 4, 0, 0, 1, 5, 4, 0, 0, 0, 1, 0, 0, 0, 0, 6, 3, 0, 0, 0, 20, 3, 0, 0, 0, 11, 3, 0, 0, 1, 17, 0, 0, 0, 1, 12, 5, 0, 0})
	f.Fuzz(func(t *testing.T, input []byte) {
		w := newWorld(t, 1)
		channels := []*channel{w.client.channel, w.server.channel, w.client.another(), w.server.another()}
		for ; len(input) >= 5 && len(input) < 1000; input = input[5:] {
			c := channels[input[0]%4]
			all := templates(uint32(input[2]%16), uint32(input[3]%16))
			cmd := all[int(input[1])%len(all)]
			if input[4] != 0 {
				cmd[int(input[3])%len(cmd)] ^= input[4]
			}
			if n, err := c.kernel.Command(cmd); err == nil && n != len(cmd) {
				t.Fatalf("took %d of %d bytes", n, len(cmd))
			} else if _, ok := err.(syscall.Errno); err != nil && !ok {
				t.Fatalf("%v is no errno", err)
			}
			w.clock.Run(time.Millisecond)
		}
		for _, c := range channels {
			c.kernel.Close()
		}
		w.end()
	})
}

// FuzzBytes gives a channel anything.
func FuzzBytes(f *testing.F) {
	for _, cmd := range templates(2, 1) {
		f.Add(cmd)
	}
	f.Fuzz(func(t *testing.T, cmd []byte) {
		w := newWorld(t, 1)
		w.client.create(spaceTCP)
		if n, err := w.client.kernel.Command(cmd); err == nil && n != len(cmd) {
			t.Fatalf("took %d of %d bytes", n, len(cmd))
		}
		w.end()
	})
}
