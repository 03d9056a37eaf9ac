"""Every kernel has a whole chapter: the parts of its frame in their order, each with what belongs to it. The online softmax: against three
passes, and its program. Sentences with a figure that is calculated."""

import io
import math
import random
import re
import statistics
import unittest
from contextlib import redirect_stdout

from support import ROOT, SCRIPTS, ScriptTest, main, seeded_bugs

from test_commands import commands_in

from fa_tools import tools
from fa_tools.cards import BOOK, EMULATOR
from fa_tools.measuring import measure
from fa_tools.patches import SOLUTION
from fa_tools.documents import prose
from fa_tools.documents.doc_tables import chapters_of
from fa_tools.documents.figures import beyond_pictures as schedules
from fa_tools.documents.figures import hopper_pictures, timeline
from fa_tools.documents.figures.first_pictures import FORMATS, kernels as measured_kernels, largest
from fa_tools.for_readers import shapes
from fa_tools.for_readers.intensity import intensity
from fa_tools.for_readers.limits import attention_flops, machine_named
from fa_tools.for_readers.online_softmax import NOTHING, SCORES, VALUES, add_tile, merge, three_passes, tiles_of
from fa_tools.sources import constant, fact
from fa_tools.tools import code_blocks

KERNELS = sorted(path.stem for path in (ROOT / "kernels").glob("[0-9][0-9]_*.cu"))
MEASURED = measured_kernels()
BEYOND = sorted(f"beyond/{path.stem}" for path in (ROOT / "docs" / "beyond").glob("*.md"))
BUGS = {bug["name"]: bug["kernel"] for bug in seeded_bugs()}
SOLUTIONS = tools.read_set(tools.RESULTS / EMULATOR / "solutions.jsonl")
PARTS = ("The question", "The picture", "In fifteen lines", "What should it give?", "The code", "What it gave",
         "The evidence", "Break it", "Your turn", "What you can say now", "Further reading")


def parts_of(kernel, headings):
    """Those that its chapter has. Of a kernel that has not been measured there is nothing to say in one of them."""
    return [part for part in PARTS if part != "What it gave" or kernel in MEASURED or part in headings]


PICTURE = re.compile(r"^!\[([^\]]+)\]\(([^)]+\.svg)\)$", re.MULTILINE)
NOTES = re.compile(r"^```\w+\n((?:(?!```).*\n)+)```\n<!-- /excerpt -->\n\n<!-- notes -->\n((?:.+\n)+)", re.MULTILINE)
GUESS = re.compile(r"<summary>Guess first: (?:(?!</summary>).)+\?</summary>")
EXERCISE = re.compile(r"^\*\*(\d+)\. [^*]+\*\*", re.MULTILINE)


def without_code(text):
    """The Markdown without what stands in fences."""
    return re.sub(r"^(```|~~~).*?^\1$", "", text, flags=re.MULTILINE | re.DOTALL)


class Chapter:
    def __init__(self, kernel):
        self.kernel, self.number = kernel, kernel[:2]
        self.text = (ROOT / "docs" / f"{kernel}.md").read_text(encoding="utf-8")
        self.headings = re.findall(r"^## (.+)$", without_code(self.text), re.MULTILINE)
        # Own sections may stand between those of the anatomy; they belong to the one before.
        first = min(self.text.index(f"\n## {heading}\n") for heading in self.headings)
        self.top, self.parts = self.text[:first], {}
        own = [heading for heading in self.headings if heading in PARTS]
        ends = [*own[1:], None]
        for heading, end in zip(own, ends):
            begin = self.text.index(f"\n## {heading}\n")
            self.parts[heading] = self.text[begin : end and self.text.index(f"\n## {end}\n")]

    def pictures(self, part, folder):
        return [path for _, path in PICTURE.findall(self.parts[part]) if path.startswith(folder)]


