"""scripts/fa measure --mine: the ladder on a reader's own card, whichever it is. What it can run is measured, what it cannot is
named with the program's reason, and both are shown beside the book's card, each as a share of its own peak."""

import subprocess
import sys
import textwrap
import time

from fa_tools.cards import BOOK, card_of, file_named
from fa_tools.for_readers.limits import machine_of
from fa_tools.numbers import short
from fa_tools.records import is_stale, kind, load, order, passed
from fa_tools.sources import includes
from fa_tools.tools import ROOT, Refused, fail, make_folder, read_json, relative, set_up, write_json

LENGTHS = (512, 1024, 2048, 4096)
HOW = ("--max-seconds", "0.1", "--rest-ms", "20")
LIMIT = 420  # seconds after which no further length begins; the last one takes about as long as all before it


class Failed(Refused):
    code = 3


def build(folder):
    """The program attention, which is built for the GPU present if it is not there."""
    program = folder / "bin" / "attention"
    if not program.exists() and folder == ROOT / "build" / "cuda":
        print("building the kernels for this GPU, which takes minutes ...", file=sys.stderr, flush=True)
        set_up("""
            detect_gpu || die 3 "no NVIDIA GPU answers through nvidia-smi; scripts/run.sh runs the kernels on the emulator"
            choose_backend cuda auto 0
            ensure_packages run "$BACKEND"
            configure_cuda
            build cuda attention""")
    if not program.exists():
        fail(f"{relative(program)} is not built", 4)
    return program


def commit():
    """Which version of the repository it is, for whoever reads the file."""
    done = subprocess.run(["git", "-C", str(ROOT), "describe", "--always", "--exclude=*", "--dirty=, changed"], capture_output=True, text=True, check=False)
    return f"commit {done.stdout.strip()}" if done.returncode == 0 else "not in a checkout of Git"


def run(program, kernels, dtype, head_dim, seq_len, folder):
    """The results of these kernels, or of all, at one length. Failed if there are none."""
    file = folder / "part.json"
    file.unlink(missing_ok=True)
    command = [str(program), *kernels, "--dtype", dtype, "--head-dim", str(head_dim), "--seq-len", str(seq_len), *HOW, "--json", str(file)]
    live = sys.stderr.isatty()  # there the program says which kernel it is at
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=None if live else subprocess.PIPE, text=True, cwd=ROOT, check=False)
    if not file.exists():
        said = (done.stderr or "").strip().split("\n")[-1].removeprefix("error: ")
        raise Failed(f"{relative(program)} ended with {done.returncode} at {seq_len:,} tokens" + f": {said}" * bool(said))
    data = read_json(file)
    file.unlink()
    return data


def too_large(records):
    """Kernels whose tiles do not fit into a CTA's shared memory; with a head_dim of 64 they are smaller."""
    return sorted({record["kernel"] for record in records if record["status"] == "skipped" and "shared memory" in record["reason"]})


def measured(program, folder):
    """(file, its results, exit code): all lengths as one file, which is written after each."""
    began, whole, file, dtype = time.monotonic(), None, None, "bf16"
    wanted = [(128, seq_len) for seq_len in LENGTHS]
    for i, (head_dim, seq_len) in enumerate(wanted):
        spent = time.monotonic() - began
        if i and spent > LIMIT:
            left = [f"{n:,} tokens of head_dim {d}" for d, n in wanted[i:]]
            print(f"{spent:.0f} s are over, so {', '.join(left)} are left out.", file=sys.stderr)
            break
        print(f"[{i + 1}/{len(wanted)}] {seq_len:,} tokens, head_dim {head_dim}; {spent:.0f} s so far ...", file=sys.stderr, flush=True)
        kernels = too_large(whole["records"]) if head_dim == 64 else []
        try:
            data = run(program, kernels, dtype, head_dim, seq_len, folder)
            if whole is None and float(data["machine"]["compute_capability"]) < 8:  # whose Tensor Cores have no bf16
                dtype = "fp16"
                data = run(program, kernels, dtype, head_dim, seq_len, folder)
        except Failed as problem:
            if whole is None:
                raise
            print(f"error: {problem}", file=sys.stderr)
            return file, whole, 3
        if whole is None:
            file = folder / f"{card_of(data['machine']['gpu'])}.json"
            whole = {**data, "notes": [commit()], "command": ["measure", "--mine"]}
        else:
            whole["records"] += data["records"]
        write_json(file, whole)
        if len(wanted) == i + 1 and head_dim == 128 and too_large(whole["records"]):
            wanted += [(64, seq_len) for seq_len in LENGTHS]
    statuses = {record["status"] for record in whole["records"]}
    return file, whole, 3 if "error" in statuses else 1 if "wrong" in statuses else 0


# --- What is shown ---------------------------------------------------------------------------------------------


def uses_tensor_cores(kernel):
    path = ROOT / "kernels" / f"{kernel}.cu"
    return not path.exists() or not {f"common/ptx/{name}.h" for name in ("wmma", "mma", "wgmma")}.isdisjoint(includes(path))


def percent(share):
    return f"{short(100 * share)} %"


