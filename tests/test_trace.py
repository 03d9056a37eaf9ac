"""--trace as a user meets it: the file, its picture, and one sentence for what cannot be.

Usage: test_trace.py CHECKED_ATTENTION THIS_BUILD'S_ATTENTION PROGRAM_ON_A_FAKE_GPU
"""

import json
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml
from pathlib import Path

from tool_test import ROOT, fail, run

checked, program, on_a_gpu = sys.argv[1:]
SMALL = ("--batch", "1", "--heads", "1", "--seq-len", "128", "--head-dim", "64")
TIMELINE = ROOT / "scripts" / "timeline.py"


def expect(condition, message):
    if not condition:
        fail(message)


def refused(command, sentence, code=2):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    expect(done.returncode == code, f"{command} ended with {done.returncode}, not {code}: {done.stdout}{done.stderr}")
    lines = done.stderr.splitlines()
    expect(len(lines) == 1 and lines[0].startswith("error: ") and sentence in lines[0],
           f"{command} should say '{sentence}' in one line, not:\n{done.stderr}")


with tempfile.TemporaryDirectory() as work:
    file, svg = Path(work, "trace.json"), Path(work, "trace.svg")
    said = run(checked, "07", *SMALL, "--trace", file, "--trace-cta", 1)
    trace = json.loads(file.read_text())
    about = trace["otherData"]
    expect(about["cta"] == 1 and about["kernel"] == "07_cp_async" and about["head_dim"] == 64, f"about: {about}")
    expect(f"CTA 1 in {about['cycles']} cycles of the model" in said, said)
    again = Path(work, "again.json")
    run(checked, "07", *SMALL, "--trace", again, "--trace-cta", 1, "--threads", 2)
    expect(file.read_bytes() == again.read_bytes(), "the same run, another file")

    # Its picture: well-formed, nothing beyond its edges, no two texts of a line on top of each other.
    for options in ((), ("--dark", "--cycles", "300"), ("--cycles", "1000000")):
        run(sys.executable, "-B", TIMELINE, file, "--out", svg, *options)
        picture = xml.fromstring(svg.read_text())
        width, height = float(picture.get("width")), float(picture.get("height"))
        lines = {}
        for text in picture.iter("{http://www.w3.org/2000/svg}text"):
            x, y, size = (float(text.get(name)) for name in ("x", "y", "font-size"))
            wide = len(text.text) * size * 0.56
            left = x - {"start": 0, "middle": wide / 2, "end": wide}[text.get("text-anchor")]
            expect(0 <= left and left + wide <= width and size < y < height, f"'{text.text}' is outside ({options})")
            for other, begin, end in lines.setdefault(y, []):
                expect(left >= end or left + wide <= begin, f"'{text.text}' lies on '{other}' ({options})")
            lines[y].append((text.text, left, left + wide))
        for path in picture.iter("{http://www.w3.org/2000/svg}path"):
            for x, y in re.findall(r"M(\d+) (\d+)", path.get("d")):
                expect(0 <= int(x) <= width and 0 <= int(y) <= height, f"a shape at {x}, {y} is outside ({options})")

    wrong = Path(work, "wrong.json")
    refused((checked, "07", *SMALL, "--trace", Path(work, "none", "t.json")), "cannot write")
    refused((checked, "06", "07", *SMALL, "--trace", wrong), "one kernel, but 2 would run")
    refused((checked, "07", "--seq-len", "128,256", "--heads", "1", "--trace", wrong), "there are 2")
    refused((checked, "07", *SMALL, "--rotate", "2", "--trace", wrong), "--rotate")
    refused((checked, "07", *SMALL, "--trace-cta", "1"), "--trace-cta belongs to --trace")
    refused((checked, "07", *SMALL, "--trace", wrong, "--trace-cta", "2"), "CTA 2 is not there")
    refused((checked, "01", *SMALL, "--workspace-mib", "0", "--trace", wrong), "no trace to write")
    refused((checked, "--serve", "--trace", wrong), "leave out --trace")
    refused((on_a_gpu, "07", *SMALL, "--trace", wrong), "--trace belongs to the emulator")
    fast = "fast build" in run(program, "07", *SMALL)
    if fast:
        refused((program, "07", *SMALL, "--trace", wrong), "needs the checked build")
    expect(not wrong.exists(), "a refused trace left a file")

    python = (sys.executable, "-B", TIMELINE)
    refused((*python, Path(work, "none.json")), "no such file")
    Path(work, "bad.json").write_text("{}")
    refused((*python, Path(work, "bad.json")), "is not a trace")
    refused((*python, file, "--out", Path(work, "none", "t.svg")), "cannot write")
print("trace and timeline are as they should be")
