"""What bench/gemm measured: matrix products beside cuBLASLt's."""

import math

from fa_tools.tools import Refused, read_json

FIELDS = {"kernel": str, "dtype": str, "m": int, "n": int, "k": int, "epilogue": str, "status": str}


def read_gemm(path):
    """A file of the program `gemm`. Refused, with one sentence, if it is not a whole one."""
    data = read_json(path)
    if not isinstance(data, dict) or "gemm_version" not in data:
        raise Refused("is not a file of the program gemm (no gemm_version)")
    if data["gemm_version"] != 1:
        raise Refused(f"has gemm_version {data['gemm_version']}, this reads 1")
    machine, records = data.get("machine"), data.get("records")
    if not isinstance(machine, dict) or not isinstance(machine.get("backend"), str) or not isinstance(records, list):
        raise Refused("is not a whole file of the program gemm: machine or records are missing")
    for i, record in enumerate(records):
        for field, kind in FIELDS.items():
            value = record.get(field) if isinstance(record, dict) else None
            if not isinstance(value, kind) or isinstance(value, bool) or kind is int and value <= 0:
                raise Refused(f"is not to be used: records[{i}] has {value!r} for {field}")
        tflops = record.get("tflops")
        if tflops is not None and not (math.isfinite(tflops) and tflops > 0):
            raise Refused(f"is not to be used: records[{i}] has {tflops!r} for tflops")
    return data