def ours(dtype, head_dim):
    """The file of the book's card."""
    return file_named(f"{BOOK}:{dtype}_d{head_dim}") or file_named(f"{BOOK}:ladder/{dtype}_d{head_dim}")


def speeds(data, head_dim):
    """{kernel: {tokens: TFLOP/s}}"""
    found = {}
    for record in data["records"]:
        if kind(record["kernel"]) == "kernel" and passed(record) and record["head_dim"] == head_dim:
            found.setdefault(record["kernel"], {})[record["seq_len"]] = record["tflops"]
    return found


def table(data, other, head_dim):
    """Lines of at most 100 columns: TFLOP/s, and shares of the peak at the longest length, beside another card's."""
    mine, theirs = speeds(data, head_dim), speeds(other, head_dim)
    lengths = sorted({n for found in mine.values() for n in found})
    gpus = [each["machine"]["gpu"] for each in (data, other)]
    peaks = [machine_of(gpu) for gpu in gpus]
    name = card_of(gpus[1]).upper()

    def share(found, peak):
        at = found.get(lengths[-1])
        return percent(at / peak["tflops"]["tensor"]) if at and peak else "-"
    yield "TFLOP/s at so many tokens".ljust(26) + "".join(f"{n:>9,}" for n in lengths) + f"{'of peak':>11}{name + ' of its peak':>22}"
    for kernel in sorted(mine, key=order):
        cells = "".join(f"{short(mine[kernel][n]) if n in mine[kernel] else '-':>9}" for n in lengths)
        yield f"{kernel:<26}{cells}{share(mine[kernel], peaks[0]):>11}{share(theirs.get(kernel, {}), peaks[1]):>22}"
    yield ""
    if peaks[0] is None:
        yield f"bench/machines.json does not know {gpus[0]}, so there is no share of its peak."
        return
    yield (f"Peak: what the data sheet says of Tensor Cores, {peaks[0]['tflops']['tensor']:g} TFLOP/s here, "
           f"{peaks[1]['tflops']['tensor']:g} on the {name}.")
    slow = [kernel for kernel in mine if not uses_tensor_cores(kernel) and lengths[-1] in mine[kernel]]
    if slow:
        best = max(slow, key=lambda kernel: mine[kernel][lengths[-1]])
        cores = peaks[0]["tflops"]["fp32"]
        yield (f"{', '.join(kernel[:2] for kernel in sorted(slow))} use{'s' * (len(slow) == 1)} CUDA cores, whose peak is {cores:g} TFLOP/s: "
               f"{best} has {percent(mine[best][lengths[-1]] / cores)} of that.")


def not_run(data):
    """One line for each kernel and reason of the program's that it has no time; where it has one elsewhere, with the place."""
    ran = {record["kernel"] for record in data["records"] if passed(record)}
    said = {}
    for record in data["records"]:
        if not passed(record):
            why = "" if record["status"] == "skipped" else f"{record['status']}: "
            said.setdefault((record["kernel"], f"{why}{record['reason']}"), {}).setdefault(record["head_dim"], set()).add(record["seq_len"])
    for (kernel, why), places in sorted(said.items()):
        where = [f"head_dim {dim}" + (f" and {', '.join(f'{n:,}' for n in sorted(lengths))} tokens" if len(lengths) < len(LENGTHS) else "")
                 for dim, lengths in sorted(places.items())]
        place = f"with {'; '.join(where)}: " if kernel in ran else ""
        yield textwrap.fill(place + why, 100, initial_indent=f"  {kernel:<24}", subsequent_indent=" " * 26)


def draw(file, head_dim, other):
    sys.stdout.flush()
    subprocess.run([sys.executable, "-B", str(ROOT / "scripts" / "fa"), "chart", str(file), "--head-dim", str(head_dim),
                    "--beside", f"{ROOT}/{other}"], check=False)


def main(build_folder, folder):
    program = build(build_folder)
    file, data, code = measured(program, make_folder(folder))
    machine, dtype = data["machine"], data["records"][0]["dtype"]
    print(f"\n{machine['gpu']}: compute capability {machine['compute_capability']}, {machine['sm_count']} SMs, driver {machine['driver']}")
    some = [head_dim for head_dim in (128, 64) if speeds(data, head_dim)]
    for head_dim in some:
        print(f"\n{dtype}, head_dim {head_dim}\n")
        print("\n".join(table(data, load(f"{ROOT}/{ours(dtype, head_dim)}", quiet=True), head_dim)))
    if left := list(not_run(data)):
        print("\nNot measured:\n" + "\n".join(left))
    if not some:
        print("\nNone of the kernels runs on this GPU.")
    if changed := sorted({record["kernel"] for record in data["records"] if is_stale(record)}):
        print("\n" + textwrap.fill(f"{relative(program)} was built of other sources than today's ({', '.join(changed)}): "
                                   "cmake --build --preset cuda builds it again", 100))
    print(f"\nResults: {relative(file)} (docs/your_card.md says how to send them)")
    if some:
        draw(file, some[0], ours(dtype, some[0]))
    return code
