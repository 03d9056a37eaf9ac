"""What was measured besides attention: how fast an SM executes single instructions (bench/rates.cu), matrix products beside
cuBLASLt's (bench/gemm), and experiments whose programs are not kept. Those were variants of a kernel that was being written;
of each only the figures are left, with a sentence on how they were measured: bench/results/*_experiments.json."""

import math
import re

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


# --- Experiments -----------------------------------------------------------------------------------------------

AT = re.compile(r"(tflops|mhz)_(\d+)")  # at that sequence length; the SM clock


def heading(field):
    at = AT.fullmatch(field)
    if at:
        return f"{'TFLOP/s' if at[1] == 'tflops' else 'MHz'}, N = {at[2]}"
    return {"cycles": "Cycles", "instructions": "Instructions of warps", "error": "Relative error",
            "l2_sectors": "Sectors read from L2",
            "spread_median": "Spread between rounds, median, %", "spread_most": "most, %"}.get(field)


def figure(field, value):
    """1,103.6 k cycles, 180.2 M instructions, 651.5 TFLOP/s."""
    if field == "error":
        return f"{value:.1e}".replace("e-0", "e-")
    if field == "cycles" and value >= 10000:
        return f"{value / 1000:,.1f} k".replace(".0 k", " k")
    return f"{value / 1e6:g} M" if field in ("instructions", "l2_sectors") else f"{value:,g}"


def read_experiments(path):
    """The file, each group with its entries; Refused, with one sentence, if it is not a whole one."""
    data = read_json(path)
    if not isinstance(data, dict) or "experiments_version" not in data:
        raise Refused("is not a file of experiments (no experiments_version)")
    if data["experiments_version"] != 2:
        raise Refused(f"has experiments_version {data['experiments_version']}, this reads 2")
    try:
        names = [group["name"] for group in data["groups"]]
        groups = {group["name"]: {**group, "entries": []} for group in data["groups"]}
        for entry in data["entries"]:
            if entry["group"] not in groups:
                raise Refused(f"does not say what {entry['group']} is, the group of {entry['name']}")
            groups[entry["group"]]["entries"].append({field: value for field, value in entry.items() if field != "group"})
        data["groups"] = list(groups.values())
        for group in data["groups"]:
            if not isinstance(group["how"], str):
                raise Refused(f"does not say how {group['name']} was measured")
            for entry in group["entries"]:
                names.append(entry["name"])
                figures = {field: value for field, value in entry.items() if field not in ("name", "what")}
                if not isinstance(entry["what"], str) or not figures:
                    raise Refused(f"has no words or no figures for {entry['name']}")
                for field, value in figures.items():
                    good = isinstance(value, (int, float)) and not isinstance(value, bool)
                    if heading(field) is None or not good or not (math.isfinite(value) and value > 0):
                        raise Refused(f"has {field} = {value!r} of {entry['name']}, which is no figure")
    except (KeyError, TypeError, AttributeError):
        raise Refused("is not a whole file of experiments") from None
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise Refused(f"has the name {twice[0]} twice")
    return data


def records_of(data):
    """The entries as records, whose `kernel` is their name."""
    return [{**entry, "kernel": entry["name"]} for group in data["groups"] for entry in group["entries"]]


def table_of(data, name):
    """Heading and rows of one group's table, and the sentence on how it was measured."""
    group = next((group for group in data["groups"] if group["name"] == name), None)
    if group is None:
        raise Refused(f"has no experiments {name}")
    fields = list(dict.fromkeys(f for entry in group["entries"] for f in entry if f not in ("name", "what")))
    rows = [[entry["what"], *(figure(f, entry[f]) if f in entry else "–" for f in fields)] for entry in group["entries"]]
    return ["", *map(heading, fields)], rows, f"({data['gpu']}; {group['how']}.)"
