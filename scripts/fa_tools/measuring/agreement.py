"""Compares what the emulator counts with what Nsight Compute counts on a GPU, for every kernel.

Without options the committed profiles are compared with the committed counts of the emulator, and the ratios outside
0.95 to 1.05 are printed for each. Every one of them needs an explanation in bench/agreement.json; without one the exit
code is 1. `scripts/fa measure --only profiles --whole` makes new profiles."""

import textwrap

from fa_tools.cards import BOOK, EMULATOR, card_named
from fa_tools.measuring import profile as profiler
from fa_tools.for_readers import limits
from fa_tools.for_readers.limits import RESOURCES
from fa_tools.records import SHAPE, Shape, describe, is_stale, load, order, waiting
from fa_tools.tools import Parser, Refused, read_json, read_named, relative, results_files

EXAMPLE = """examples:
  scripts/fa agree                                              committed profiles against committed counts
  scripts/fa agree --machine H100                               those of another GPU that has results
  scripts/fa agree --from profile.json --counters results/mine.json

Exit code: 0 every difference is explained, 1 one is not, 2 bad arguments or file."""

CLOSE = (0.95, 1.05)  # a ratio outside needs an explanation
LARGE = 2048  # from so many tokens on the busiest resource is compared

LOADS = ("shared load", "ldmatrix", "wmma load")
STORES = ("shared store", "stmatrix", "wmma store")
STORE_INSTRUCTIONS = ("shared store", "wmma store")  # the profiler does not count stmatrix as one
PRODUCTS = {"mma.m16n8k16": 1, "mma.m16n8k8": 1, "wmma.m16n16k16": 2}  # machine instructions for one


def sum_of(count, *kinds):
    return lambda lines, dtype: sum(line.get(count, 0) for line in lines if line["kind"] in kinds)


def is_16_bit(line):
    """Of a wmma load: 16 x 16 elements of 2 bytes for a request. On the GPU that is an LDSM (fp16) or four loads
    through the generic address space (bf16), and the profiler counts neither as an instruction on shared memory."""
    return line["bytes"] == 512 * line["requests"]


def shared_loads(lines, dtype):
    return sum(line["requests"] for line in lines
               if line["kind"] == "shared load" or line["kind"] == "wmma load" and not is_16_bit(line))


def ldmatrix(lines, dtype):
    return sum(line["requests"] for line in lines
               if line["kind"] == "ldmatrix" or dtype == "fp16" and line["kind"] == "wmma load" and is_16_bit(line))


def conflicts(*kinds):
    return lambda lines, dtype: sum(line["wavefronts"] - line["wavefronts_ideal"] for line in lines if line["kind"] in kinds)


def products(lines, dtype):
    return sum(line["requests"] * PRODUCTS[line["kind"]] for line in lines if line["kind"] in PRODUCTS)


def l1_wavefronts(metrics, sms):
    """Of all SMs; a profile without the count has how busy the path was, with its 100 % at one an SM and cycle."""
    if "l1_wavefronts" in metrics:
        return metrics["l1_wavefronts"]
    return round(metrics["shared_wavefronts_percent"] / 100 * metrics["cycles"] * sms)


def mma_instructions(metrics, sms):
    """Those of mma.sync and wmma: the pipe's count holds wgmma's, too."""
    both = [metrics.get(f"tensor_{name}_instructions") for name in ("mma", "wgmma")]
    return None if None in both else both[0] - both[1]


def l1_passes(lines, dtype):
    return sum(line.get("wavefronts", 0) if line["kind"] in limits.SHARED else
               line["cache_lines"] if line["kind"] in limits.GLOBAL else
               limits.Fraction(line["bytes"], limits.WAVEFRONT) if line["kind"] == "wgmma" else
               line["requests"] if line["kind"] == "shuffle" else 0 for line in lines)


