"""The interactive pages as they are built: they need nothing from elsewhere, and answer keyboard and pointer. What each says while
somebody uses it is in explorers.json, and test_interactive.py --write puts it there, for you to read in the diff."""

import json
import re
import shutil
import subprocess
import unittest
from html import unescape
from pathlib import Path

from support import ROOT, ScriptTest, given, main

from fa_tools.cards import EMULATOR
from fa_tools.documents.links import slug
from fa_tools.tools import RESULTS, read_json, read_set

DOCUMENT, PAGES = ROOT / "docs" / "interactive.md", ROOT / "build" / "emulator" / "interactive"
SOLUTIONS = read_set(RESULTS / EMULATOR / "solutions.jsonl")
# {name: section of the document}, in the order in which its first lines name the pages; {name: anchor}
START, *TEXTS = DOCUMENT.read_text(encoding="utf-8").split("\n## ")
SECTIONS = dict(zip(re.findall(r"(\w+)\.html`", START), TEXTS, strict=True))
ANCHORS = {name: slug(text.partition("\n")[0], {}) for name, text in SECTIONS.items()}
NAMES = sorted(SECTIONS)
BUILT = (PAGES / "complete").exists()
needs_pages = unittest.skipUnless(BUILT, "no interactive pages in build/emulator (scripts/fa docs interactive builds them)")
KEPT, WRITE = Path(__file__).with_name("explorers.json"), given("--write")
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

# The contract that docs/interactive/src/ui.mjs promises to tests, tried out in the page itself. `say` collects what is
# found; a page's own steps go where STEPS stands.
PROBE = """<script>
const errors = [];
addEventListener("error", (event) => errors.push(event.message));
addEventListener("unhandledrejection", (event) => errors.push(String(event.reason)));
</script>
"""
STEPS = """<script type="module">
const found = {ready: document.body.dataset.ready === "true"};
const status = () => document.querySelector("[data-status]").textContent;
const key = (name) => document.activeElement.dispatchEvent(new KeyboardEvent("keydown", {key: name, bubbles: true,
                                                                                         cancelable: true}));
const over = (element) => element.dispatchEvent(new PointerEvent("pointerover", {bubbles: true, pointerType: "mouse"}));
found.begins = status();
try {
  const keyboards = [...document.querySelectorAll("[data-keyboard]")].filter((element) => element.offsetParent);
  found.keyboards = keyboards.map((element) => {
    const stop = element.matches('[tabindex="0"]') ? element : element.querySelector('[tabindex="0"]');
    stop.focus();
    const before = status();
    const changed = ["ArrowRight", "ArrowDown", "ArrowLeft"].some((name) => { key(name); return status() !== before; });
    document.activeElement.blur();
    return changed;
  });
  const before = status();
  const targets = [...document.querySelectorAll("[data-hover]")].filter((element) => element.getClientRects().length);
  found.hover = targets.slice(0, 3).map((element) => { over(element); return status() !== before; });
  document.documentElement.style.width = "380px";  // a phone; windows of this browser are not so narrow
  found.wide = document.body.scrollWidth - document.body.clientWidth;
  document.documentElement.style.width = "";
  MORE
} catch (problem) {
  errors.push(String(problem));
}
found.errors = errors;
const result = document.createElement("pre");
result.id = "found";
result.textContent = JSON.stringify(found);
document.body.append(result);
</script>
"""


