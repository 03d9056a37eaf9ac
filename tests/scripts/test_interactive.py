"""The interactive pages are what their script makes, need nothing from elsewhere, and answer keyboard and pointer."""

import json
import re
import shutil
import subprocess
import unittest
from html import unescape

from support import ROOT, SCRIPTS, ScriptTest, main

PAGES = ROOT / "docs" / "interactive"
NAMES = sorted(path.stem for path in PAGES.glob("*.html"))
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


class Pages(ScriptTest):
    def test_are_current(self):
        done = self.run_script(SCRIPTS / "interactive.py", "--check")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("fragments", NAMES)

    def test_need_nothing_from_elsewhere(self):
        for name in NAMES:
            text = (PAGES / f"{name}.html").read_text(encoding="utf-8")
            addresses = set(re.findall(r"[a-z]+://[^\s\"'<>)]*", text)) - {"http://www.w3.org/2000/svg"}
            self.assertEqual(addresses, set(), name)
            self.assertNotRegex(text, r"<script[^>]* src=|<link[^>]* href=\"(?!data:)|@import|\bfetch\(|XMLHttpRequest", name)
            self.assertIn("default-src 'none'", text, name)
            self.assertLess(len(text), 500_000, name)

    def test_each_has_its_text_and_data(self):
        for path in PAGES.glob("src/*.mjs"):
            if not re.search(r"^export const title", path.read_text(encoding="utf-8"), re.M):
                continue
            self.assertIn(path.stem, NAMES)
            self.assertIsInstance(json.loads((PAGES / "data" / f"{path.stem}.json").read_text(encoding="utf-8")), dict)


class Bundling(ScriptTest):
    def setUp(self):
        super().setUp()
        self.root = self.checkout()
        self.write("checkout/docs/interactive/src/ui.mjs", "export function run(start) {}\nexport const two = 2;\n")
        self.write("checkout/docs/interactive/src/style.css", "p { margin: 0; }\n")
        self.write("checkout/docs/interactive/data/one.json", '{"text": "</script>"}')
        self.module('import {two as other} from "./ui.mjs";\nexport const title = "One & all";\n'
                    "export function start(root, data) {\n  return other;\n}\n")
        self.html = self.root / "docs" / "interactive" / "one.html"

    def module(self, text):
        self.write("checkout/docs/interactive/src/one.mjs", text)

    def bundle(self, *options):
        return self.run_script(self.root / "scripts" / "interactive.py", *options)

    def test_one_file(self):
        done = self.bundle()
        self.assertEqual(done.returncode, 0, done.stderr)
        text = self.html.read_text(encoding="utf-8")
        self.assertIn("<title>One &amp; all</title>", text)
        self.assertIn('{"text":"\\u003c/script>"}', text)
        self.assertIn("const {two: other} = module_ui;", text)
        self.assertNotRegex(text, r"(?m)^(import|export)\b")
        self.assertIn("return {title, start};", text)
        again = self.bundle("--check")
        self.assertEqual((again.returncode, again.stderr), (0, ""))
        self.html.write_text(text.replace("return other", "return 3"), encoding="utf-8")
        done = self.bundle("--check")
        self.assertEqual(done.returncode, 1)
        self.assertIn("docs/interactive/one.html is out of date", done.stderr)

    def test_refused(self):
        for module, sentence in (
                ('export const title = "x";\nimport {a} from "./none.mjs";\n', "one.mjs imports ./none.mjs, which is not there"),
                ('export const title = "x";\nimport a from "./ui.mjs";\n', "cannot be bundled"),
                ('export const title = "x";\nconst end = "</script>";\n', "holds </script"),
                ("export const title = 'x';\n", "has no line: export const title")):
            self.module(module)
            self.assert_one_sentence(self.bundle(), sentence)
        self.module('export const title = "x";\n')
        (self.root / "docs/interactive/data/one.json").write_text("{")
        self.assert_one_sentence(self.bundle(), "docs/interactive/data/one.json is cut off")

    def test_program_missing(self):
        self.assert_one_sentence(self.bundle("--programs", self.folder), "layout_dump is not there")


@unittest.skipUnless(BROWSER, "no Chromium here")
class Browser(ScriptTest):
    def visit(self, name, more="", query=""):
        """What the page finds of itself; `more`: JavaScript that puts more into `found`."""
        text = (PAGES / f"{name}.html").read_text(encoding="utf-8")
        text = text.replace("<style>", PROBE + "<style>", 1).replace("</body>", STEPS.replace("MORE", more) + "</body>", 1)
        page = self.write(f"{name}.html", text)
        done = subprocess.run(
            [BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             f"--user-data-dir={self.folder}/profile", "--window-size=1000,900", "--virtual-time-budget=3000",
             "--dump-dom", f"{page.as_uri()}{query}"], capture_output=True, text=True, timeout=60, check=False)
        found = re.search(r'<pre id="found">(.*?)</pre>', done.stdout, re.S)
        self.assertTrue(found, done.stdout[-2000:] + done.stderr[-2000:])
        return json.loads(unescape(found[1]))

    def test_contract(self):
        for name in NAMES:
            with self.subTest(name):
                found = self.visit(name)
                self.assertEqual(found["errors"], [])
                self.assertTrue(found["ready"])
                self.assertTrue(found["keyboards"] and all(found["keyboards"]), found)
                self.assertTrue(found["hover"] and all(found["hover"]), found)
                self.assertEqual(found["wide"], 0)


if __name__ == "__main__":
    main()
