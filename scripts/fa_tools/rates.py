"""What the programs of bench/rates and bench/gemm measured: how fast an SM executes single instructions, and matrix products
beside cuBLASLt's."""

import math

from fa_tools.tools import Refused, read_json

# Program: where its entries are, what its machine says, what each entry has, and what an entry may have.
PROGRAMS = {
    "rates": ("instructions", "gpu", {"name": str, "ptx": str, "warps": int, "chains": int, "cycles": float, "work": float, "unit": str,
                                      "latency_cycles": float}, {}),
    "gemm": ("records", "backend", {"kernel": str, "dtype": str, "m": int, "n": int, "k": int, "epilogue": str, "status": str},
             {"tflops": float}),
}


def usable(value, kind):
    """Whether a value is of this kind, and a number positive and finite."""
    if isinstance(value, bool) or not isinstance(value, (int, float) if kind is float else kind):
        return False
    return kind is str or math.isfinite(value) and value > 0


def read_of(program, path):
    """A file of the program. Refused, with one sentence, if it is not a whole one."""
    listed, about, fields, optional = PROGRAMS[program]
    data = read_json(path)
    if not isinstance(data, dict) or f"{program}_version" not in data:
        raise Refused(f"is not a file of the program {program} (no {program}_version)")
    if data[f"{program}_version"] != 1:
        raise Refused(f"has {program}_version {data[f'{program}_version']}, this reads 1")
    machine, entries = data.get("machine"), data.get(listed)
    if not isinstance(machine, dict) or not isinstance(machine.get(about), str) or not isinstance(entries, list):
        raise Refused(f"is not a whole file of the program {program}: machine or {listed} are missing")
    for i, entry in enumerate(entries):
        said = entry if isinstance(entry, dict) else {}
        for field, kind in {**fields, **{field: kind for field, kind in optional.items() if said.get(field) is not None}}.items():
            if not usable(said.get(field), kind):
                raise Refused(f"is not to be used: {listed}[{i}] has {said.get(field)!r} for {field}")
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