# Quantity: (heading, of the emulator's lines, of a launch's metrics: the name of one, or a function).
QUANTITIES = {
    "global_load_requests": ("Global load requests", sum_of("requests", "global load", "cp.async"), "global_load_requests"),
    "global_load_sectors": ("Global load sectors", sum_of("sectors", "global load", "cp.async"), "global_load_sectors"),
    "global_store_requests": ("Global store requests", sum_of("requests", "global store"), "global_store_requests"),
    "global_store_sectors": ("Global store sectors", sum_of("sectors", "global store"), "global_store_sectors"),
    "shared_load_requests": ("Shared load requests", shared_loads, "shared_load_instructions"),
    "shared_store_requests": ("Shared store requests", sum_of("requests", *STORE_INSTRUCTIONS), "shared_store_instructions"),
    "shared_load_wavefronts": ("Shared load wavefronts", sum_of("wavefronts", *LOADS), "shared_load_wavefronts"),
    "shared_store_wavefronts": ("Shared store wavefronts", sum_of("wavefronts", *STORES), "shared_store_wavefronts"),
    "shared_load_conflicts": ("Bank conflicts, loads", conflicts(*LOADS), "shared_load_conflicts"),
    "shared_store_conflicts": ("Bank conflicts, stores", conflicts(*STORES), "shared_store_conflicts"),
    "l1_wavefronts": ("L1 data path", l1_passes, l1_wavefronts),
    "ldmatrix": ("ldmatrix", ldmatrix, "ldmatrix_instructions"),
    "cp_async": ("cp.async", sum_of("requests", "cp.async"), "cp_async_instructions"),
    "matrix_products": ("mma.sync, wmma", products, mma_instructions),
    "wgmma": ("wgmma", sum_of("requests", "wgmma"), "tensor_wgmma_instructions"),
    "tma_load_bytes": ("TMA bytes loaded", sum_of("bytes", "tma load"), "tma_load_bytes"),
    "tma_store_bytes": ("TMA bytes stored", sum_of("bytes", "tma store"), "tma_store_bytes"),
}


PLACE = ("file", "statement", "kind")  # of counts in a record


def scaled_statements(kernel, shape, merged=True):
    """The emulator's counts by statement of a Kernel for this problem: as counted, or scaled, with all heads."""
    heads = shape.batch * shape.heads

    def counts_of(record):
        counted = limits.compiled_statements(record, shape.dtype) if merged else record["statements"]
        share = limits.Fraction(heads, record["batch"] * record["heads"])
        return {tuple(counts.get(key) for key in PLACE): {key: value if key in PLACE else value * share
                                                          for key, value in counts.items()} for counts in counted}

    if shape.seq_len in kernel.records:
        return list(counts_of(kernel.records[shape.seq_len]).values())
    if len(kernel.records) < 2:
        raise Refused(f"has {kernel.name} at one length, not at {shape.seq_len} tokens")
    n1, n2 = sorted(kernel.records)[-2:]
    first, second = counts_of(kernel.records[n1]), counts_of(kernel.records[n2])
    result = []
    for key in {**first, **second}:
        empty = dict(zip(PLACE, key))
        a, b = first.get(key, empty), second.get(key, empty)
        counts = dict(empty)
        for count in {**a, **b}:
            if count not in PLACE:
                counts[count] = limits.scale(a.get(count, 0), n1, b.get(count, 0), n2, shape.seq_len)
        result.append(counts)
    return result


def explanations(kernel, dtype, quantity):
    """Sentences of bench/agreement.json for a ratio outside CLOSE that merged loads do not explain."""
    return [entry["reason"] for entry in read_json(limits.DIFFERENCES)["differences"]
            if kernel in entry["kernels"] and dtype in entry["dtypes"] and quantity in entry["quantities"]]


def is_close(emulator, gpu):
    return emulator == gpu or gpu > 0 and CLOSE[0] <= emulator / gpu <= CLOSE[1]


def compare(kernel, profile):
    """Entries of one kernel: what the emulator and the GPU counted on the profile's problem."""
    shape = Shape(*(profile[field] for field in SHAPE))
    launches = [launch["metrics"] for launch in profile["launches"] if launch["kernel"] == kernel.name]
    sms = limits.machine_named(profile["gpu"])[1]["sm"]["count"]
    source = scaled_statements(kernel, shape, merged=False)
    compiled = scaled_statements(kernel, shape)
    merges = [merge["reason"] for merge in limits.merges_of(kernel.name, shape.dtype).values()]
    for quantity, (_, ours, theirs) in QUANTITIES.items():
        figures = [theirs(metrics, sms) if callable(theirs) else metrics.get(theirs) for metrics in launches]
        if any(figure is None for figure in figures):
            continue
        gpu, emulator, merged = sum(figures), ours(source, shape.dtype), ours(compiled, shape.dtype)
        if not gpu and not emulator:
            continue
        entry = {"kernel": kernel.name, "quantity": quantity, "emulator": whole(emulator), "gpu": gpu}
        if merged != emulator:
            entry["merged"] = whole(merged)
        # The loads that nvcc merges may bring a ratio near to one, and may as well take it away from one.
        if not is_close(emulator, gpu) or not is_close(merged, gpu):
            why = explanations(kernel.name, shape.dtype, quantity)
            if not is_close(emulator, gpu) and merged != emulator and (is_close(merged, gpu) or why):
                why = merges + why
            entry["reasons"] = why
        yield entry