class Plain(ScriptTest):
    def test_nothing_needs_the_site(self):
        """A code host shows this Markdown as well: no tag but these, no markup of MkDocs' extensions."""
        for path in sorted((ROOT / "docs").rglob("*.md")):
            if "site" in path.relative_to(ROOT / "docs").parts:
                continue
            with self.subTest(path.name):
                text = without_code(path.read_text(encoding="utf-8"))
                text = re.sub(r"<!--.*?-->|^    .*?$|`[^`]*`", "", text, flags=re.DOTALL | re.MULTILINE)
                tags = set(re.findall(r"</?([a-z]+)[ >/]", text))
                self.assertLessEqual(tags, {"details", "summary", "a", "br", "sub", "sup"})
                self.assertEqual(re.findall(r"^(?:!!!|\?\?\?|:::|=== ).*|\{ ?[:.#][^}]*\}", text, re.MULTILINE), [])


def of_each_chapter(check, others=()):
    """A test of one chapter, and the kernels before and after it, becomes one of all."""
    def test(self):
        for before, kernel, after in [*zip([None, *KERNELS], KERNELS, [*KERNELS[1:], None]), *((None, other, None) for other in others)]:
            with self.subTest(kernel):
                check(self, Chapter(kernel), before, after)
    return test


def also_beyond(check):
    """The same, of the chapters on kernels/beyond, too."""
    return of_each_chapter(check, BEYOND)


