"""Writes into the Markdown what must not be typed by hand: code excerpts, measured numbers and tables of them.

A number in a sentence, with a comment behind it that says where it comes from:

  It reaches 37.9<!--= bf16_d128 03 @4096 --> TFLOP/s, 2.3<!--= bf16_d128 03/02 @4096 --> times kernel 02.

  bf16_d128              the file bf16_d128.json of the book's card (fa_tools/cards.py); SET/NAME: one of the files in a set, as
                         solutions/16 in solutions.jsonl; h100:bf16_d128: of another card; emulator:counts/d128: of the
                         emulator; machines: bench/machines.json
  03, peer/fa2, *A100    a kernel by its number, or the name of a record; 03/02, /peer/fa3: over the same figure of another
  cycles                 a field, TFLOP/s if none is named: time_ms.median, a counter, a metric, machine.max_sm_clock_mhz;
                         work/cycles: one field over another
  @4096 std=5 flat k=8192      which record: @ is seq_len=, std= is score_std=, flat or growing is score_growth=, causal is
                         mask=; one with a mask, fewer heads of keys or packed sequences only if a field of them is named
  *1e-6 %66.9            times a number; in percent of a number or, %rates:shfl, of an instruction's TFLOP/s

It has as many decimals as the number that stands there, and a comma between thousands or an exponent if that has one. Behind a
figure of a kernel that has changed since it was measured stands a dagger, which the document's last line explains.

Between a pair of comments, alone on their lines:

  <!-- grid: inputs/scores flat /peer/fa3 -->                      a table whose cells are such numbers: each takes the comment of
  | | std = 5<!--= std=5 --> |                              its row's first cell, that of its column's heading and the
  |-|-:|                                                        grid's own together
  | `16_max_free`<!--= 16 @4096 --> | 0.00 |
  <!-- /grid -->
  <!-- excerpt: kernels/02_online_softmax.cu#main-loop -->      the lines between the comments // [main-loop] and
  <!-- /excerpt -->                                             // [/main-loop] of the source, without indentation
  <!-- diff: kernels/01_naive.cu kernels/02_online_softmax.cu -->
  <!-- /diff -->                                                how many lines the second file adds and removes, above
                                                                the one to ten changed lines that you put there
  <!-- line: kernels/01_naive.cu kernels/02_online_softmax.cu --> the one line that you put there, as it is in the second file,
  <!-- /line -->                                                which adds it to the first; of one file: any line of it. Or
                                                                lines of the first with -, those in their place with +
  <!-- entries: docs/appendix/notation.md -->                   links to a glossary's entries (#### headings)
  <!-- /entries -->
  <!-- table: bf16_d128 head_dim=64,128 kernel=0[1-3]_* columns=kernel,median,ratio.peer/fa2 -->
  <!-- /table -->                                               the records that match, of one file or several, one a row
                                                                (load.tflops: under load, load.share: of the
                                                                Tensor Cores' limit at its clock; ratio.best: to the library that
                                                                was the fastest; copy_percent: of a copy's bandwidth)
  <!-- lengths: bf16_d128 kernel=1[0-5]_* field=tflops -->
  <!-- /lengths -->                                             one figure, a kernel a row, a sequence length a column; of
                                                                each card that has the file: *:bf16_d128
  <!-- profile: profile kernel=02_* metrics=cycles,dram_bytes -->
  <!-- /profile -->                                             the profiler's figures, one launch a column
                                                                (rows=launches: one launch a row)
  <!-- held-up: profile -->
  <!-- /held-up -->                                             by which counter the map says what held a kernel up
  <!-- cycles: under_load -->
  <!-- /cycles -->                                              where the cycles of a launch go, from kernel 10 on
  <!-- beyond: fp8 speed -->
  <!-- /beyond -->                                              what was measured beyond the ladder: fp8 speed, inputs, rounding,
                                                                errors or rmse; gradients speed or errors; beyond_scores speed; shapes (problems that
                                                                a seed has drawn) spread, chart or worst
  <!-- agreement: seq_len=256 head_dim=128 dtype=bf16 -->
  <!-- /agreement -->                                           the emulator's counts over the profiler's, with reasons
                                                                (reasons=no: without)
  <!-- solutions: 02_online_softmax 02_no_padding columns=shared_wavefronts -->
  <!-- /solutions -->                                           a kernel and solutions of its exercises
  <!-- tasks: 02 -->                                            the tasks of a chapter; all: of all
  <!-- hole: 02_softmax -->                                     what a task's file has at the marked place
  <!-- experiments: experiments boundary -->
  <!-- /experiments -->                                         variants that were measured and not kept: one group
  <!-- reproduced: fa3-paper head_dim=128 -->
  <!-- /reproduced -->                                          what a write-up publishes, beside what was measured here
                                                                (means=no: without means over the lengths)
  <!-- schedules: 512,1024 -->
  <!-- /schedules -->                                           rules that share out causal query tiles, at these lengths
  <!-- readers: bench/results/from_readers -->             what readers have measured on their cards
  <!-- /readers -->
  <!-- bugs: tests/broken summary -->                           what finds the bugs of tests/broken: in one
                                                                paragraph, in two sentences (`in-short`), or those
                                                                of one section, by its anchor: `it-hangs`

Records of peers are taken only where kernel= names them (kernel=0*,peer/fa2). Comments in code are left alone."""

