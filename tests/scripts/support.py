"""Shared by the tests of the scripts: results files to work on, checkouts to break, running a script."""

import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent.parent
SCRIPTS = ROOT / "scripts"
sys.dont_write_bytecode = True  # called by hand as well, tests leave nothing beside the modules
sys.path[:0] = [str(SCRIPTS), str(ROOT / "tests")]  # the package fa_tools; test_commands
from fa_tools.records import attended_pairs, flops_of
VENV_PYTHON = ROOT / ".venv" / "bin" / "python"


def seeded_bugs():
    """The rows of tests/broken/facts.json: what each check says of each bug."""
    return json.loads((ROOT / "tests" / "broken" / "facts.json").read_text(encoding="utf-8"))


def normal(name):
    """A Python package's name as the index has it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(requirements):
    """{package: version} of a file in which everything is pinned."""
    lines = [line for line in (ROOT / requirements).read_text().splitlines() if line and not line.startswith("#")]
    return {normal(name): version for name, version in (line.split("==") for line in lines)}


CUDA = {
    "backend": "cuda", "gpu": "NVIDIA H200", "compute_capability": "9.0", "sm_count": 132,
    "memory_bytes": 150_000_000_000, "l2_bytes": 62_914_560, "max_sm_clock_mhz": 1980, "power_limit_w": 700.0,
    "driver": "580.159.04", "cuda_runtime": "13.0", "compiler": "nvcc 13.0.88",
}
EMULATOR = {"backend": "emulator", "checked": True, "cpu_threads": 2, "compiler": "g++ 12.2.0"}
PROTOCOL = {
    "warmup": 32, "iterations": 128, "rest_ms": 0, "load_seconds": 0, "flush_l2": False, "rotating_inputs": 1, "max_seconds": 2.0,
    "inputs": "normal", "seed": 1, "tflops_convention": "4*B*H*N^2*D",
}
ERROR = {"max_abs": 1e-3, "rel": 2e-3, "tolerance": 4e-3, "bound_ratio": 0.5, "checked_rows": 512}


def results(machine, records):
    return {
        "schema_version": 6, "created": "2026-11-21T10:00:00Z", "command": ["attention", "02"],
        "machine": dict(machine), "protocol": dict(PROTOCOL), "records": records,
    }


def cuda_record(kernel="02_online_softmax", tflops=10.0, seq_len=1024, **changes):
    batch, heads, head_dim = 16384 // seq_len, 16, 128
    ms = 4 * batch * heads * seq_len**2 * head_dim / tflops / 1e9
    record = {
        "kernel": kernel, "dtype": "bf16", "batch": batch, "heads": heads, "seq_len": seq_len, "head_dim": head_dim,
        "status": "passed", "error": dict(ERROR),
        "time_ms": {"median": ms, "p10": ms * 0.99, "p90": ms * 1.01, "min": ms * 0.98, "launches": 128},
        "tflops": tflops, "registers": 64, "shared_memory_bytes": 49152, "spill_bytes": 0, "workspace_bytes": 0,
    }
    record.update(changes)
    return record


def beyond(record, tflops=None, **fields):
    """The record of another problem, with a mask, fewer heads of keys or other lengths, at this speed or the same; of a kernel
    that takes it."""
    more = {**record, "kernel": re.sub(r"^\d\d_", "beyond/", record["kernel"]), **fields}
    more["attended_pairs"] = attended_pairs(more)
    if "time_ms" in more:
        more["tflops"] = tflops or more["tflops"]
        times = flops_of(more) / more["tflops"] * 1e-9 / more["time_ms"]["median"]
        more["time_ms"] = {name: ms if name == "launches" else ms * times for name, ms in more["time_ms"].items()}
    return more


def not_passed(record, status, reason):
    """The same record without what only a passed one has."""
    gone = {"time_ms", "tflops", "counters"} | ({"error"} if status != "wrong" else set())
    return {**{k: v for k, v in record.items() if k not in gone}, "status": status, "reason": reason}


def emulator_record(kernel="02_online_softmax", sectors=73_728, wavefronts=956_416):
    return {
        "kernel": kernel, "dtype": "bf16", "batch": 1, "heads": 2, "seq_len": 256, "head_dim": 128,
        "status": "passed", "error": dict(ERROR), "shared_memory_bytes": 49152, "workspace_bytes": 0,
        "counters": {"barriers": 64, "shuffles": 6400, "exp2": 131_072, "global_requests": sectors // 4,
                     "global_sectors": sectors, "shared_wavefronts": wavefronts},
    }


def cuda_results():
    return results(CUDA, [
        cuda_record("01_naive", 2.5),
        cuda_record("02_online_softmax", 10.0),
        cuda_record("02_online_softmax", 12.0, seq_len=2048),
        not_passed(cuda_record("03_register_tiling"), "wrong", "head 3, row 17: too large"),
        not_passed(cuda_record("11_wgmma"), "skipped", "needs compute capability 9.0"),
        cuda_record("peer/fa2", 300.0),
    ])


def with_rounds(record, ms, peer_ms=None):
    """The record as the median of rounds; with the rounds of peer/fa2 a kernel has its ratio to it."""
    flops = 4 * record["batch"] * record["heads"] * record["seq_len"] ** 2 * record["head_dim"]
    median = statistics.median(ms)
    time = {"median": median, "p10": median * 0.99, "p90": median * 1.01, "min": median * 0.98, "launches": 128}
    record = {**record, "time_ms": time, "tflops": flops / median * 1e-9, "round_ms": ms}
    if peer_ms:
        record["ratio"] = {"peer/fa2": statistics.median(p / k for p, k in zip(peer_ms, ms))}
    return record


def peer_results():
    """With rounds: two kernels and a peer at two lengths, and a peer that is not there."""
    records = []
    for seq_len in (1024, 2048):
        fa2 = [seq_len / 1e3, seq_len / 0.9e3, seq_len / 0.8e3]
        for name, factor in (("08_swizzle", 1.2), ("10_instruction_tuning", 0.9)):
            records.append(with_rounds(cuda_record(name, seq_len=seq_len), [ms * factor for ms in fa2], fa2))
        library = {"name": "PyTorch", "version": "2.11.0+cu130", "implementation": "FlashAttention-2"}
        of_kernels = ("registers", "shared_memory_bytes", "spill_bytes", "workspace_bytes")
        peer = {k: v for k, v in cuda_record("peer/fa2", seq_len=seq_len).items() if k not in of_kernels}
        records.append({**with_rounds(peer, fa2), "library": library})
        records.append(not_passed({**peer, "kernel": "peer/cudnn"}, "skipped", "not here"))
    data = results(CUDA, records)
    data["protocol"]["rounds"] = 3
    return data


def emulator_results():
    return results(EMULATOR, [emulator_record("01_naive", 8_912_896, 0), emulator_record()])


def with_statements(record, statements):
    """The record with counts by statement, and counters that are their sums."""
    def total(field):
        return sum(counts.get(field, 0) for counts in statements if counts["kind"] != "mbarrier")
    counters = {"barriers": 64, "shuffles": 6400, "exp2": total("operations"), "barrier_waits": total("waits"),
                "matrix_flops": total("flops"), "global_sectors": total("sectors"),
                "global_sectors_ideal": total("sectors_ideal"), "shared_wavefronts": total("wavefronts"),
                "shared_wavefronts_ideal": total("wavefronts_ideal")}
    return {**record, "counters": counters, "statements": statements}


def statement_results():
    """The checked build's counts by statement, of ldmatrix with and without conflicts."""
    def statements(wavefronts):
        return [{"statement": "cp_async<16>(sK, gK);", "kind": "cp.async", "requests": 100, "wavefronts": 400, "wavefronts_ideal": 400,
                 "sectors": 1600, "sectors_ideal": 1600, "bytes": 51_200},
                {"statement": "ldmatrix_x4(rK, sK);", "kind": "ldmatrix", "requests": 200, "wavefronts": wavefronts,
                 "wavefronts_ideal": 800, "bytes": 102_400},
                {"statement": "mma(acc_s, rQ, rK);", "kind": "mma.m16n8k16", "requests": 512, "flops": 2_097_152},
                {"statement": "p = exp2(s);", "kind": "exp2", "operations": 131_072},
                {"statement": "__syncthreads();", "kind": "barrier", "requests": 64, "waits": 48},
                {"statement": "mbarrier_wait(full, 0);", "kind": "mbarrier", "requests": 16, "waits": 5},
                {"statement": "gO[i] = acc_o[i];", "kind": "global store", "requests": 64, "sectors": 2048, "sectors_ideal": 1024,
                 "bytes": 32_768}]
    data = results(EMULATOR, [with_statements(emulator_record(kernel), statements(wavefronts))
                              for kernel, wavefronts in (("07_cp_async", 6400), ("08_swizzle", 800))])
    return data


