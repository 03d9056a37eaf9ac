"""What bench/rates/rates.cu measured: how fast an SM executes single instructions."""

import math

from fa_tools.tools import Refused, read_json

FIELDS = {"name": str, "ptx": str, "warps": int, "chains": int, "cycles": float, "work": float, "unit": str,
          "latency_cycles": float}


def read_rates(path):
    """A file of the program `rates`. Refused, with one sentence, if it is not a whole one."""
    data = read_json(path)
    if not isinstance(data, dict) or "rates_version" not in data:
        raise Refused("is not a file of the program rates (no rates_version)")
    if data["rates_version"] != 1:
        raise Refused(f"has rates_version {data['rates_version']}, this reads 1")
    machine, instructions = data.get("machine"), data.get("instructions")
    if not isinstance(machine, dict) or not isinstance(machine.get("gpu"), str) or not isinstance(instructions, list):
        raise Refused("is not a whole file of the program rates: machine or instructions are missing")
    for i, entry in enumerate(instructions):
        for field, kind in FIELDS.items():
            value = entry.get(field) if isinstance(entry, dict) else None
            good = isinstance(value, (int, float) if kind is float else kind) and not isinstance(value, bool)
            if not good or kind is not str and not (math.isfinite(value) and value > 0):
                raise Refused(f"is not to be used: instructions[{i}] has {value!r} for {field}")
    return data


def rows_of_rates(data):
    """Heading and rows of a table: an instruction each."""
    heading = ["Instruction", "Cycles of an SM for one", "An SM and cycle", "Cycles until its result can be used", "TFLOP/s"]
    rows = []
    for entry in data["instructions"]:
        per_cycle = f"{entry['work'] / entry['cycles']:,.1f} {entry['unit']}"
        clock = f" at {entry['clock_mhz']:.0f} MHz" if entry.get("clock_mhz") else ""
        speed = f"{entry['tflops']:.0f}{clock}" if "tflops" in entry else ""
        rows.append([f"`{entry['ptx']}`", f"{entry['cycles']:.2f}", per_cycle, f"{entry['latency_cycles']:.1f}", speed])
    return heading, rows
