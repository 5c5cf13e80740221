// Package acceptance compares simulated fabrics with what others have published: the table of
// docs/spec/congestion.md d, row by row. The whole path is there: topology files, adapters with their
// transport and congestion control, switches with a shared buffer.
//
// `make congestion` prints the table; `make test` runs its short form. Rows 1 and 14 are about one part
// alone, whose tests have them: packages congestion and mmu.
//
// Start reading at TestTable. Package ns3 has the reference's runs.
package acceptance
