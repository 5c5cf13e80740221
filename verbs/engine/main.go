// Command engine is the adapter as a C library, libndklab-rnic.so. libibverbs.so.1 (verbs/lib) calls it, by engine.h, in
// the process of any program that opens the device. It converts between the structures of the ABI and package verbs,
// names objects by handles, and decides nothing.
//
// It is built with -buildmode=c-shared. The program's own memory is read and written in place. Calls come from
// any of the program's threads. None of them waits for the network, except where engine.h says so.
//
// Start reading at table.c, which lists the functions, then device.go. fork.c decides what becomes of the process's
// descriptors in a child.
package main

/*
void engine_opened(int fd);
*/
import "C"

import "github.com/ndklab/ndklab/internal/provider/descriptor"

func init() { descriptor.Opened = func(fd int) { C.engine_opened(C.int(fd)) } }

func main() {}