@needs_pages
class Pages(unittest.TestCase):
    def test_need_nothing_from_elsewhere(self):
        for name in NAMES:
            text = (PAGES / f"{name}.html").read_text(encoding="utf-8")
            addresses = set(re.findall(r"[a-z]+://[^\s\"'<>)]*", text))
            self.assertEqual(addresses, set(), name)
            self.assertNotRegex(text, r"<script[^>]* src=|<link[^>]* href=\"(?!data:)|@import|\bfetch\(|XMLHttpRequest", name)
            self.assertIn("default-src 'none'", text, name)
            self.assertLess(len(text), 500_000, name)

    def test_each_has_its_text(self):
        self.assertEqual({path.stem for path in PAGES.glob("*.html")}, set(NAMES))
        for name, text in SECTIONS.items():
            self.assertIn("### Three things to find", text, name)
            self.assertRegex(DOCUMENT.read_text(encoding="utf-8"), rf"[`/]{name}\.html`")

    def test_states_of_the_texts(self):
        """A page has each state to which a text leads, by its name, with spaces for hyphens."""
        links = {(state, anchor) for path in (ROOT / "docs").rglob("*.md")
                 for state, anchor in re.findall(r"\]\((?:\.\./)*interactive\.md\?([^)#]+)#([^)]+)\)", path.read_text(encoding="utf-8"))}
        self.assertEqual({anchor for _, anchor in links}, set(ANCHORS.values()))
        for name, anchor in ANCHORS.items():
            page = (PAGES / f"{name}.html").read_text(encoding="utf-8")
            of_its_own = re.findall(r"\]\(interactive\.md\?[^)#]+#([^)]+)\)", SECTIONS[name])
            self.assertGreater(len(of_its_own), 2, name)
            self.assertEqual(set(of_its_own), {anchor})
            for state in (state for state, section in links if section == anchor):
                self.assertTrue(f'"{state}"' in page or f'"{state.replace("-", " ")}"' in page, f"a text leads to the {anchor} in the state {state}")


def data(name):
    return json.loads((PAGES / "data" / f"{name}.json").read_text(encoding="utf-8"))


