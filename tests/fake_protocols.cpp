// In place of bench/protocols.json: a problem that the fake GPU's kernels can do.
#include "common/cli/protocols.h"

namespace fa {

const char* protocols_json() {
  return R"({"protocols": {"quick": {"description": "Small.", "source": "None.",
    "problems": [{"dtype": "bf16", "head_dim": 64, "heads": 1, "batch": 1, "seq_len": 128},
                 {"dtype": "fp16", "head_dim": 64, "heads": 1, "batch": 1, "seq_len": 128}],
    "warmup": 1, "iterations": 4, "rounds": 3, "max_seconds": 1, "flush_l2": true,
    "rotating_inputs": 2, "rest_ms": 0.25, "load_seconds": 0,
    "tflops_convention": "4*B*H*N^2*D"}}})";
}

}  // namespace fa
