// A program that waits for requests, for scripts that run several programs and libraries in turns.
#pragma once

#include <iosfwd>

#include "common/harness/runner.h"

namespace fa {

// Reads one JSON object a line and answers each with one, until {"op": "quit"} or the end:
//   {"op": "describe"}                        -> {"machine": ..., "kernels": [names]}
//   {"op": "problem", "dtype", "batch", "heads", "seq_len", "head_dim", "inputs", "seed",
//    "flush_l2", "rotating_inputs"; "score_std" and "score_growth" or neither}
//                                             -> {"seconds": to make tensors and reference}
//   {"op": "tensors", the same, "folder"}     -> {"files": [Q, K, V]}: their elements, as they lie
//                                              in memory, in files of that folder; for others
//   {"op": "verify", "kernel"}                -> {"record": as in results files, without times; of
//                                              a ceiling that moves memory "bytes" a launch}
//   {"op": "time", "kernel", "warmup", "iterations", "max_seconds", "idle_ms"}
//                                             -> {"time_ms": ..., "clock_mhz": ..., "power_w": ...}
//   {"op": "quit"}                            -> {}
// and what fails with {"error": "one sentence"}. Of `defaults`, workspace_limit counts. Returns the
// program's exit code: 0, or 3 after an error that lost the GPU.
int serve(std::istream& requests, std::ostream& answers, const Protocol& defaults);

}  // namespace fa