def whole(value):
    return int(value) if value == int(value) else float(value)


def unexplained(entries):
    return [entry for entry in entries if entry.get("reasons") == []]


def heading(entry):
    name = QUANTITIES[entry["quantity"]][0]
    return name if name.startswith(("L1", "TMA")) else name[0].lower() + name[1:]


def ratio(entry):
    """Emulator over GPU: "=" where they are equal."""
    if entry["emulator"] == entry["gpu"]:
        return "="
    if entry["emulator"] >= 10 * entry["gpu"]:
        return ">10"
    return f"{entry['emulator'] / entry['gpu']:.3f}"


def reasons(entries):
    """(kernels, headings of quantities, reason): a reason once for all kernels that have it in the same quantities."""
    found, together = {}, {}
    for entry in entries:
        for reason in entry.get("reasons", []):
            found.setdefault((entry["kernel"], reason), []).append(heading(entry))
    for (kernel, reason), quantities in found.items():
        together.setdefault((reason, tuple(quantities)), []).append(kernel)
    return [(kernels, list(quantities), reason) for (reason, quantities), kernels in together.items()]


def comparison(profiles=None, counters=None, card=BOOK):
    """What the emulator counted beside what the profiler did, in these files or the card's committed: an entry for each profile."""
    # Of head_dim 64 also 256 tokens themselves: kernel 15's tiles of 192 queries do not divide them, so that they cannot be
    # had from other lengths.
    counted = [read_named(path, load) for path in counters or results_files(f"{EMULATOR}/counts.jsonl")]
    parts = []
    for file in profiles or results_files(f"{card}/profile*"):
        data = read_named(file, profiler.read_profile)
        kernels = limits.kernels_of(counted, data["head_dim"])
        changed = {launch["kernel"] for launch in data["launches"] if is_stale(launch)}
        changed |= {name for name, _ in limits.kernels_of(counted, data["head_dim"], stale=True)}
        names = list(dict.fromkeys(launch["kernel"] for launch in data["launches"] if launch["kernel"] not in changed))
        missing = [name for name in names if (name, data["head_dim"]) not in kernels]
        if missing:
            raise Refused(f"{relative(file)} has {missing[0]} with head_dim {data['head_dim']}, "
                          "the emulator's counts have not")
        chosen = [kernels[name, data["head_dim"]] for name in sorted(names, key=order)]
        part = {"file": relative(file), "gpu": data["gpu"], **{field: data[field] for field in SHAPE},
                "counts": [entry for kernel in chosen for entry in compare(kernel, data)]}
        if changed:
            part["changed"] = sorted(changed)
        if data["seq_len"] >= LARGE:
            part["limiters"] = [limiters(kernel, data) for kernel in chosen]
        parts.append(part)
    return parts


# --- Which resource is the busiest ------------------------------------------------------------------------------

# Metrics in percent of the peak, in the order in which they are taken where a profile has them. Issue slots are no
# resource of the bounds, since the emulator does not know the instructions, but the profiler's word counts.
PERCENT = {
    "issue": ("issue_percent", "issue_active_percent"),
    "tensor": ("tensor_percent", "tensor_active_percent"),
    "mufu": ("xu_elapsed_percent", "xu_percent"),
    "fp32": ("fma_percent",),
    "l1": ("shared_wavefronts_percent",),
    "l2": ("l2_percent",),
    "hbm": ("dram_percent",),
}


def busy(profile, kernel, bound):
    """({resource: percent of its peak, by the profiler}, the resources that the profile does not have). Those are
    calculated: from its counts where it has them, else from the emulator's. Over all launches, by their cycles."""
    _, machine = limits.machine_named(profile["gpu"])
    sm = machine["sm"]
    launches = [launch["metrics"] for launch in profile["launches"] if launch["kernel"] == kernel]
    cycles = sum(metrics["cycles"] for metrics in launches)
    seconds = cycles / (sm["clock_mhz"] * 1e6)
    from_counts = {
        "fp32": sum(m["fma_instructions"] for m in launches) * 32 / (sm["fma"] * sm["count"] * cycles),
        "l2": sum(m["l2_sectors"] for m in launches) * 32 / (machine["tb_per_s"]["l2"] * 1e12 * seconds),
        "hbm": sum(m["dram_bytes"] for m in launches) / (machine["tb_per_s"]["hbm"] * 1e12 * seconds),
    }
    percents, calculated = {}, []
    for resource, names in PERCENT.items():
        name = next((name for name in names if all(name in metrics for metrics in launches)), None)
        if name:
            percents[resource] = sum(metrics[name] * metrics["cycles"] for metrics in launches) / cycles
        else:
            percents[resource] = 100 * from_counts.get(resource, bound.seconds[resource] / seconds)
            calculated.append(resource)
    return percents, calculated