def elements(view):
    """(thread, register, half) -> (row, column) of a view of the fragment explorer."""
    return {(thread, i // 2 // view["halves"], i // 2 % view["halves"]): (flat[i], flat[i + 1])
            for thread, flat in enumerate(view["positions"]) for i in range(0, len(flat), 2)}


@needs_pages
class Fragments(unittest.TestCase):
    def setUp(self):
        self.views = {view["id"]: view for view in data("fragments")["views"]}

    def test_every_element_has_one_place(self):
        for view in self.views.values():
            places = sorted(elements(view).values())
            self.assertEqual(places, [(row, column) for row in range(view["rows"]) for column in range(view["columns"])],
                             view["id"])
            self.assertEqual({len(flat) for flat in view["positions"]}, {2 * view["registers"] * view["halves"]})

    def test_an_accumulator_becomes_an_operand_in_the_same_thread(self):
        met = 0
        for view in self.views.values():
            if "becomes" in view:
                owner = {place: thread for (thread, _, _), place in elements(self.views[view["becomes"]]).items()}
                for (thread, _, _), (row, column) in elements(view).items():
                    self.assertEqual(owner[row, column % 16], thread, view["id"])
                met += 1
        self.assertEqual(met, 2)

    def test_addresses(self):
        for name in ("ldmatrix_q", "ldmatrix_k", "ldmatrix_v"):
            rows = [tuple(address) for address in self.views[name]["addresses"]]
            self.assertEqual(sorted(rows), [(row, column) for row in range(16) for column in (0, 8)])
            for (_, register, _), (row, column) in elements(self.views[name]).items():  # register m is matrix m
                self.assertIn((row, column // 8 * 8), rows[8 * register : 8 * register + 8])


@needs_pages
class Banks(unittest.TestCase):
    """Kernels 07 and 08 touch shared memory by ldmatrix and cp.async only, so that the page's numbers add up to theirs."""

    def setUp(self):
        self.cases = data("banks")["cases"]

    def test_kernels_and_solutions(self):
        for name, pad, layout in (("07_no_padding", 0, "none"), ("07_cp_async", 8, "none"), ("08_swizzle", 0, "xor"),
                                  ("08_rotation", 0, "rotation"), ("08_every_other_row", 0, "every_other_row"),
                                  ("08_64_byte_rows", 0, "mode_64")):
            counters = SOLUTIONS[name]["records"][0]["counters"]
            for field, total in (("wavefronts", "shared_wavefronts"), ("ideal", "shared_wavefronts_ideal")):
                matrices = {self.cases[f"{pattern} 128 {pad} {layout}"][field] for pattern in ("ldmatrix_q", "ldmatrix_k")}
                self.assertEqual(len(matrices), 1)
                copies = self.cases[f"rows_16 128 {pad} {layout}"][field]
                self.assertEqual(counters["ldmatrix"] * matrices.pop() + counters["async_copies"] // 32 * copies,
                                 counters[total], (name, field))

    def test_a_bank_gives_one_word_a_wavefront(self):
        sizes = {pattern["id"]: pattern["bytes"] for pattern in data("banks")["patterns"]}
        for name, case in self.cases.items():
            size, taken = sizes[name.split()[0]], {}
            for address, turn in zip(case["addresses"], case["served"]):
                for word in range(address // 4, (address + size + 3) // 4):
                    self.assertEqual(taken.setdefault((turn, word % 32), word), word, name)
            self.assertEqual({turn for turn, _ in taken}, set(range(case["wavefronts"])), name)
            self.assertLessEqual(case["ideal"], case["wavefronts"])

    def test_numbers_of_the_text(self):
        """What it says after the link to a case."""
        text = SECTIONS["banks"].replace("\n", " ")
        said = re.findall(r"\(interactive\.md\?([\w-]+)#[\w-]+\)[^#]*?(\d+) wavefronts?, +([\d.]+) per ideal +one", re.sub(" +", " ", text))
        self.assertEqual(len(said), len(re.findall(r"per ideal +one", text)))
        for state, wavefronts, ratio in said:
            case = self.cases[state.replace("-", " ")]
            self.assertEqual((wavefronts, ratio), (str(case["wavefronts"]), f"{case['wavefronts'] / case['ideal']:.2f}"), state)


@needs_pages
class Softmax(unittest.TestCase):
    def setUp(self):
        self.presets = {preset["id"]: preset for preset in data("softmax")["presets"]}

    def test_words_name_the_kernels_constants(self):
        words = " ".join(SECTIONS["softmax"].split())
        for each in ("larger than 2^{growth:.0f}", "a number {margin:.0f} above", "a block's sum exceeds 2^{sum:.0f}"):
            self.assertIn(each.format(**data("softmax")), words)
        given_up = self.presets["lost"]
        exponent = max(given_up["scores"]) * data("softmax")["log2e"] - given_up["steps"]["first 2"][0]["m"]
        self.assertGreater(exponent, 128)
        self.assertIn(f"a key of [{max(given_up['scores']):.0f}](", words)
        self.assertIn(f"its P would be about 2^{exponent:.0f}, which is infinite", words)

    def test_same_quotient(self):
        for preset in self.presets.values():
            for name, steps in preset["steps"].items():
                for mine, plain in zip(preset["mended"] if steps[-1]["lost"] else steps[-1]["o"], preset["plain"]):
                    # fp32, and scores 100 higher have digits less
                    self.assertLess(abs(mine - plain), 2e-5 * max(1, abs(plain)), (preset["id"], name))

    def test_who_rescales(self):
        def times(preset, mode, block=2):
            steps = self.presets[preset]["steps"][f"{mode} {block}"]
            return sum(step["rescaled"] and step["factor"] != 1 for step in steps[1:])
        self.assertEqual([times("increasing", mode) for mode in ("classic", "lazy", "first")], [7, 1, 0])
        self.assertEqual([times("steep", mode) for mode in ("classic", "lazy", "first")], [7, 7, 2])
        self.assertEqual([times("random", mode) for mode in ("lazy", "first")], [0, 0])
        self.assertEqual([times("dominant", mode) for mode in ("lazy", "first")], [1, 1])
        self.assertEqual([times("lost", mode) for mode in ("lazy", "first")], [1, 0])
        self.assertEqual(times("high", "first"), 0)
        lost = {name: [step["lost"] for step in preset["steps"]["first 2"]] for name, preset in self.presets.items()}
        self.assertEqual(lost["lost"], [False] * 5 + [True] * 3)
        self.assertEqual({name for name, states in lost.items() if any(states)}, {"lost"})
        for preset in self.presets:
            for block in (1, 2, 4):
                self.assertLessEqual(times(preset, "lazy", block), times(preset, "classic", block))


@needs_pages
@unittest.skipUnless(BROWSER, "no Chromium here")
class Browser(ScriptTest):
    def visit(self, name, more="", shown=""):
        """What the page finds of itself; `more`: JavaScript that puts more into `found`; `shown`: a function of the page's
        module that `more` can call."""
        text = (PAGES / f"{name}.html").read_text(encoding="utf-8")
        text = text.replace("<style>", PROBE + "<style>", 1).replace("</body>", STEPS.replace("MORE", more) + "</body>", 1)
        if shown:
            run = f"module_ui.run(module_{name}.start);"
            text = text.replace(run, f"{run} window.{shown} = module_{name}.{shown};", 1)
        done = subprocess.run(
            [BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             f"--user-data-dir={self.folder}/profile", "--window-size=1000,900", "--virtual-time-budget=3000",
             "--dump-dom", self.write(f"{name}.html", text).as_uri()], capture_output=True, text=True, timeout=60, check=False)
        found = re.search(r'<pre id="found">(.*?)</pre>', done.stdout, re.S)
        self.assertTrue(found, done.stdout[-2000:] + done.stderr[-2000:])
        return json.loads(unescape(found[1]))

    def assert_kept(self, name, found):
        self.assertEqual(found["errors"], [])
        kept = read_json(KEPT)
        if WRITE:
            kept[name] = found
            pages = (f"{json.dumps(page)}: {json.dumps(said, ensure_ascii=False)}" for page, said in sorted(kept.items()))
            KEPT.write_text("{" + ",\n".join(pages) + "}\n", encoding="utf-8")
        self.assertEqual(found, kept[name])

    def test_contract(self):
        for name in NAMES:
            with self.subTest(name):
                found = self.visit(name)
                self.assertEqual(found["errors"], [])
                self.assertTrue(found["ready"])
                self.assertTrue(found["keyboards"] and all(found["keyboards"]), found)
                self.assertTrue(found["hover"] and all(found["hover"]), found)
                self.assertEqual(found["wide"], 0)

    def test_fragments(self):
        found = self.visit("fragments", """
          const cells = (grid) => document.querySelectorAll(".grid")[grid].querySelectorAll(".cell");
          const leave = (grid) => document.querySelectorAll(".grid")[grid].dispatchEvent(
            new PointerEvent("pointerleave", {pointerType: "mouse"}));
          const lit = () => [...cells(0)].filter((cell) => /lit|chosen/.test(cell.className)).map((cell) => cell.textContent);
          over(cells(1)[5]);
          found.lane = status();
          found.lit = lit();
          over(cells(0)[1 * 16 + 10]);
          found.element = status();
          cells(0)[1 * 16 + 10].click();
          cells(0)[26].blur();
          leave(0);
          found.pinned = status();
          over(cells(1)[6]);
          found.other = status();
          leave(1);
          found.again = status();
          cells(0)[26].focus();
          key("Escape");
          found.cleared = lit();
          location.hash = "#ldmatrix_v";
          dispatchEvent(new Event("hashchange"));
          over(cells(1)[5]);
          found.trans = status();
          found.framed = [...cells(0)].filter((cell) => /framed/.test(cell.className)).map((cell) => cell.dataset.index);
        """)
        self.assert_kept("fragments", found)

    def test_descriptor(self):
        found = self.visit("descriptor", """
          const input = (id) => document.getElementById(id);
          const type = (id, text) => {
            input(id).value = text;
            input(id).dispatchEvent(new Event(input(id).tagName === "SELECT" ? "change" : "input"));
          };
          const warnings = () => [...document.querySelectorAll(".warnings li")].map((item) => item.textContent);
          const choose = (select, value) => { select.value = value; select.dispatchEvent(new Event("change")); };
          const presets = document.querySelector("select"), data = JSON.parse(document.getElementById("data").textContent);
          const bits = () => [...document.querySelectorAll(".grid")[0].querySelectorAll(".cell")].map((cell) => cell.textContent).join("");
          // Every descriptor of the kernel's: nothing wrong, and its own fields make the same bits again.
          found.presets = [];
          for (const preset of data.presets) {
            for (let step = 0; step < preset.steps.length; step++) {
              choose(presets, preset.id);
              choose(document.querySelectorAll("select")[1], String(step));
              const wanted = preset.steps[step].descriptor, fields = {};
              const shown = [input("hex").value, "0x" + BigInt("0b" + bits()).toString(16).padStart(16, "0")];
              const lit = document.querySelectorAll(".grid")[1].querySelectorAll(".lit").length;
              for (const id of ["start", "leading", "stride", "base_offset", "mode"]) fields[id] = input(`field-${id}`).value;
              const fine = warnings().join();
              type("hex", "0");
              for (const [id, value] of Object.entries(fields)) type(`field-${id}`, value);
              if (shown[0] !== wanted || shown[1] !== wanted || input("hex").value !== wanted || lit !== preset.steps[step].reads.length
                  || fine !== "Nothing is wrong with it.") found.presets.push([wanted, shown, input("hex").value, lit, fine]);
            }
          }
          choose(presets, "k128");
          found.wrong = {};
          for (const [id, text] of [["start", "0x8408"], ["start", "0x40000"], ["start", "0x8500"], ["start", "eight"],
                                    ["base_offset", "8"], ["stride", "512"], ["mode", "0"], ["start", "0x39000"]]) {
            choose(presets, "v128");
            type(`field-${id}`, text);
            found.wrong[`${id} ${text}`] = [warnings().join(" "), input("hex").value, input(`field-${id}`).getAttribute("aria-invalid")];
          }
          choose(presets, "k128");
          document.querySelectorAll(".grid")[0].querySelectorAll(".cell")[63 - 14].click();
          found.nobodys = warnings();
          found.flipped = input("hex").value;
          type("hex", "0x12345678123456789");
          found.long = warnings();
          type("hex", "4000004004001840");
          found.pasted = [input("field-start").value, input("field-leading").value, presets.value, document.querySelector("p code").textContent];
        """)
        self.assertEqual(found["presets"], [])
        self.assert_kept("descriptor", found)

    def test_banks(self):
        found = self.visit("banks", """
          const counts = () => document.querySelector(".counts").textContent;
          const lit = (grid) => [...document.querySelectorAll(".grid")[grid].querySelectorAll(".lit")].map((cell) => cell.dataset.index);
          const select = (i, value) => {
            const list = document.querySelectorAll("select")[i];
            list.value = value;
            list.dispatchEvent(new Event("change"));
          };
          found.first = counts();
          over([...document.querySelectorAll(".grid")[0].querySelectorAll(".cell")].find((cell) => cell.textContent === "17"));
          found.lane = status();
          found.lit = [lit(0), lit(1)];
          select(3, "8");
          found.padded = counts();
          select(4, "rotation");  // has no padding
          found.rotated = [counts(), document.querySelectorAll("select")[3].value, location.hash];
          select(3, "2");  // would not be aligned
          found.refused = document.querySelector(".note").textContent;
          location.hash = "#rows_16-128-0-mode_64";
          dispatchEvent(new Event("hashchange"));
          found.copies = [counts(), document.querySelectorAll("select")[0].selectedOptions[0].textContent];
        """)
        self.assert_kept("banks", found)

    def test_softmax(self):
        presets = data("softmax")["presets"]
        found = self.visit("softmax", """
          const data = JSON.parse(document.getElementById("data").textContent);
          found.steps = data.presets.map(({scores, steps}) => Object.fromEntries(Object.keys(steps).map((name) => {
            const [mode, block] = name.split(" ");
            return [name, stepsOf(scores, Number(block), mode, data)];
          })));
          found.about = [...document.querySelectorAll("section .note")].map((note) => note.textContent).join(" ");
          const button = (i) => document.querySelectorAll("[role=group] button")[i];
          found.framed = document.querySelectorAll(".cell.framed").length;
          button(2).click();
          found.second = status();
          button(3).click();
          found.end = [...document.querySelectorAll("section")].map((section) => section.lastChild.textContent);
          found.disabled = [0, 1, 2, 3].map((i) => button(i).disabled);
          const take = (text) => {
            document.querySelector("form input").value = text;
            document.querySelector("form").requestSubmit();
            return document.querySelector("[role=alert]").textContent;
          };
          found.alerts = [take("1"), take("1, two"), take("1, 1e9"), take("0, 0, 100")];
          button(3).click();
          const ends = () => [...document.querySelectorAll("tbody tr:last-child td:last-child")].map((cell) => cell.textContent);
          found.own = ends();
          found.alerts.push(take("0, 200, 0, 0"));
          found.first = status();
          found.alerts.push(take("0, 0, 200, 0, 0"));
          button(3).click();
          found.lost = [status(), ends()[2], document.querySelector("section:last-child tbody tr:last-child").textContent,
                        [...document.querySelectorAll("section")].at(-1).lastChild.textContent,
                        [...document.querySelectorAll("p")].find((line) => line.textContent.startsWith("Plain")).textContent];
        """, shown="stepsOf")
        for preset, mine in zip(presets, found.pop("steps")):
            self.assertEqual(mine.keys(), preset["steps"].keys())
            for name, steps in preset["steps"].items():
                self.assertEqual(len(mine[name]), len(steps))
                for theirs, ours in zip(steps, mine[name]):
                    where = (preset["id"], name)
                    self.assertEqual([theirs["rescaled"], theirs["lost"]], [ours["rescaled"], ours["lost"]], where)
                    for field in ("max", "m", "factor", "l", "p", "acc_o", "o"):
                        # Below `least`, terms have cancelled out. Of l and P of 16, which are tiny, none has.
                        least = {"acc_o": theirs["l"], "o": 1}.get(field, 1e-30 if name.startswith("first") and field in ("l", "p") else 1e-3)
                        for a, b in zip(*(x if isinstance(x, list) else [x] for x in (theirs[field], ours[field]))):
                            if a is None or b is None:  # NaN, or an infinite reference
                                self.assertEqual(a, b, (*where, field))
                                continue
                            self.assertLess(abs(a - b), 1e-6 * max(abs(a), least), (*where, field))
        for words in ("more than {growth:.0f} in", "{margin:.0f} above", "exceeds 2^{sum:.0f},", "beyond 2^{lost:.0f} the row"):
            self.assertIn(words.format(**data("softmax")).replace("-", "\u2212"), found["about"])
        self.assert_kept("softmax", found)

    def test_phases(self):
        found = self.visit("phases", """
          const data = JSON.parse(document.getElementById("data").textContent);
          const settings = [...document.querySelector("select").options].map((option) => option.value);
          found.ends = Object.fromEntries(settings.map((id) => [id, machine(data, id).endings().ends]));
          const ring = machine(data, "kernel");
          found.waits = Array.from({length: data.tiles}, (_, n) => [n, ring.stage_of(n), ring.phase_of(n), ring.parity.full(n),
                                                                    ring.parity.empty(n)]);
          const buttons = () => [...document.querySelectorAll("button")];
          const press = (words, times = 1) => {
            for (let i = 0; i < times; i++) buttons().find((button) => button.textContent.includes(words)).click();
            return status();
          };
          const take = (id) => { location.hash = "#" + id; dispatchEvent(new Event("hashchange")); };
          const warning = () => document.querySelector(".warnings").textContent;
          found.blocked = buttons().slice(0, 4).map((button) => button.disabled);
          found.first = press("bring box", 2);
          found.back = press("Back");
          found.right = [press("Any order"), warning(), buttons().map((button) => button.disabled)].slice(1);
          found.start = press("Start");
          take("half_the_bytes");
          press("Next", 3);
          found.half = warning();
          take("one_byte_less");
          press("Any order");
          found.less = warning();
          take("load_parity");
          found.parity = warning();
          over(document.querySelectorAll(".cell")[5 * 4]);
          found.tile = status();
        """, shown="machine")
        self.assertEqual([tuple(wait) for wait in found["waits"]], [
            (n, n % 2, n // 2, n // 2 % 2, (n // 2 + 1) % 2) for n in range(len(found["waits"]))])
        self.assert_kept("phases", found)


if __name__ == "__main__":
    main()
