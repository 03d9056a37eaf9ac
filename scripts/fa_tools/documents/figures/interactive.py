"""Makes the interactive pages: FOLDER/NAME.html of docs/interactive/src and of the data that programs of this checkout
print, which stay beside them as FOLDER/data/NAME.json. A page holds all that it needs, so that it works from the file
system, too; nothing is fetched from elsewhere. scripts/fa docs interactive builds the programs and calls this."""

import json
import re
import subprocess
from html import escape
from pathlib import Path

from fa_tools.documents.figures.drawing import DARK, LIGHT
from fa_tools.sources import constant
from fa_tools.tools import ROOT, Parser, Refused, fail, make_folder, relative, write_whole

SOURCES = ROOT / "docs" / "interactive" / "src"
BUILD = ROOT / "build" / "emulator"
# Page -> arguments of the program `layouts`, which prints its data as JSON.
GENERATORS = {
    "descriptor": ("dump", "descriptor"),
    "fragments": ("dump", "fragments"),
    "banks": ("banks-page",),
    "softmax": ("softmax-page",),
}
TILES = 6  # of the ring that a reader steps through
EXAMPLE = """example:
  scripts/fa interactive --output /tmp/pages    with the programs of build/emulator

Exit code: 0 done, 2 bad arguments or a file that is missing, 3 the program failed."""

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
<main><noscript><p>This page needs JavaScript. A picture of it is in docs/interactive.md.</p></noscript></main>
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
                  if "\nexport const title = " in path.read_text(encoding="utf-8"))


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


def ring():
    """What the phase explorer needs to know of kernel 12 with head_dim 128."""
    groups = constant("12", "kWarpgroups")
    return {"tiles": TILES, "stages": constant("12", "kStages"), "warpgroups": groups, "warps": 4 * groups,
            "boxes": constant("12", "kSlabs"), "box_bytes": 128 * constant("12", "kBlockN")}


def data_of(name, programs):
    if name == "phases":
        return ring()
    layouts, arguments = programs / "layouts", GENERATORS[name]
    if not layouts.exists():
        raise Refused(f"{layouts} is not there; scripts/fa docs interactive builds it")
    done = subprocess.run([layouts, *arguments], capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        fail(f"layouts {' '.join(arguments)} failed: {done.stderr.strip() or done.returncode}", 3)
    return json.loads(done.stdout)


def page(name, data):
    """The text of NAME.html."""
    bundle = modules(name)
    bundle = {"ui": (SOURCES / "ui.mjs").read_text(encoding="utf-8"), **bundle}
    script = "".join(wrapped(*module) for module in bundle.items()) + f"module_ui.run(module_{name}.start);\n"
    title = re.search(r'^export const title = "([^"]+)";$', bundle[name], re.M)
    if not title:
        raise Refused(f"{relative(SOURCES / name)}.mjs has no line: export const title = \"...\";")
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
    return text, TEMPLATE.format(title=escape(title[1]), style=style(), data=text.replace("<", "\\u003c"), script=script)


def main():
    parser = Parser("interactive", __doc__, EXAMPLE)
    parser.add_argument("--programs", metavar="FOLDER", type=Path, default=BUILD / "bin",
                        help="where the programs are (default: build/emulator/bin)")
    parser.add_argument("-o", "--output", metavar="DIR", type=Path, default=BUILD / "interactive",
                        help="where the pages go (default: build/emulator/interactive)")
    args = parser.parse_args()
    make_folder(args.output / "data")
    texts = {}
    for name in names():
        texts[f"data/{name}.json"], texts[f"{name}.html"] = page(name, data_of(name, args.programs))
    for name, text in texts.items():
        write_whole(args.output / name, text)
