// Package descriptor tells of the sockets that are a device's in this process: a child of a fork has them, too, and is to
// close them, or what the process has of the device would not end with it. The process's part of the adapter ends with
// its connection to the adapter's owner, and its ports are free when its sockets are closed.
//
// Programs that are executed do not have them: all are opened with close-on-exec. It is for processes that go on in
// a fork, as those do in which a C program calls us.
package descriptor

// Opened, unless it is nil, is called with each socket that is opened and stays open. It is set before there is a device.
// Nobody is told when a socket is closed: its number may be another's then.
var Opened func(fd int)

// Note tells of a socket.
func Note(fd int) {
	if Opened != nil {
		Opened(fd)
	}
}
