// Measuring kernels and other libraries in one process: the shared library fa_bench, which
// scripts/fa bench loads. Texts are UTF-8 and end with 0; one thread at a time.
#pragma once

#define FA_BENCH_API __attribute__((visibility("default")))

extern "C" {

// What a library that is not part of this one is asked to do with its attention of the set of
// inputs q, k, v (device pointers to tensors as Problem of common/launch/problem.h says), on
// `stream`, a cudaStream_t.
enum FaBenchTask {
  kFaBenchLaunch,   // compute it, wherever the output may be; o is where it may be
  kFaBenchOutput,   // write where the output of the latest launch is to *o, an FaBenchOutput
  kFaBenchPrepare,  // of a peer in FP8: round the inputs, by whatever rule it has. No part of times
};

// Strides in elements, between sequences (0 if they are packed), heads and rows. The head_dim
// elements of a row are neighbours.
struct FaBenchOutput {
  void* data;
  long long block_stride, head_stride, row_stride;
};

// Returns 0, 1 if the library does not take the problem, or 2 if it failed, with one sentence in
// `sentence`, which has room for `capacity` bytes. Launches are captured into a CUDA graph: it must
// not wait for the GPU.
typedef int (*FaBenchPeer)(int task, const void* q, const void* k, const void* v, void* o,
                           void* stream, char* sentence, int capacity);

// Adds a peer to the kernels of this library. `json`: {"kernel": "peer/fa2", "library": {"name",
// "version", "implementation"}, "fp8": true where it takes problems in FP8, and no others}. Returns
// null, or one sentence that is valid until the next call.
FA_BENCH_API const char* fa_bench_add(const char* json, FaBenchPeer peer);

// Told what is measured, and how many of how many steps are done. Returns 0 to go on; anything else
// ends the request.
typedef int (*FaBenchSay)(const char* what, int done, int steps);

// Answers a request, one JSON object, with another one, valid until the next call:
//   {"op": "describe"}                   -> {"machine": ..., "kernels": [names],
//                                            "gradients": [names of kernels of gradients]}
//   {"op": "measure", "kernels": [names], "dtype", "batch", "heads", "seq_len", "head_dim",
//    "inputs", "seed", "warmup", "iterations", "rounds", "max_seconds", "rest_ms", "load_seconds",
//    "flush_l2", "rotating_inputs"; "in_a_row" where it is not 1; "score_std" and "score_growth" or
//    neither; "mask", "window" (two numbers), "softcap", "kv_heads", "kv_len", "lengths" and
//    "kv_lengths", where there are any}
//                                        -> {"records": [as in results files], "chosen" in that of
//                                            the kernel that "best" of fa_attention stands for}
//   {"op": "gradients", "kernel", and a problem as above; "gradients": "deterministic" for those}
//                                        -> {"workspace_bytes": that the kernel needs}
//   the same with "workspace_bytes" and "pointers", addresses by name: q, k, v, o, lse, d_o, d_q,
//   d_k, d_v (GradientTensors of common/launch/gradients.h), workspace and stream
//                                        -> launches it: {"source", "registers",
//                                            "shared_memory_bytes", "spill_bytes"}
//   both, where the kernel does not take the problem here
//                                        -> {"refused": one sentence}
//   {"op": "sample"}                     -> {"clock_mhz", "power_w"}: the GPU's now, or null
//   what fails                           -> {"error": one sentence, "lost": whether the GPU is of
//                                            no use to this process any more}
FA_BENCH_API const char* fa_bench_request(const char* json, FaBenchSay say);
}
