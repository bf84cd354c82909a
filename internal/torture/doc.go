// Package torture tries to break the handover: real servers, several real
// `holdover serve` processes, real buyers over HTTP, and schedules of faults and
// flips that follow from a seed.
//
// # Usage
//
//	report, err := torture.Run(ctx, torture.Config{Schedules: 100, Seed: 1, Program: "bin/holdover"})
//
// # Guarantees
//
// A schedule is drawn from its seed alone: [Draw]. It has one fault and the
// operator's steps around it, which is what the product promises to survive (G1).
// Losing the truth's own writes is outside (G5): such a schedule passes only if
// the loss was seen and named.
//
// The truth is counted from what buyers were told, by internal/workload's
// auditor, and from SQL and Redis commands of this package, past every proxy. The
// product's counters are never asked. The waits for a quiet pod do ask an
// instance what is left in its memory, and the journal and the marks themselves.
//
// What it can't see: real time. The same seed draws the same schedule and the
// same intentions of buyers, and the machine decides how they interleave; a
// failure may need several replays.
//
// # Concurrency
//
// Run owns everything it starts, and returns when all of it has ended.
//
// # Failure
//
// An error means that the campaign's own means failed (a server does not start).
// A broken promise is no error: it is in the report.
//
// # Testing
//
// Each counter is made to fire by planted faults, and each protection that
// internal/mutants can switch off must be missed within the schedules aimed at it.
package torture