import difflib
import fnmatch
import re
import sys
from pathlib import Path

from fa_tools.cards import file_named
from fa_tools.documents import beyond_tables, cycles, ladder
from fa_tools.documents.doc_tables import TABLES, matching, pick, read, source_lines
from fa_tools.documents.links import FENCE, slug, with_fences
from fa_tools.records import DAGGER, NOTE, mark
from fa_tools.tools import ROOT, Parser, Refused, busy, markdown_files, named, relative, text_of

EXAMPLE = """examples:
  scripts/fa sync                      rewrite every Markdown file of the checkout
  scripts/fa sync --check README.md    only say what is out of date; exit code 1 if anything is"""

NUMBER = r"[+-]?\d(?:[\d,]*\d)?(?:\.\d+)?(?:e[+-]?\d+)?"
VALUE = re.compile(rf"(?:(?<![\w.])({NUMBER}{DAGGER}?))?<!--= (.+?) -->")
DIFF = re.compile(r"^<!-- diff: (\S+) (\S+) -->\n.*?^<!-- /diff -->$", re.MULTILINE | re.DOTALL)
MARKER = re.compile(r"^\s*(?://|#) \[(/?)([a-z0-9][a-z0-9-]*)\]\s*$")
LANGUAGES = {".cu": "cuda", ".cuh": "cuda", ".h": "cuda", ".cpp": "cpp", ".py": "python", ".sh": "bash",
             ".json": "json", ".cmake": "cmake", ".txt": "cmake", ".gdb": "gdb"}


# --- Sources ---------------------------------------------------------------------------------------------------


def without_markers(lines):
    return [line for line in lines if not MARKER.match(line)]


def fenced(language, lines):
    ticks = max([2, *(len(m[1]) for line in lines if (m := re.match(r"\s*(`{3,})", line)))]) + 1
    return ["`" * ticks + language, *lines, "`" * ticks]


def excerpt(spec):
    name, _, region = spec.partition("#")
    lines = source_lines(name)
    if region:
        marks = [(i, m[1]) for i, line in enumerate(lines) if (m := MARKER.match(line)) and m[2] == region]
        if [slash for _, slash in marks] != ["", "/"]:
            raise Refused(f"{name} needs exactly one pair of lines // [{region}] and // [/{region}]")
        lines = lines[marks[0][0] + 1 : marks[1][0]]
    lines = without_markers(lines)
    while lines and not lines[0].strip():
        lines.pop(0)
    while lines and not lines[-1].strip():
        lines.pop()
    indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    return fenced(LANGUAGES.get(Path(name).suffix, ""), [line[indent:] for line in lines])


def difference(old, new):
    """The lines of the unified diff of two sources, without the marks of regions."""
    return list(difflib.unified_diff(*(without_markers(source_lines(name)) for name in (old, new)), old, new, lineterm=""))


