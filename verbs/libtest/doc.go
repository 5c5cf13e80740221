// Package libtest tests verbs/lib, the libibverbs.so.1 of nodes, by itself: small C programs in testdata call what it
// exports, as programs do, and find behind it an engine that records what it is asked and answers what they want
// (engine.c). All are compiled with the address and undefined-behaviour sanitizers, and again with the thread sanitizer.
//
// The library's symbols are compared with those of the system's own libibverbs.so.1, and the structures of abi.h with
// those of its headers, where these are installed. The package has nothing but tests.
package libtest
