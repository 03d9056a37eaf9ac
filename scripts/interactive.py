#!/usr/bin/env python3
"""Makes the interactive pages: docs/interactive/NAME.html of docs/interactive/src and docs/interactive/data/NAME.json.
A page holds all that it needs, so that it works from the file system, too; nothing is fetched from elsewhere.

The data come from programs of this checkout. Those whose program is not built are left as they are. The timelines are those
of the checked programs; --check compares them only where --traces says where these are, since each of them has to run."""

import argparse
import json
import re
import subprocess
import sys
from html import escape
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "lib"))
from drawing import DARK, LIGHT  # noqa: E402
from timeline_page import page_data, text_of  # noqa: E402
from tools import ROOT, Refused, fail, read_json, relative  # noqa: E402

PAGES = ROOT / "docs" / "interactive"
SOURCES, DATA = PAGES / "src", PAGES / "data"
PROGRAMS = "build/emulator/bin"
CHECKED = "build/emulator-checked/bin"
# Page -> (program, arguments...) that prints its data as JSON.
GENERATORS = {
    "descriptor": ("layout_dump", "descriptor"),
    "fragments": ("layout_dump", "fragments"),
    "banks": ("banks_page",),
    "softmax": ("softmax_page",),
}
EXAMPLE = """examples:
  scripts/interactive.py            write the data, then the pages
  scripts/interactive.py --check    change nothing, name what is out of date; exit code 1 if anything is"""

TEMPLATE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>
{style}</style>
</head>
<body>
<header><h1>{title}</h1></header>
<main><noscript><p>This page needs JavaScript. A picture of it is in {name}.md.</p></noscript></main>
<script type="application/json" id="data">
{data}
</script>
<script type="module">
{script}</script>
</body>
</html>
"""

IMPORT = re.compile(r'^import \{([^}]*)\} from "\./(\w+)\.mjs";\n', re.M)
EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const|let|class) (\w+))", re.M)


def names():
    """The pages: modules with a title."""
    return sorted(path.stem for path in SOURCES.glob("*.mjs")
                  if re.search(r"^export const title = ", path.read_text(encoding="utf-8"), re.M))


def modules(name, before=()):
    """The module and, before it, those that it imports: {name: text}."""
    path = SOURCES / f"{name}.mjs"
    if not path.is_file():
        raise Refused(f"{relative(SOURCES / before[-1])}.mjs imports ./{name}.mjs, which is not there")
    if name in before:
        raise Refused(f"{relative(path)} imports itself")
    text = path.read_text(encoding="utf-8")
    found = {}
    for _, other in IMPORT.findall(text):
        found.update(modules(other, (*before, name)))
    return {**found, name: text}


def wrapped(name, text):
    """A module as one constant that holds what it exports: several can then be in one script."""
    path = relative(SOURCES / f"{name}.mjs")
    exports = [match[1] for match in EXPORT.finditer(text)]
    text = EXPORT.sub("", text)
    text = IMPORT.sub(lambda match: f"const {{{match[1].replace(' as ', ': ')}}} = module_{match[2]};\n", text)
    for line in text.splitlines():
        if re.match(r"\s*(import|export)\b|.*\bimport\(", line):
            raise Refused(f'{path} has an import or export that cannot be bundled: "{line.strip()}"')
    if "</script" in text:
        raise Refused(f"{path} holds </script, which would end it")
    return f"// ---- {path}\nconst module_{name} = (() => {{\n{text}return {{{', '.join(exports)}}};\n}})();\n"


def colours(theme):
    return " ".join(f"--{field.replace('_', '-')}: {value};" for field, value in theme._asdict().items())


def style():
    rules = (f":root {{ color-scheme: light; {colours(LIGHT)} }}\n"
             f"@media (prefers-color-scheme: dark) {{ :root:not([data-theme=\"light\"]) {{ color-scheme: dark; "
             f"{colours(DARK)} }} }}\n"
             f":root[data-theme=\"dark\"] {{ color-scheme: dark; {colours(DARK)} }}\n")
    return rules + (SOURCES / "style.css").read_text(encoding="utf-8")


def page(name):
    """The text of NAME.html."""
    bundle = modules(name)
    bundle = {"ui": (SOURCES / "ui.mjs").read_text(encoding="utf-8"), **bundle}
    script = "".join(wrapped(*module) for module in bundle.items()) + f"module_ui.run(module_{name}.start);\n"
    title = re.search(r'^export const title = "([^"]+)";$', bundle[name], re.M)
    if not title:
        raise Refused(f"{relative(SOURCES / name)}.mjs has no line: export const title = \"...\";")
    data = DATA / f"{name}.json"
    try:
        parsed = read_json(data)
    except Refused as problem:
        raise Refused(f"{relative(data)} {problem}") from None
    text = json.dumps(parsed, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")
    return TEMPLATE.format(name=name, title=escape(title[1]), style=style(), data=text, script=script)


def generated(programs, must):
    """Data whose program is in the folder: {path: text}, and the pages whose program is not."""
    texts, missing = {}, []
    for name, (program, *arguments) in GENERATORS.items():
        path = programs / program
        if not path.exists():
            if must:
                fail(f"{path} is not there; cmake --build --preset emulator --target {program} builds it")
            missing.append(name)
            continue
        done = subprocess.run([path, *arguments], capture_output=True, text=True, timeout=120, check=False)
        if done.returncode != 0:
            fail(f"{program} {' '.join(arguments)} failed: {done.stderr.strip() or done.returncode}")
        texts[DATA / f"{name}.json"] = done.stdout
    return texts, missing


def timelines(programs, must):
    """The same of the kernels' traces. Without a folder those of the emulator stay as they are."""
    if not (SOURCES / "timeline.mjs").is_file():
        return {}, []
    path = DATA / "timeline.json"
    data, missing = page_data(programs, read_json(path) if path.is_file() else None)
    if must and missing:
        fail(f"{programs} has no {missing[0]}; cmake --build --preset emulator-checked builds it")
    return {path: text_of(data)}, missing if programs else []


def update(texts, check):
    """Writes what differs, or names it; how many differ."""
    bad = 0
    for path, text in texts.items():
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        bad += 1
        if check:
            print(f"{relative(path)} is out of date; scripts/interactive.py writes it", file=sys.stderr)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            print(f"wrote {relative(path)}")
    return bad


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLE, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="change nothing, name what is out of date")
    parser.add_argument("--programs", metavar="FOLDER", type=Path,
                        help=f"where the programs are, all of them (default: {PROGRAMS}, as far as they are there)")
    parser.add_argument("--traces", metavar="FOLDER", type=Path,
                        help=f"where the checked programs are, all of them (default: {CHECKED}, as far as they are there; "
                        "with --check none)")
    args = parser.parse_args()
    texts, missing = generated(args.programs or ROOT / PROGRAMS, args.programs is not None)
    try:
        traces, unchecked = timelines(args.traces or (None if args.check else ROOT / CHECKED), args.traces is not None)
    except Refused as problem:
        fail(f"{relative(DATA / 'timeline.json')} {problem}")
    bad = update({**texts, **traces}, args.check)
    try:
        bad += update({PAGES / f"{name}.html": page(name) for name in names()}, args.check)
    except Refused as problem:
        fail(str(problem))
    if missing:
        print(f"data of {', '.join(missing)} left as they are: their programs are not in {PROGRAMS}")
    if unchecked:
        print(f"timelines of {', '.join(unchecked)} left as they are: their programs are not in {CHECKED}")
    return 1 if bad and args.check else 0


if __name__ == "__main__":
    sys.exit(main())