class ScriptTest(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="script-test-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def write(self, name, content):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return path

    def program(self, name, text):
        """A stand-in for a program, to be found on PATH."""
        path = self.write(f"bin/{name}", "#!/bin/sh\n" + text)
        path.chmod(0o755)

    def run_script(self, *command, code=None, **options):
        """The finished script, which ends with this code if one is given."""
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(SCRIPTS), "FA_BUSY_AFTER": "600", **options.pop("env", {})}
        done = subprocess.run(
            [str(part) for each in command for part in (each if isinstance(each, tuple) else (each,))], capture_output=True, text=True, timeout=options.pop("timeout", 60), env=environment,
            check=False, **({} if "input" in options else {"stdin": subprocess.DEVNULL}), **options,
        )
        if code is not None:
            self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def assert_one_sentence(self, done, *parts, code=2):
        """The script failed with this exit code and said why on one line."""
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        lines = done.stderr.strip().splitlines()
        self.assertEqual(len(lines), 1, done.stderr)
        self.assertTrue(lines[0].startswith("error: "), lines[0])
        for part in parts:
            self.assertIn(part, lines[0])

    def checkout(self):
        """A small checkout of its own, with the real scripts, to break things in."""
        root = self.folder / "checkout"
        shutil.copytree(SCRIPTS, root / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
        (root / "bench" / "results").mkdir(parents=True)
        shutil.copy(ROOT / "bench" / "schema.json", root / "bench")
        (root / "kernels").mkdir()
        return root


def overlaps(svg):
    """Pairs of horizontal texts whose boxes meet; a letter is taken as half as wide as high (Arial's mean)."""
    boxes = []

    def walk(node, x, y, look):
        look = {**look, **node.attrib}  # what a group says holds for all that is in it
        move = re.match(r"translate\(([-0-9.]+),([-0-9.]+)\)", node.get("transform", ""))
        if move:
            x, y = x + float(move[1]), y + float(move[2])
        if node.tag.endswith("}text") and node.text and "rotate" not in node.get("transform", ""):
            if look.get("stroke", "none") == "none":  # otherwise it is the rim of the same text
                x, y = x + float(node.get("x", 0)), y + float(node.get("y", 0))
                size = float(look.get("font-size", "12px").rstrip("px"))
                width = 0.5 * size * len(node.text)
                left = x - {"end": width, "middle": width / 2}.get(look.get("text-anchor"), 0)
                boxes.append((left, y - 0.7 * size, left + width, y, node.text))
        for child in node:
            walk(child, x, y, look)

    walk(ElementTree.fromstring(svg), 0, 0, {})
    if len(boxes) < 10:
        return ["hardly any text found"]
    return [(a[4], b[4]) for i, a in enumerate(boxes) for b in boxes[:i]
            if a[4] != b[4] and a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]]


def needs_venv(module):
    """Skips a test class if the checkout's Python environment lacks a module."""
    have = VENV_PYTHON.exists() and subprocess.run(
        [str(VENV_PYTHON), "-c", f"import {module}"], capture_output=True, check=False, timeout=60
    ).returncode == 0
    return unittest.skipUnless(have, f"no {module} in .venv (scripts/test.sh --quick installs it if the network is there)")


def given(option):
    """Whether a test program was called with `option`, which is unittest's no longer. What takes long or needs the network is
    defined only then: a test that is not asked for is no skip, which in CI would be a failure."""
    if option not in sys.argv:
        return False
    sys.argv.remove(option)
    return True


def main():
    """Like unittest.main, but with exit code 77 (skipped, for CTest) if nothing ran."""
    program = unittest.main(module="__main__", exit=False, verbosity=2)
    result = program.result
    if not result.wasSuccessful():
        sys.exit(1)
    if result.testsRun and len(result.skipped) == result.testsRun:
        print("skipped: " + "; ".join(sorted({reason for _, reason in result.skipped})))
        sys.exit(77)