class Whole(ScriptTest):
    def test_numbers(self):
        """Each that has been measured has a step of the map, too. An idea may be there before."""
        self.assertEqual([kernel[:2] for kernel in KERNELS], [f"{i:02}" for i in range(1, len(KERNELS) + 1)])
        self.assertTrue(all(fact(kernel, "idea") for kernel in MEASURED))
        self.assertEqual(MEASURED, KERNELS[:len(MEASURED)])

    def test_chapter_00(self):
        exercises = re.split(r"^\*\*\d\. ", CHAPTER.split("## Exercises")[1], flags=re.MULTILINE)[1:]
        self.assertEqual([text.count("<details>\n<summary>Solution</summary>\n\n") for text in exercises], [1, 1])
        self.assertGreaterEqual(len(GUESS.findall(CHAPTER)), 1)

    @of_each_chapter
    def test_parts_in_order(self, chapter, _before, _after):
        self.assertEqual([heading for heading in chapter.headings if heading in PARTS], parts_of(chapter.kernel, chapter.headings))
        self.assertRegex(chapter.text, rf"\A# {chapter.number}: \S")

    @of_each_chapter
    def test_command_and_links_at_the_top(self, chapter, before, after):
        # tests/test_commands.py runs it, and every other command of the chapter.
        self.assertEqual([command.text for command in commands_in(chapter.top)], [f"scripts/run.sh {chapter.number}"])
        self.assertIn(f"](../kernels/{chapter.kernel}.cu)", chapter.top)
        for neighbour in filter(None, (before, after)):
            self.assertIn(f"[{neighbour[:2]}]({neighbour}.md)", chapter.top)

    @of_each_chapter
    def test_pictures(self, chapter, _before, _after):
        # 05 and later have more than one; a picture stands alone, with words.
        self.assertEqual(len(PICTURE.findall(chapter.text)), chapter.text.count(".svg)"))
        for alt, path in PICTURE.findall(chapter.text):
            self.assertGreater(len(alt.split()), 4, alt)
            self.assertTrue((ROOT / "docs" / path).exists(), path)
        self.assertTrue(chapter.pictures("The picture", "pictures/"))

    @of_each_chapter
    def test_diff(self, chapter, before, _after):
        # Up to 05 nearly every line changes.
        marker = f"<!-- diff: kernels/{before}.cu kernels/{chapter.kernel}.cu -->"
        self.assertEqual(marker in chapter.text, chapter.number > "05")

    @of_each_chapter
    def test_the_bottleneck_is_what_the_chapter_before_measured(self, chapter, before, _after):
        if before in MEASURED:
            measured = re.findall(r"<!--= (?:solutions/|\S+ )(\d\d)", chapter.parts["The question"])
            self.assertIn(before[:2], measured)

    @also_beyond
    def test_fifteen_lines(self, chapter, _before, _after):
        (code,) = re.findall(r"^```text\n(.*?)^```$", chapter.parts["In fifteen lines"], re.MULTILINE | re.DOTALL)
        self.assertLessEqual(len(code.splitlines()), 15)

    @also_beyond
    def test_guesses_before_the_numbers(self, chapter, _before, _after):
        self.assertGreaterEqual(len(GUESS.findall(chapter.parts["What should it give?"])), 1)

    @of_each_chapter
    def test_code_numbers_and_evidence_are_generated(self, chapter, _before, _after):
        self.assertIn(f"<!-- excerpt: kernels/{chapter.kernel}.cu#", chapter.parts["The code"])
        if chapter.kernel not in MEASURED:
            return
        self.assertRegex(chapter.parts["What it gave"], r"<!-- (table|lengths): \w+(/\w+)? kernel=|<!-- (table|lengths): \w+ seq_len=")
        self.assertRegex(chapter.parts["The evidence"], rf"<!-- profile: profile kernel=\S*{chapter.number}_")

    @also_beyond
    def test_walk_through(self, chapter, _before, _after):
        """Remarks on lines of the central excerpt, from above downwards; or prose, before and behind each of a few excerpts."""
        walks = NOTES.findall(chapter.parts["The code"])
        self.assertEqual(len(walks), chapter.text.count("<!-- notes -->"), "remarks that do not follow code")
        self.assertLessEqual(len(walks), 1)
        if not walks:
            excerpts = re.findall(r"(.*)\n\n<!-- excerpt: .*\n(?:.*\n)*?<!-- /excerpt -->\n\n(.)", chapter.parts["The code"])
            self.assertTrue(3 <= len(excerpts) <= 5, len(excerpts))
            for announced, following in excerpts:
                self.assertTrue(announced.endswith(":"), announced)
                self.assertNotIn(following, "#<", "nothing is said of the excerpt")
        for code, remarks in walks:
            named = re.findall(r"^\d+\. (?:`([^`]+)`: )?", remarks, re.MULTILINE)
            self.assertTrue(4 <= len(named) <= 8, named)
            places = []
            for text in named:
                lines = [i for i, line in enumerate(code.splitlines()) if text and text in line]
                self.assertEqual(len(lines), 1, f"the remark on {text!r}: lines {lines} of the excerpt have it")
                places += lines
            self.assertEqual(places, sorted(set(places)), "a line twice, or not in their order")

    @of_each_chapter
    def test_bugs_can_be_run(self, chapter, _before, _after):
        text = chapter.parts["Break it"]
        own = {name for name, kernel in BUGS.items() if kernel == chapter.kernel}
        named = set(re.findall(rf"\b{chapter.number}_\w+", text)) - set(KERNELS)
        self.assertEqual(named - own, set())
        self.assertGreaterEqual(len(named & own), 2)
        (met,) = re.findall(r"`scripts/run\.sh --broken (\w+)`", text)
        self.assertIn(met, own)
        self.assertIn("(bugs.md", text)

    @also_beyond
    def test_exercises_have_solutions(self, chapter, _before, _after):
        exercises = chapter.parts["Your turn"]
        numbers = [int(number) for number in EXERCISE.findall(without_code(exercises))]
        self.assertEqual(numbers, list(range(1, len(numbers) + 1)))
        self.assertGreaterEqual(len(numbers), 3)
        for number, text in zip(numbers, EXERCISE.split(exercises)[2::2]):
            self.assertEqual(text.count("<details>\n<summary>Solution</summary>\n\n"), 1, number)
            self.assertTrue(text.split("</details>")[0].split("</summary>")[1].strip(), number)

    @of_each_chapter
    def test_solutions_that_compile_and_pass(self, chapter, _before, _after):
        text = chapter.parts["Your turn"]
        patches = [*(name for name, _ in SOLUTION.findall(text)), *re.findall(r"\(solutions/\d\d\.diff#(\w+)\)", text)]
        self.assertGreaterEqual(len(set(patches)), 3)
        for name in patches:
            (record,) = SOLUTIONS[name]["records"]
            # scripts/fa solutions has built it and held it to the oracle, on hard inputs too.
            self.assertEqual((record["kernel"], record["status"]), (KERNELS[int(name[:2]) - 1], "passed"), name)


