"""--trace as a user meets it: the file, its picture, and one sentence for what cannot be.

Usage: test_trace.py CHECKED_ATTENTION THIS_BUILD'S_ATTENTION PROGRAM_ON_A_FAKE_GPU
"""

import json
import os
import re
import sys
import tempfile
import xml.etree.ElementTree as xml
from pathlib import Path

from tool_test import ROOT, expect, refused, run

checked, program, on_a_gpu = sys.argv[1:]
SMALL = ("--batch", "1", "--heads", "1", "--seq-len", "128", "--head-dim", "64")
TIMELINE = ROOT / "scripts" / "fa", "timeline"


def corners(path):
    """Where the pen of an SVG's path turns."""
    x = y = begin = 0
    for letter, numbers in re.findall(r"([Mmlhvz])([^Mmlhvz]*)", path):
        numbers = [float(number) for number in re.findall(r"-?[\d.]+", numbers)]
        if letter in "Mz":
            x, y = numbers or begin
            yield x, y
        across, down = {"h": (numbers, [0] * len(numbers)), "v": ([0] * len(numbers), numbers)}.get(letter, (numbers[::2], numbers[1::2]))
        for dx, dy in zip(across, down) if letter not in "Mz" else ():
            x, y = x + dx, y + dy
            yield x, y
        if letter in "Mm":
            begin = x, y


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
    kept, back = Path(work, "kept.json"), Path(work, "back.json")
    run(sys.executable, "-B", TIMELINE, file, "--convert", kept)
    run(sys.executable, "-B", TIMELINE, kept, "--convert", back)
    expect(json.loads(back.read_text()) == trace, "the kept form says something else than the trace")
    expect(len(kept.read_text()) * 4 < len(file.read_text()), "the kept form is no smaller")

    def check_picture(*options):
        """Well-formed, nothing beyond its edges, no two texts of a line on top of each other. Returns the texts."""
        run(sys.executable, "-B", TIMELINE, "-o", svg, *options)
        picture = xml.fromstring(svg.read_text())
        width, height = float(picture.get("width")), float(picture.get("height"))
        lines = {}
        rules = re.findall(r"\.(t\d+)\{([^}]*font-size[^}]*)\}", picture.find("{http://www.w3.org/2000/svg}style").text)
        classes = {name: dict(part.split(":") for part in rule.split(";")) for name, rule in rules}
        looks = {}
        for group in picture.iter():  # each before those within it
            looks.update((child, {**looks.get(group, {}), **classes.get(child.get("class"), {}), **child.attrib}) for child in group)
        for text in (text for text in looks if text.tag.endswith("text")):
            said, x, y, size = text.text, *(float(looks[text][name].removesuffix("px")) for name in ("x", "y", "font-size"))
            wide = len(said) * size * 0.56
            left = x - {None: 0, "middle": wide / 2, "end": wide}[looks[text].get("text-anchor")]
            expect(0 <= left and left + wide <= width and size < y < height, f"'{said}' is outside ({options})")
            for other, begin, end in lines.setdefault(y, []):
                expect(left >= end or left + wide <= begin, f"'{said}' lies on '{other}' ({options})")
            lines[y].append((said, left, left + wide))
        # A path with a marker has the marker's shape at each of its corners.
        forms = {f"marker:url(#{marker.get('id')})": list(corners(marker[0].get("d")))
                 for marker in picture.iter("{http://www.w3.org/2000/svg}marker")}
        for path in picture.iter("{http://www.w3.org/2000/svg}path"):
            form = forms.get(path.get("style"), [(0, 0)])
            for x, y in ((x + dx, y + dy) for x, y in corners(path.get("d")) for dx, dy in form):
                expect(0 <= x <= width and 0 <= y <= height, f"a shape at {x}, {y} is outside ({options})")
        return [text for texts in lines.values() for text, _, _ in texts]

    for options in ((), ("--cycles", "300"), ("--cycles", "1000000"), ("--from", "3000")):
        check_picture(file, *options)

    wrong = Path(work, "wrong.json")
    refused((checked, "07", *SMALL, "--trace", Path(work, "none", "t.json")), "cannot write")
    refused((checked, "06", "07", *SMALL, "--trace", wrong), "one kernel, but 2 would run")
    refused((checked, "07", "--seq-len", "128,256", "--heads", "1", "--trace", wrong), "there are 2")
    refused((checked, "07", *SMALL, "--rotate", "2", "--trace", wrong), "--rotate")
    refused((checked, "07", *SMALL, "--trace-cta", "1"), "--trace-cta belongs to --trace")
    refused((checked, "07", *SMALL, "--trace", wrong, "--trace-cta", "2"), "CTA 2 is not there")
    refused((checked, "01", *SMALL, "--workspace-mib", "0", "--trace", wrong), "no trace to write")
    refused((on_a_gpu, "07", *SMALL, "--trace", wrong), "--trace belongs to the emulator")
    fast = "fast build" in run(program, "07", *SMALL)
    if fast:
        refused((program, "07", *SMALL, "--trace", wrong), "needs the checked build")
    expect(not wrong.exists(), "a refused trace left a file")

    # On a GPU with twins that record: timed beside the kernel, shown in the table, and no result.
    os.environ["FAKE_GPU_RECORDS"] = "1"
    real, results = Path(work, "real.json"), Path(work, "results.json")
    said = run(on_a_gpu, "01", *SMALL, "--rounds", "2", "--iters", "2", "--trace", real, "--trace-cta", 1, "--json", results)
    about = json.loads(real.read_text())["otherData"]
    expect(about["cta"] == 1 and about["recorded"]["gpu"] == "Fake GPU" and about["recorded"]["sm"] == 5, f"about: {about}")
    expect(about["recorded"]["ms"] == 1 and about["recorded"]["recording_ms"] == 1.25, f"about: {about}")
    for line in ("01_right                 passed", "  recording              passed", "in 5011 cycles of SM 5's clock, 300 records",
                 "a launch takes 1.0000 ms, recording 1.2500 ms (+25.0 %)"):
        expect(line in said, f"no '{line}' in:\n{said}")
    names = [record["kernel"] for record in json.loads(results.read_text())["records"]]
    expect(names == ["01_right"], f"the results are of {names}")
    refused((on_a_gpu, "02", *SMALL, "--trace", wrong), "02_warm has nothing that a GPU would record")
    refused((on_a_gpu, "01", *SMALL, "--trace", wrong, "--trace-cta", "2"), "CTA 2 is not there")
    refused((on_a_gpu, "01", "02", *SMALL, "--trace", wrong), "one kernel, but 2 would run")
    expect(not wrong.exists(), "a refused trace left a file")
    for mean in ("50", "10000"):
        texts = check_picture(file, "--mean", mean)
        expect(f"what a warp does or waits for; everything as a mean over {mean} cycles" in texts, f"no word on means: {texts}")
    for options in ((real,), (file, real), (file, real, "--cycles", "300", "--from", "20,3500")):
        texts = check_picture(*options)
        expect(any(text.startswith("products, warp ") for text in texts), f"no row of products: {texts}")
        expect("product under way" in texts and "What a Fake GPU did: 01_right" in " ".join(texts), f"{texts}")
        expect("recorded on Fake GPU: 1 ms per launch, 1.25 ms recording" in " ".join(texts), f"{texts}")
    expect("cycles 3,500 to 3,800 of 5,011" in " ".join(texts) and "3,600" in texts, f"another window: {texts}")

    python = (sys.executable, "-B", *TIMELINE)
    refused((*python, real, "--from", "5011"), "has only 5011 cycles")
    refused((*python, file, "--cycles", "300", "--mean", "301"), "--mean must be from 1 to 300")
    refused((*python, Path(work, "none.json")), "no such file")
    Path(work, "bad.json").write_text("{}")
    refused((*python, Path(work, "bad.json")), "is not a trace")
    refused((*python, file, "-o", Path(work, "none", "t.svg")), "cannot write")
print("trace and timeline are as they should be")