def with_whole_diffs(text):
    """What the Markdown leaves to the site: whole diffs between neighbouring kernels, folded below their lines that matter."""
    def whole(match):
        lines = fenced("diff", difference(match[1], match[2]))
        return "\n".join([match[0], "", "<details>", "<summary>The whole diff</summary>", "", *lines, "", "</details>"])
    return DIFF.sub(whole, text)


def normalised(line):
    """A changed line's sign and text, by which it is known again however it is indented."""
    return line[:1] + " ".join(line[1:].split())


def without_comment(line):
    """The same, when its comment has changed."""
    return normalised(re.sub(r" *//.*", "", line))


def nearest(line, changed):
    """The changed line that a line has become after a change in its kernel: of the same sign, not short, and alike by nine
    tenths. Else None."""
    def alike(other):
        return difflib.SequenceMatcher(None, without_comment(line), without_comment(other), autojunk=False).ratio()

    best = max((other for other in changed if other[0] == line[0]), key=alike, default=line)
    return best if best in changed and len(line) >= 20 and alike(best) >= 0.9 else None


def diff(spec, old):
    """How many lines the step from one file to the next adds and removes, and those changed lines that the author wrote
    into the block."""
    names = spec.split()
    if len(names) != 2:
        raise Refused("a diff takes two files")
    changed = [line for line in difference(*names)[2:] if line.startswith(("+", "-"))]
    lines = [line for line in old if re.match(r"[+-] *\S", line)]
    if not 1 <= len(lines) <= 10:
        raise Refused(f"the block needs one to ten of the lines that change from {names[0]} to {names[1]}, with + or -")
    exact, code = ([key(line) for line in changed] for key in (normalised, without_comment))
    places = set()
    for line in lines:
        if normalised(line) not in exact and without_comment(line) not in code:
            line = nearest(line, changed) or line
        if normalised(line) not in exact and without_comment(line) not in code:
            raise Refused(f"no line changes from {names[0]} to {names[1]} like '{line}'")
        places.add(exact.index(normalised(line)) if normalised(line) in exact else code.index(without_comment(line)))
    shown = [changed[i] for i in sorted(places)]
    indent = min(len(line[1:]) - len(line[1:].lstrip()) for line in shown)
    added = sum(line.startswith("+") for line in changed)
    return [f"This step adds {added} lines and removes {len(changed) - added}. Some of them:", "",
            *fenced("diff", [line[0] + line[1 + indent :] for line in shown])]


def line(spec, old):
    """The line that the author wrote into the block: one of those that a file adds to the one before, or of a file alone. Or,
    with - and +, one to three lines that the step from one file to the next takes away, and as many that take their place."""
    *before, name = spec.split()
    texts = [text for text in old if text.strip() and not FENCE.match(text)]
    replaced = [text for text in texts if text.startswith("-")]
    lines = texts if replaced else [f"+{text}" for text in texts]
    signs = "".join(text[0] for text in lines)
    if len(before) > 1 or not re.fullmatch(r"-{1,3}\+{1,3}" if replaced and before else r"\+", signs):
        raise Refused("the block needs one line, of a file or of the step from one to the next, or - and + lines of that step")
    there = difference(*before, name)[2:] if before else [f"+{text}" for text in without_markers(source_lines(name))]
    shown = []
    for text in lines:
        alike = [each for each in there if normalised(each) == normalised(text)]
        found = alike[0] if alike else nearest(text, there)
        if not found:
            raise Refused(f"no line of {before[0] if text[0] == '-' else name} that belongs here is like '{text[1:].strip()}'")
        shown.append(found[0] + found[1:].strip())
    return fenced("diff", shown) if replaced else fenced("cuda", [shown[0][1:]])


def entries(spec):
    """The entries of a glossary, which are headings of the fourth level, by the alphabet."""
    text, seen = "\n".join(source_lines(spec)), {}
    anchors = {title: slug(title, seen) for title in re.findall(r"^#{1,6} (.+)$", text, re.MULTILINE)}
    titles = sorted(re.findall(r"^#### (.+)$", text, re.MULTILINE), key=str.lower)
    return ",\n".join(f"[{title}](#{anchors[title]})" for title in titles).split("\n")


# --- Numbers in sentences and grids ----------------------------------------------------------------------------