class ThirtyMinutes(ScriptTest):
    def test_each_kernel_on_one_page(self):
        """A picture, a measured number, and from the second on what a line of the kernel before has become; up to the end of the
        climb a section closes with the question that the next one answers."""
        sections = re.split(r"^## (?=\d\d: )", (ROOT / "docs" / "in_thirty_minutes.md").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
        sections[-1] = sections[-1].partition("\n## ")[0]
        self.assertEqual(len(sections), len(KERNELS))
        for before, kernel, text in zip([None, *KERNELS], KERNELS, sections):
            with self.subTest(kernel):
                self.assertTrue(text.startswith(f"{kernel[:2]}: "))
                self.assertEqual(len(PICTURE.findall(text)), 1)
                self.assertIn(f"]({kernel}.md)", text)
                if kernel in MEASURED:
                    self.assertRegex(text, r"\*\*[\d.]+†?<!--= \S")
                paragraphs = [block for block in prose.blocks_of_markdown(text) if block.kind == "text"][1:]
                self.assertTrue(100 <= sum(prose.count(block.text) for block in paragraphs) <= 180)
                self.assertEqual(text.count("<!-- line: "), before is not None)
                if before:
                    self.assertIn(f"<!-- line: kernels/{before}.cu kernels/{kernel}.cu -->\n```diff\n-", text)
                if kernel[:2] < "16":
                    self.assertTrue(paragraphs[-1].text.endswith("?"))


class Beyond(ScriptTest):
    def test_the_frame(self):
        for kernel in BEYOND:
            with self.subTest(kernel):
                chapter, name = Chapter(kernel), {"beyond/scores": "causal"}.get(kernel, kernel.removeprefix("beyond/"))
                self.assertEqual([heading for heading in chapter.headings if heading in PARTS], parts_of(kernel, chapter.headings))
                gradients = (ROOT / "kernels" / "backward" / f"{name}.cu").exists()  # no program has these: their test is built and run
                target, source = ("fa_gradient_tests", f"backward/{name}") if gradients else (name, f"beyond/{name}")
                self.assertIn(f"cmake --build --preset emulator --target {target}\nbuild/emulator/bin/{target} ", chapter.top)
                self.assertIn(f"](../../kernels/{source}.cu)", chapter.top)
                self.assertTrue("```text\n" in chapter.parts["The picture"] if gradients or f"beyond/{name}" != kernel
                                else chapter.pictures("The picture", "../pictures/"))
                (met,) = re.findall(r"`scripts/run\.sh --broken (\w+)`", chapter.parts["Break it"])
                self.assertIn(kernel, chapters_of(BUGS[met]))


# ---- the online softmax ------------------------------------------------------------------------------------------------------------

CHAPTER = (ROOT / "docs/00_attention.md").read_text(encoding="utf-8")


def rows(count=40):
    """Random rows of every kind: ordinary, rising, falling, equal, and scores at which e^x overflows."""
    generator = random.Random(0)
    for i in range(count):
        length = generator.randrange(1, 20)
        scores = [generator.gauss(0, (1, 30, 900)[i % 3]) for _ in range(length)]
        scores = (scores, sorted(scores), sorted(scores)[::-1], [scores[0]] * length)[i // 3 % 4]
        yield scores, [generator.gauss(0, 1) for _ in range(length)]


class OnlineSoftmax(unittest.TestCase):
    def assert_equal(self, state, exact):
        self.assertEqual(state.m, exact.m)
        for one, other in ((state.l, exact.l), (state.o, exact.o)):
            self.assertTrue(math.isclose(one, other, rel_tol=1e-12, abs_tol=1e-12), (state, exact))

    def test_every_tile_size_gives_what_three_passes_give(self):
        for scores, values in rows():
            for tile in (1, 2, 3, len(scores)):
                state = NOTHING
                for keys in tiles_of(scores, tile):
                    state, rescale, weights = add_tile(state, [scores[j] for j in keys], [values[j] for j in keys])
                    self.assertLessEqual(max(rescale, *weights), 1)
                self.assert_equal(state, three_passes(scores, values))

    def test_merge(self):
        for scores, values in rows():
            parts = [add_tile(NOTHING, [s], [v])[0] for s, v in zip(scores, values)]
            left = right = NOTHING
            for part in parts:
                left = merge(left, part)
            for part in reversed(parts):
                right = merge(part, right)
            self.assert_equal(left, three_passes(scores, values))
            self.assert_equal(right, three_passes(scores, values))
        self.assertEqual(merge(NOTHING, NOTHING), NOTHING)


class Program(ScriptTest):
    def run_program(self, *arguments):
        return self.run_script(SCRIPTS / "fa", "softmax", *arguments)

    def test_table(self):
        done = self.run_program("--scores", "0,0,0,0,100", "--values", "1,2,3,4,9", "--tile", "4")
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stdout.splitlines()
        self.assertEqual(lines[4].split()[-3:], ["4.0000", "10.0000", "2.5000"])
        self.assertEqual(lines[5].split()[:4], ["1", "100", "100", "0.0000"])
        self.assertEqual(lines[5].split()[-1], "9.0000")
        self.assertLessEqual(max(map(len, lines)), 100)

    def test_refused(self):
        self.assert_one_sentence(self.run_program("--scores", "1,2"), "there are 2 scores and 6 values")
        self.assert_one_sentence(self.run_program("--scores", "1,x"), "--scores takes numbers")
        self.assert_one_sentence(self.run_program("--values", "1,inf"), "--values takes numbers")
        self.assert_one_sentence(self.run_program("--tile", "5"), "--tile must be between 1 and 4, not 5")


# ---- sentences with a figure that is calculated, and so has no record to name ----------------------------------------------

H200 = machine_named(BOOK)[1]
SM, SECONDS = H200["sm"], 1.83e9  # cycles of one, at the clock of the data sheet


def words_of(page):
    """In one line, without comments."""
    return " ".join(re.sub(r"<!--.*?-->", "", (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8"), flags=re.DOTALL).split())


def of_balance():
    needed = H200["tflops"]["tensor"] / H200["tb_per_s"]["l2"]
    enough = next(m for m in range(64, 129) if m * 4096 / (m + 4096) >= needed)
    few, many = (intensity("l2", m, 64, 128, 4096).intensity for m in (64, 128))
    yield "00_attention", f"so {math.ceil(2 * H200['tflops']['tensor'] / H200['tb_per_s']['hbm'])} tokens are enough"
    yield "00_attention", f"At 4096 tokens {enough} queries reach it: 64 have {few:.1f}, and 128 have {many:.1f}."


def of_one_head():
    hbm, shared = (intensity(level, 64, 64, 128, 4096) for level in ("hbm", "shared"))
    gflops = attention_flops(1, 1, 4096, 128) / 1e9
    yield "00_attention", f"= {gflops:.1f} GFLOP, so 64 heads are {64 * gflops:.0f}."
    yield "00_attention", f"At 4096 tokens we have {hbm.intensity:,.0f} FLOPs for every byte."
    yield "06_mma_split_q", f"64 · {(shared.bytes / 64 - 16 * 1024) / 64 / 128:,.0f} · 128 bytes and the 16 KB of Q are {shared.bytes / 64e6:.2f} MB"


def of_full_speed():
    per_cycle = SM["count"] * SM["wgmma_flops"]
    share = {1 / 8: "an eighth"}[4 * 128 / SM["wgmma_flops"]]
    yield "00_attention", f"All SMs together do {per_cycle:,} FLOPs per cycle"
    yield "00_attention", f"At $D = 128$ the Tensor Cores need {share} of a cycle for both products of that score"
    for clock in (1.98, 1.83, 1.81):
        yield "results", f"| 4,096 | 100 % | {clock} | {per_cycle * clock / 1e3:,.0f} |"


def of_a_layer():
    def share(tokens, width):
        attention = attention_flops(1, width // 128, tokens, 128) / tokens
        return {0.5: "equal", 0.8: "four fifths"}[attention / (attention + 24 * width**2)]

    yield "00_attention", (f"The two are {share(12288, 2048)} at $N = 6 d$, which is about twelve thousand tokens; at four times that length, "
                           f"attention is {share(49152, 2048)}")
    yield "00_attention", f"at $N = 6 d$ = {6 * 8192:,} tokens."


def of_numbers():
    ends = {name: f"{math.log(largest(*FORMATS[name])):.1f}" for name in FORMATS}
    yield "00_attention", f"In fp32 $e^x$ overflows beyond $x = {ends['fp32']}$"
    yield "04_wmma", f"$e^x$ overflows it beyond $x = {ends['fp16']}$"
    parts = [add_tile(NOTHING, SCORES[keys], VALUES[keys])[0] for keys in (slice(3), slice(3, 6))]
    for state in (*parts, merge(*parts)):
        yield "02_online_softmax", f"({state.m:g}, {state.l:.4f}, {state.o:.4f})"
    code = next(block for block in code_blocks(ROOT / "docs/04_wmma.md", "python") if block.startswith("import math, struct\n"))
    with redirect_stdout(io.StringIO()) as printed:
        exec(code, {})
    yield "04_wmma", f"```text {' '.join(printed.getvalue().split())} ```"
    bugs = re.search(r"\*\*(\d+) of (\d+) bugs give right numbers on ordinary inputs", words_of("bugs"))
    yield "01_naive", f"[{'Nearly a third' if 0.28 < int(bugs[1]) / int(bugs[2]) < 0.334 else 'Another share'} of the seeded bugs]"


def of_a_ring():
    stages = constant("12", "kStages")
    for n in range(6):
        over = f"phase {n // stages - 1} of `empty[{n % stages}]` is over: tile {n - stages} is released" if n >= stages else "no phase came before,"
        yield "12_tma", f"| {n} | {n % stages} | {n // stages} | {n // stages % 2} | {(n // stages + 1) % 2} | {over}"


def recorded(number):
    """The events of a kernel's recording, and the name of each row."""
    events = timeline.load(f"{tools.RESULTS}/{BOOK}/timelines.jsonl#{number}")["traceEvents"]
    return [e for e in events if e["ph"] == "X"], {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}, {
        e["args"].get("name"): e["pid"] for e in events if e["ph"] == "M"}


def of_pauses():
    """Between products, from the first to the last one; chapter 12 draws them."""
    for kernel in ("11_wgmma", "12_tma", "13_warp_specialization"):
        events, _, rows = recorded(kernel[:2])
        products = sorted((e["ts"], e["ts"] + e["dur"]) for e in events if e["pid"] == rows["Products under way"])
        first = over = products[0][0]
        pauses = []
        for begin, end in products:
            pauses += [begin - over] if begin > over else []
            over = max(over, end)
        yield kernel, f"no product is under way in {100 * sum(pauses) / (over - first):.0f} %"
        if kernel < "13":  # the bar: four tiles of 2,048 cycles, the rest with a product, and without one
            shares = (4 * 2048, over - first - sum(pauses) - 4 * 2048, sum(pauses))
            yield "12_tma", f"kernel {kernel[:2]} {''.join(sign * round(cycles / 250) for sign, cycles in zip('#+.', shares))} "
    one, two, three = (f"{pause:,.0f}" for pause in pauses[:3])
    yield "13_warp_specialization", f"none is under way for {one} cycles, after the second for {two}, then for {three}"


def of_a_boundary():
    """How far apart warp 0 starts its QK, in an ordinary iteration, at the boundary and after it."""
    events, rows, _ = recorded("15")
    (wait,) = [e["ts"] for e in events if rows[e["pid"], e["tid"]] == "warp 0" and e["name"].startswith("waits: ")
               and "q_full[t % 2]" in e["args"]["statement"]]
    starts = sorted(e["ts"] for e in events if e["pid"] == 2 and rows[e["pid"], e["tid"]] in ("warp 0", "warp 0 (2)"))[1::2]  # the prologue has a QK alone
    steps = [after - before for before, after in zip(starts, starts[1:])]
    at = next(i for i, start in enumerate(starts) if start > wait)
    ordinary, boundary, after = (f"{round(step, -2):,.0f}" for step in (statistics.median([*steps[:at], *steps[at + 2:]]), *steps[at:at + 2]))
    yield "15_persistent", f"Ordinary iterations are about {ordinary} cycles apart. The boundary's takes about {boundary} cycles"
    yield "15_persistent", f"the next one, which stores O, about {after}."


def of_a_row():
    """The example of chapter 16: scores, reference, P, and of the first tiles the sum."""
    for moment in hopper_pictures.follow_row(hopper_pictures.ROW):
        up = moment.after - moment.reference
        rows = [((moment.tile, *moment.scores), moment.reference, moment.exponents)]
        rows += [(("raised:",), moment.after, [each - up for each in moment.exponents])] if 0 < up < math.inf else []
        for names, reference, exponents in rows:
            sums = [f"2^{moment.total:.1f}"] if moment.tile < 2 else []
            yield "16_max_free", " ".join(map(str, (*names, f"{reference:.0f}", *("inf" if each >= 128 else f"2^{each:.0f}" for each in exponents), *sums)))


def of_query_tiles():
    rules = {tokens: schedules.rules(2**18 // tokens, tokens // schedules.TILE, schedules.section_heads(tokens, 2**18 // tokens))
             for tokens in (512, 1024, 16384)}
    third, other = (schedules.dealt(rules[tokens][0].order, schedules.sms(), False)[sm] for tokens, sm in ((512, 3), (16384, 67)))
    (most,), pairs = {piece.tiles for piece in third}, schedules.Rule("", [(0, 9)] * 1024, False)
    yield "beyond/causal", f"So CTA 3 gets the longest tile of a head in every round: {len(third)} rounds of {most} key tiles"
    yield "beyond/causal", "CTA 67 has tile {} of one head, tile {} of the next one, and so on up to tile {},".format(*(other[i].tiles - 1 for i in (0, 1, -1)))
    yield "beyond/causal", (f"The busiest SM has {schedules.busiest(pairs) // 9} pairs, {schedules.busiest(pairs)} key tiles, and the rule with "
                            f"sections {schedules.busiest(rules[1024][3])}.")
    yield "beyond/causal", f"So there are 2 + 3 + … + 9 = {sum(schedules.key_tiles(row, 1024, 1124) for row in range(0, 1024, 128))} tiles"


def of_pieces():
    problems = {(16, 16, 16384): "16", (8, 1, 131072): "8 on 1", (800, 200, 4096): "800 on 200"}
    one, many, rounds = cuts = [schedules.cut(heads, kv_heads, 1, keys) for heads, kv_heads, keys in problems]
    own, shared = schedules.cut(64, 64, 1, 4096), schedules.cut(64, 4, 1, 4096)
    eighths = {(7, 8): "seven or eight"}[many.blocks // many.pieces, many.busiest]
    merges = (3 + 1) * 32 * 16  # in three CTAs the warps' parts, in the last of them the CTAs'
    stage, seeds = 128 * 128 * 2, {len(entry.each) for entry in measure.manifest() if entry.group == "shapes"}
    for sentence in (
            *(f"| {heads} | 1 | {keys:,} | {cut.tiles} | {cut.blocks:,} | {cut.pieces} | {cut.busiest} | {cut.tiles * cut.blocks / schedules.sms():.1f} |"
              for ((_, _, keys), heads), cut in zip(problems.items(), cuts)),
            f"piece 3 of {one.pieces}, of {one.blocks} blocks: from {one.blocks} · 3 / {one.pieces} = {one.blocks * 3 // one.pieces} "
            f"to below {one.blocks} · 4 / {one.pieces} = {one.blocks * 4 // one.pieces}",
            f"one query tile is cut into {many.pieces} pieces of {eighths} blocks",
            f"and {2 * schedules.sms() - rounds.tiles} SMs are idle in a second round",
            f"There are {own.tiles} tiles of {own.blocks} blocks, so {schedules.sms()} / {own.tiles} = {own.pieces} pieces, "
            f"{own.tiles * own.pieces} CTAs and {own.busiest} blocks each.",
            f"only {shared.blocks} blocks each, so {shared.pieces} pieces, {shared.tiles * shared.pieces} CTAs and one block each",
            *(f"head_dim {dim} {warps} warps · 3 stages · 16 keys · {dim * 4:,} bytes = {warps * 3 * 16 * dim * 4 >> 10} KiB" for dim, warps in ((128, 8), (256, 4))),
            f"a warp's tile takes {4 * 16 * 16 * 256 / (2731 / 4):.0f} cycles", f"the O of two teams takes {2 * 64 * (256 + 8) * 4 >> 10} KiB",
            f"K and V are {16 * 16384 * 256 * 2 >> 20} MiB", f"the bytes take {16 * 16384 * 256 * 2 / H200['tb_per_s']['hbm'] / 1e6:.0f} µs",
            f"three stages of {2 * stage >> 10} KiB, and two of them are under way: {4 * stage >> 10} KiB", f"The sum is {merges:,}.",
            *(f" - {(16 * 4096 + 24 * 64 + rows * merges) / 1000:.1f} k ```" for rows in (1, 16)),
            *(f"with {({2: 'two'})[count]} seeds we have {count * shapes.COUNT} problems" for count in seeds)):
        yield "beyond/split_keys", sentence


class Sentences(ScriptTest):
    def test_they_say_what_is_calculated(self):
        for subject in (of_balance, of_one_head, of_full_speed, of_a_layer, of_numbers, of_a_ring, of_pauses, of_a_boundary, of_a_row,
                        of_query_tiles, of_pieces):
            for page, sentence in subject():
                with self.subTest(f"{subject.__name__}: {sentence}"):
                    self.assertIn(sentence, words_of(page))

    def test_ceilings_are_in_one_place(self):
        for path in sorted((ROOT / "docs").rglob("*.md")):
            text = re.sub(r"<!--.*?-->", "", without_code(path.read_text(encoding="utf-8")), flags=re.DOTALL)
            self.assertEqual(len(re.findall(r"(?<![\d,.])(?:979|989|1,071)(?![\d,.]\d)", text)), 3 * (path.name == "results.md"), path.name)

    def test_an_intensity_with_the_softmax(self):
        """As Flash Attention from Scratch counts a tile of queries against all keys."""
        tile = 2 * 64 * 32 * 128 + 64 * (5 * 32 + 128 + 4)
        self.assertAlmostEqual(intensity("l2", 64, 32, 128, 4096, softmax=True).intensity,
                               tile * (4096 // 32) / (128 * 2 * (64 + 4096) * 2))


if __name__ == "__main__":
    main()
