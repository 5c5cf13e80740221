// Package programs tests labs with programs for RDMA that nobody here wrote, as Linux
// distributions ship them: both ends of each run in nodes of a lab, over libibverbs and
// librdmacm.
//
// Each test has a table of programs, a file for each of their packages: the commands of the
// server and of the client, and what must hold of what they print. All of it runs as this user
// and, if that is root, once more as an ordinary one. A program that is not installed is
// skipped, or fails with NDKLAB_REQUIRED=1 in the environment; so do all where the
// libraries cannot be built, which are those of this tree unless NDKLAB_LIBRARIES names a
// folder of others. With NDKLAB_PROGRAMS=all the tables are longer, and with -short shorter, as
// they are for the ordinary user.
// Programs that distributions have as sources alone are tried where a variable names a folder with them.
//
// Start reading at table_test.go; the tables are beside it.
package programs