def kernel_named(word, data):
    """The record's name that a word stands for, or None: 03 is that of the kernel with this number."""
    known = {record["kernel"] for record in data["records"]}
    if len(word) == 2 and word.isdecimal():
        ours = {path.stem for path in (ROOT / "kernels").glob(f"{word}_*.cu")} & known
        word = min(ours) if ours else f"{word}_*"
    return word if any(fnmatch.fnmatchcase(name, word) for name in known) else None


def number_of(text):
    """A number, or FILE:INSTRUCTION: the TFLOP/s of an instruction in a file of the program rates."""
    word, colon, instruction = text.rpartition(":")
    if not colon:
        return float(text)
    return the_one(read(word), {"kernel": instruction}, "tflops", [])


def the_one(data, filters, field, used):
    """The field of the one record that matches, which joins the `used`."""
    found = list(matching(data, filters))
    if len(found) != 1:
        raise Refused(f"{len(found)} records match instead of one")
    used += found
    return numeric(pick(found[0], field), field)


def numeric(value, field):
    if value is None:
        raise Refused(f"there is no {field}")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise Refused(f"{field} is no number")
    return value


def value(spec, shown):
    """The number that a comment behind it stands for, written like the one that is shown, and marked if its kernel has changed since
    it was measured."""
    file = next(filter(None, map(file_named, spec.split())), None)
    if file is None:
        raise Refused(f"'{spec}' names no results file")
    data, filters, field, over, calculate, used = read(file), {}, None, None, [], []
    for word in spec.split():
        key, equals, wanted = word.partition("=")
        kernel, slash, other = re.fullmatch(r"((?:(?:beyond|peer|ceiling)/)?[^/]*)(/?)(.*)", word).groups()
        if file_named(word) == file:
            continue
        if equals:
            filters.update({"score_std": str(float(wanted))} if key == "std" else {key: wanted})
        elif word.startswith("@"):
            filters["seq_len"] = word[1:]
        elif word in ("flat", "growing"):
            filters["score_growth"] = word
        elif word == "causal":
            filters["mask"] = word
        elif word.startswith("%"):
            calculate.append(lambda x, of=number_of(word[1:]): 100 * x / of)
        elif re.fullmatch(r"\*[\d.e+-]+", word):
            calculate.append(lambda x, times=float(word[1:]): x * times)
        elif word.startswith("/"):
            over = word[1:]
        elif "kernel" not in filters and (found := kernel_named(kernel, data)):
            filters["kernel"], over = found, other or over
        elif field is None and word[:1].islower():
            field = word
        else:
            raise Refused(f"'{word}' of '{spec}' is neither a record's name nor a field")
    field, per = field or "tflops", ""
    if "ratio." not in field:
        field, _, per = field.partition("/")
    if field.split(".")[0] in ("machine", "protocol"):
        result = numeric(pick(data, field), field)
    else:
        def figure(of):
            whole = the_one(data, of, field, used)
            return whole / (the_one(data, of, per, used) or float("nan")) if per else whole

        result = figure(filters)
        if over:
            key, colon, other = over.partition(":")
            replaced = {key: other} if colon else {"kernel": kernel_named(over, data) or over}
            result /= figure({**filters, **replaced}) or float("nan")
    for step in calculate:
        result = step(result)
    return mark(like(result, shown), *used)


def like(number, shown):
    """The number with as many decimals, commas and exponent as the one that is shown."""
    decimals = re.search(r"\.(\d+)", shown)
    return f"{number:{',' if ',' in shown else ''}.{len(decimals[1]) if decimals else 0}{'e' if 'e' in shown else 'f'}}"


def grid(spec, old):
    """A table in whose cells stand numbers: their comments are those of the row, of the column and of the grid."""
    def cells(line):
        return re.split(r"(?<!\\)\|", line)
    if len(old) < 3:
        raise Refused("a grid needs a table")
    def comments(parts):
        return [re.search("<!--= (.+?) -->", part) for part in parts]
    columns, result = comments(cells(old[0])), old[:2]
    for line in old[2:]:
        parts = cells(line)
        row = comments(parts[:2])[1]
        for i, column in enumerate(columns[2:], 2):
            number = column and row and i < len(parts) and re.search(f"{NUMBER}{DAGGER}?", parts[i])
            if number:
                words = f"{row[1]} {column[1]} {spec}"
                try:
                    new = value(words, number[0])
                except Refused as problem:
                    raise Refused(f"{problem} ({words})") from None
                parts[i] = parts[i][: number.start()] + new + parts[i][number.end() :]
        result.append("|".join(parts))
    return result


