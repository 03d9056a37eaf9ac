"""Whether libraries run as fast here as they did outside of this harness (bench/baselines.json)."""

from fa_tools.records import REST
from fa_tools.tools import ROOT, or_fail, read_json


def expected(baseline, record):
    """(what the baseline says of this record, what the record has), or None if it is about something else."""
    if record["kernel"] != baseline["kernel"] or record["status"] != "passed" or "score_std" in record:
        return None
    has = {**record, "tokens": record["batch"] * record["seq_len"]}
    own = [name for name in ("dtype", "tokens", "heads", "head_dim") if name in baseline]
    # What a baseline does not say of the mask, the heads of keys and the lengths, there was not.
    if any(baseline.get(name) != has.get(name) for name in [*own, *REST]):
        return None
    unit = "tflops" if "tflops" in baseline else "gbytes_per_s"
    value = baseline[unit]
    if isinstance(value, dict):
        value = value.get(str(record["seq_len"]))
    return None if value is None or unit not in record else (value, record[unit])


def compare(machine, settings, records):
    """(a line for every library with a baseline on this GPU, those of them that are further off than they may)."""
    if settings["flush_l2"]:
        return [], []  # the baselines are of other conditions
    with or_fail("bench/baselines.json"):
        data = read_json(ROOT / "bench" / "baselines.json")
    found = {}  # kernel: [(deviation, record, baseline, measured)]
    for record in records:
        for baseline in data["machines"].get(machine["gpu"], []):
            pair = expected(baseline, record)
            if pair:
                found.setdefault(record["kernel"], []).append((pair[1] / pair[0] - 1, record, *pair))
    lines, apart = [], []
    for kernel, each in sorted(found.items()):
        deviation, record, baseline, measured = max(each, key=lambda one: abs(one[0]))
        unit = "TFLOP/s" if "tflops" in record else "GB/s"
        line = (f"{kernel}: {'within' if abs(deviation) <= data['tolerance'] else 'not within'} "
                f"{100 * data['tolerance']:g} % of bench/baselines.json; furthest {100 * deviation:+.1f} % at "
                f"seq_len {record['seq_len']} ({measured:.0f} {unit}, there {baseline:g}).")
        lines.append(line)
        apart += [line] if abs(deviation) > data["tolerance"] else []
    return lines, apart