def limiters(kernel, profile):
    """One entry: the busiest resource by the profiler, and the first limiter by the emulator's counts."""
    shape = Shape(*(profile[field] for field in SHAPE))
    bound = limits.bound_of(kernel, shape, limits.machine_named(profile["gpu"])[1])
    percents, calculated = busy(profile, kernel.name, bound)
    first = max(percents, key=percents.get)
    return {"kernel": kernel.name, "emulator": limits.first_limiter(bound.seconds), "gpu": first,
            "bound_us": {resource: round(seconds * 1e6, 3) for resource, seconds in bound.seconds.items()},
            "percent": {resource: round(value, 1) for resource, value in percents.items()}, "calculated": calculated}


def called(resource):
    return {**RESOURCES, "issue": "issue"}[resource]


# ---- the command ---------------------------------------------------------------------------------------------------------


def show(part):
    """Lines of at most 100 columns: of each quantity the kernels in which the two counts are not close."""
    shape = Shape(*(part[field] for field in SHAPE))
    yield f"Emulator over {part['gpu']}; {describe(shape)}"
    yield part["file"]
    for quantity, (name, *_) in QUANTITIES.items():
        entries = [entry for entry in part["counts"] if entry["quantity"] == quantity]
        equal = sum(entry["emulator"] == entry["gpu"] for entry in entries)
        others = [f"{entry['kernel'][:2]}\xa0{ratio(entry)}{'*' if entry['reasons'] else '!'}" for entry in entries
                  if not is_close(entry["emulator"], entry["gpu"])]
        close = f"{len(entries) - equal - len(others):>2} within 5 %"
        if entries:
            text = ", ".join([f"{name:<25}{equal:>2} equal, {close}", *others])
            yield from (line.replace("\xa0", " ") for line in textwrap.wrap(text, 100, subsequent_indent=" " * 25))
    for kernels, quantities, reason in reasons(part["counts"]):
        text = f"* {', '.join(kernel[:2] for kernel in kernels)} ({', '.join(quantities)}): {reason}."
        yield from textwrap.wrap(text, 100, subsequent_indent="  ")
    for entry in unexplained(part["counts"]):
        yield (f"! {entry['kernel'][:2]}, {heading(entry)}: {entry['emulator']:,} and {entry['gpu']:,}, "
               "not explained")


def show_limiters(part):
    if "limiters" not in part:
        return
    yield ""
    yield f"{'busiest resource':<23}{'emulator':>10} {'profiler':>10}   percent of its peak, by the profiler"
    for entry in part["limiters"]:
        ours, theirs = called(entry["emulator"]), called(entry["gpu"])
        busiest = sorted(entry["percent"], key=entry["percent"].get, reverse=True)[:3]
        text = ", ".join(f"{called(r)} {entry['percent'][r]:.0f}" + "~" * (r in entry["calculated"])
                         for r in busiest)
        yield f"{entry['kernel']:<23}{ours:>10} {theirs:>10}   {text}"
    same = sum(entry["emulator"] == entry["gpu"] for entry in part["limiters"])
    yield f"The same in {same} of {len(part['limiters'])}. ~ calculated from counts: the profile does not have it."


def main(argv=None):
    parser = Parser("agree", __doc__, EXAMPLE)
    add = parser.add_argument
    add("--from", dest="sources", nargs="+", metavar="PROFILE",
        help="files of scripts/fa profile (default: the committed)")
    add("--machine", default=BOOK, metavar="NAME", help=f"whose committed profiles (default: {BOOK.upper()})")
    add("--counters", nargs="+", metavar="RESULTS",
        help="results of the emulator's checked build (default: the committed)")
    args = parser.parse_args(argv)
    parts = comparison(args.sources, args.counters, card_named(args.machine))
    for i, part in enumerate(parts):
        print("\n" * (i > 0) + "\n".join([*show(part), *show_limiters(part)]))
    for sentence in waiting(kernel for part in parts for kernel in part.get("changed", [])):
        print("", *textwrap.wrap(f"{sentence}.", 100), sep="\n")
    return 1 if any(unexplained(part["counts"]) for part in parts) else 0