WRITERS = {"grid": grid, "excerpt": excerpt, "diff": diff, "line": line, "entries": entries, "held-up": ladder.table, "cycles": cycles.table,
           "beyond": beyond_tables.table, **TABLES}
FROM_OLD = (grid, diff, line)  # these need what stands there
BLOCK = re.compile(rf"^<!-- ({'|'.join(WRITERS)}): (.+?) -->\s*$")


# --- Markdown --------------------------------------------------------------------------------------------------


def written(kind, spec, old):
    """The lines that belong into a block."""
    writer = WRITERS[kind]
    return list(writer(spec, old) if writer in FROM_OLD else writer(spec))


def with_numbers(line, problem):
    """The line with its numbers as they should be; problem() gets a sentence on each that is not."""

    def number(match):
        old, spec = match.groups()
        try:
            if old is None:
                raise Refused(f"no number stands before <!--= {spec} -->")
            new = value(spec, old)
        except (Refused, ValueError) as refused:
            problem(f"{refused} ({spec})")
            return match[0]
        if new != old:
            problem(f"{old} should be {new} ({spec})")
        return new + match[0].removeprefix(old)

    # Code spans show the comments to a reader instead of using them.
    return "".join(part if part.startswith("`") else VALUE.sub(number, part) for part in re.split(r"(`[^`]*`)", line))


def synced(path, problems):
    """The file's text, as it is and as it should be. `problems` gets (line number, sentence) of what differs or cannot be
    made."""
    text = text_of(path)
    lines, result, behind = text.removesuffix(f"\n{NOTE}\n").split("\n"), [], 0  # behind the last block
    for number, line, in_code in with_fences(lines):
        if number <= behind:
            continue
        if block := None if in_code else BLOCK.match(line):
            kind, spec = block.groups()
            result.append(line)
            if (closing := f"<!-- /{kind} -->") not in lines[number:]:
                problems.append((number, f"this {kind} is never closed by {closing}"))
                continue
            old = new = lines[number : lines.index(closing, number)]
            behind = number + len(old)
            try:
                new = written(kind, spec, old)
                if new != old:
                    problems.append((number, f"the {kind} of {spec} is out of date"))
            except (Refused, ValueError) as refused:
                problems.append((number, str(refused)))
            result += new
        elif in_code or "<!--= " not in line:
            result.append(line)
        else:
            result.append(with_numbers(line, lambda sentence, number=number: problems.append((number, sentence))))
    new = "\n".join(result)
    if DAGGER in re.sub("`[^`]*`", "", new):
        new += f"\n{NOTE}\n"
    if (NOTE in new) != (NOTE in text):
        problems.append((len(lines), f"the last line on {DAGGER} is out of date"))
    return text, new


@busy("comparing the documents with their sources")
def main():
    parser = Parser("sync", __doc__, EXAMPLE)
    parser.add_argument("--check", action="store_true", help="change nothing, say what is out of date")
    parser.add_argument("files", nargs="*", metavar="FILE", help="Markdown files (default: all of the checkout)")
    args = parser.parse_args()
    bad = 0
    for path in [Path(name) for name in args.files] or markdown_files():
        problems = []
        with named(path):
            old, new = synced(path, problems)
        for number, sentence in problems:
            # Without --check, drift is what gets repaired; only what cannot be repaired is worth a word.
            if args.check or " out of date" not in sentence and " should be " not in sentence:
                print(f"{relative(path)}:{number}: {sentence}", file=sys.stderr)
                bad += 1
        if not args.check and new != old:
            path.write_text(new, encoding="utf-8")
            print(f"updated {relative(path)}")
    if bad and args.check:
        print("scripts/fa sync rewrites what is out of date", file=sys.stderr)
    return 1 if bad else 0
