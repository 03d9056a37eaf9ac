"""The results that programs write, against the schema.

Usage: test_files.py ATTENTION [PROGRAM_ON_A_FAKE_GPU]
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from tool_test import ROOT, fail, run, skip

from fa_tools.sources import source_of

program, *fake = filter(None, sys.argv[1:])
pythons = [str(ROOT / ".venv/bin/python"), str(ROOT / ".venv-tests/bin/python"), sys.executable]


def has_jsonschema(python):
    try:
        return subprocess.run([python, "-c", "import jsonschema"], capture_output=True, timeout=60).returncode == 0
    except OSError:
        return False


python = next(filter(has_jsonschema, pythons), None) or skip("no Python here has jsonschema (scripts/test.sh --all installs it)")

with tempfile.TemporaryDirectory() as folder:
    file = Path(folder, "r.json")
    for options in ("--seq-len 128", "--seq-len 128 --workspace-mib 0 --dtype fp16", "--seq-len 256 --inputs tiny"):
        run(program, *options.split(), "--batch", 1, "--heads", 1, "--json", file)
        print(run(python, ROOT / "scripts/fa", "validate", file))
    for record in json.loads(file.read_text(encoding="utf-8"))["records"]:
        if record.get("source") != source_of(record["kernel"]):
            fail(f"{record['kernel']} was built from {record.get('source')}, its source is {source_of(record['kernel'])}")
    for options in ("--mask causal --seq-len 100", "--q-len 3 --kv-len 200 --heads 4 --kv-heads 2 --mask causal",
                    "--lengths 30,0,7", "--lengths 30,2 --kv-lengths 0,70 --mask causal --inputs hot_diagonal",
                    "--page-size 16 --q-len 2 --kv-lengths 30,0,17"):
        run(Path(program).with_name("beyond"), *options.split(), "--json", file)
        print(run(python, ROOT / "scripts/fa", "validate", file))
    for fake_gpu in fake:  # what is written of a GPU: times, clocks, rounds, peers, ceilings, what is wrong
        for options in ("--protocol quick", "--seq-len 128 --batch 1 --heads 1 --head-dim 64"):
            kernels = ("01", "02", "03", "04", "05", "ceiling/copy", "ceiling/matmul", "peer/fake")
            done = subprocess.run([fake_gpu, *kernels, *options.split(), "--iters", "3", "--json", file],
                                  stdout=subprocess.DEVNULL, timeout=60)
            if done.returncode != 1:
                fail(f"a wrong kernel and {options} end with {done.returncode}, not 1")
            print(run(python, ROOT / "scripts/fa", "validate", file))
