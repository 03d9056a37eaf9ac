"""The site of the book: it builds in time and without a warning, and what was built is whole. docs/site/check.py checks.

Usage: test_site.py [--keep FOLDER]   (where to build it, for the tests in a browser; otherwise a temporary folder)"""

import ast
import json
import os
import re
import resource
import struct
import subprocess
import sys
import tempfile
import unittest
from html import unescape
from pathlib import Path

from support import ROOT, ScriptTest, main, normal, overlaps, pins

VENV = ROOT / ".venv-docs"
if (VENV / "complete").exists() and Path(sys.prefix) != VENV:
    os.execv(VENV / "bin" / "python", [str(VENV / "bin" / "python"), "-B", *sys.argv])

HERE = Path(sys.prefix) == VENV
needs_docs = unittest.skipUnless(HERE, "no MkDocs in .venv-docs (scripts/test.sh --all installs it if the network is there)")
sys.path.insert(0, str(ROOT / "docs" / "site"))
import check

if HERE:
    from book import INTERACTIVE, export, layout, sources
    from book.markdown import Page
    from fa_tools.documents.charts.look import PHONE

KEEP = None
if "--keep" in sys.argv:
    at = sys.argv.index("--keep")
    KEEP = Path(sys.argv[at + 1]).resolve()
    del sys.argv[at:at + 2]
MOST_SECONDS = 60
ADDRESS = "https://example.org/book"


@needs_docs
class Built(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not (INTERACTIVE / "complete").exists():
            raise unittest.SkipTest("no interactive pages in build/emulator (scripts/fa docs interactive builds them)")
        cls.folder = tempfile.TemporaryDirectory()
        cls.site = KEEP or Path(cls.folder.name).resolve() / "site"
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        cls.build = subprocess.run(
            [sys.executable, "-B", "-m", "mkdocs", "build", "--strict", "--site-dir", str(cls.site)],
            cwd=ROOT, capture_output=True, text=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "SITE_URL": ADDRESS}, check=False,
            timeout=400)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        # Processor seconds: other tests run at the same time.
        cls.seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def setUp(self):
        if self.build.returncode:
            self.fail(f"the build failed:\n{self.build.stderr[-3000:]}")

    def test_without_a_warning_and_in_time(self):
        self.assertNotRegex(self.build.stdout + self.build.stderr, r"(?i)warning|error")
        self.assertLess(self.seconds, MOST_SECONDS)

    def test_checks(self):
        for each in check.CHECKS:
            with self.subTest(each.__name__):
                self.assertEqual(list(each(self.site)), [], each.__doc__)

    def test_every_page_of_the_book_is_there(self):
        built = {page.relative_to(self.site).as_posix() for page in check.own(self.site)}
        self.assertEqual(built, {layout.url_of(path) for path in layout.book_pages()})
        chapters = list((ROOT / "docs").glob("[0-9][0-9]_*.md"))
        self.assertGreaterEqual(len(chapters), 16)
        self.assertLessEqual({f"{path.stem}.html" for path in chapters}, built)

    def test_chapters_lead_to_their_neighbours(self):
        pages = [layout.url_of(path) for path in layout.book_pages()]
        for before, page, after in zip(pages, pages[1:], pages[2:]):
            html = (self.site / page).read_text()
            for rel, name in (("prev", before), ("next", after)):
                found = re.search(rf'<link rel="{rel}" href="([^"]+)">', html)
                self.assertIsNotNone(found, f"{page}: {rel}")
                self.assertEqual(((self.site / page).parent / found[1]).resolve(), (self.site / name).resolve())

    def test_search_knows_the_pages_and_works_from_the_file_system(self):
        index = (self.site / "search" / "search_index.json").read_text()
        for path in layout.book_pages():
            self.assertIn(f'"location":"{layout.url_of(path)}', index)
        self.assertNotIn('"location":"source/', index)
        self.assertIn(index, (self.site / "search" / "search_index.js").read_text())

    def test_questions_are_in_their_chapters_and_found_once(self):
        for chapter in (ROOT / "docs").glob("[0-9][0-9]_*.md"):
            self.assertEqual((self.site / f"{chapter.stem}.html").read_text().count("<summary>Answer</summary>"), 5, chapter.stem)
        found = json.loads((self.site / "search" / "search_index.json").read_text())["docs"]
        questions = re.findall(r"^\*\*\d\. ([\w ,]{40,})", (ROOT / "docs" / "checkpoints.md").read_text(), re.MULTILINE)
        self.assertGreater(len(questions), 30)
        for question in questions:
            places = {part["location"].partition("#")[0] for part in found if question in part["text"]}
            self.assertEqual(places, {"checkpoints.html"}, question)

    def test_pages_say_what_a_link_to_them_shows(self):
        for page in check.own(self.site):
            said = dict(re.findall(r'<meta property="og:(\w+)" content="([^"]*)">', page.read_text()))
            self.assertIn(f'<link rel="canonical" href="{said["url"]}">', page.read_text())
            self.assertEqual(said["url"], f"{ADDRESS}/{page.relative_to(self.site).as_posix()}")
            self.assertEqual((said["type"], said["site_name"], said["image"]), ("website", "Sixteen steps", f"{ADDRESS}/assets/card.png"))
            self.assertGreater(min(len(said["title"]), len(said["description"])), 5, page)
        width, height = struct.unpack(">8x4x4xII", (self.site / "assets" / "card.png").read_bytes()[:24])
        self.assertTrue(width == 1200 and 500 < height < 640, (width, height))

    def test_the_interfaces_have_a_heading_for_each_name(self):
        html = (self.site / "api.html").read_text()
        headings = set(re.findall(r'<h[34] id="([^"]+)"', html))
        package, header = ((ROOT / name).read_text() for name in ("python/fa/__init__.py", "common/api/fa.h"))
        names = ast.literal_eval(re.search(r"__all__ = (\[.*?\])", package, re.DOTALL)[1])
        declared = re.findall(r"^FA_API .*?\b(\w+)\(|^typedef \w+ (\w+)", header, re.MULTILINE)
        self.assertGreater(len(declared), 10)
        self.assertLessEqual({f"fa{name}".lower() for name in names} | {a or b for a, b in declared}, headings)
        for name in (argument.arg for node in ast.parse((ROOT / "python/fa/_attention.py").read_text()).body
                     if getattr(node, "name", "") == "attention" for argument in [*node.args.args, *node.args.kwonlyargs]):
            self.assertTrue(any(name in heading.split("-") for heading in headings), name)
        self.assertNotRegex(html, r"<pre><code>|\\[*_<]")  # what is code has a language, and nothing is escaped twice

    def test_no_marker_of_the_scripts_is_left(self):
        for page in check.own(self.site):
            self.assertNotRegex(page.read_text(), r"<!--(= | /?(grid|table|excerpt|diff|line|lengths|profile|instructions))")

    def test_language_models_get_every_page(self):
        index, book = ((self.site / name).read_text() for name in ("llms.txt", "llms-full.txt"))
        for path in layout.book_pages():
            name = layout.url_of(path)
            self.assertIn(f"]({name.removesuffix('.html')}.md.txt)", index)
            text = (self.site / name).with_suffix(".md.txt").read_text()
            self.assertIn(f"<!-- page: {name}, source: {path} -->\n\n{text}", book)
            self.assertNotRegex(re.sub(export.CODE, "", text, flags=re.MULTILINE | re.DOTALL), "<!--")

    def test_charts_have_what_draws_them(self):
        charts = {name for page in check.own(self.site) for name in re.findall(r'data-chart="([^"]+)"', page.read_text())}
        self.assertGreater(len(charts), 5)
        for name in charts:
            self.assertTrue((self.site / "charts" / f"{name}.js").is_file(), name)
        self.assertTrue((self.site / "assets" / "vega.js").is_file())

    def test_phones_get_the_narrow_forms(self):
        for name, svg in layout.narrow_forms().items():
            url = layout.url_of(name)
            self.assertEqual((self.site / url).read_text(), svg, name)
            shown = [page.name for page in check.own(self.site) if re.search(f'<source media="[^"]*" srcset="(../)*{url}(#[^"]*)?" width', page.read_text())]
            self.assertTrue(shown, f"no page shows {name}")

    def test_charts_can_be_read_on_a_phone(self):
        for path, svg in layout.narrow_forms().items():
            if "/charts/" in path:
                self.assertLessEqual(float(re.search(r'<svg [^>]*\bwidth="([\d.]+)"', svg)[1]), PHONE, path)
                self.assertGreaterEqual(min(map(float, re.findall(r'font-size="([\d.]+)px"', svg))), 10.5, path)
                self.assertEqual(overlaps(svg), [], path)

    def test_nothing_is_wider_than_a_phone(self):
        for page in check.own(self.site):
            alone = re.findall(r'<span class="picture"[^>]*><img src="([^"]+)"[^>]* width="(\d+)"', page.read_text())
            self.assertEqual([name for name, width in alone if int(width) > 620], [], page.name)

    def test_explorers_are_there_in_the_states_of_their_texts(self):
        html, explorers = (self.site / "interactive.html").read_text(), layout.explorers()
        self.assertEqual({f"interactive/{page.name}" for page in INTERACTIVE.glob("*.html")}, set(explorers.values()))
        self.assertEqual(re.findall('data-interactive="([^"]+)"', html), list(explorers.values()))
        for anchor, name in explorers.items():
            self.assertIn(f'<h2 id="{anchor}">', html)
            self.assertRegex(html, rf'href="{name}#\w')
            self.assertTrue((self.site / name).is_file())


class Checks(ScriptTest):
    """Each check finds what it is for."""

    def site(self, **pages):
        for name, body in pages.items():
            (self.folder / f"{name}.html").write_text(f"<html><body>{body}</body></html>")
        check.read.cache_clear()
        check.ids.cache_clear()
        return self.folder.resolve()

    def test_links(self):
        site = self.site(a='<a href="b.html#there">1</a><a href="b.html#gone">2</a><a href="c.html">3</a>',
                         b='<p id="there"></p><img src="no.svg"><a href="https://example.org/x">fine</a>')
        self.assertEqual(list(check.links(site)), [
            "a.html: b.html#gone has an anchor that is not there", "a.html: c.html leads nowhere",
            "b.html: no.svg leads nowhere"])

    def test_foreign(self):
        site = self.site(a='<script src="https://cdn.example/x.js"></script><link rel="stylesheet" href="//x.example/y">'
                           '<a href="https://example.org">fine</a><style>@import "https://a.example/f.css"</style>')
        (site / "x.css").write_text("a{background:url(https://b.example/i.png)}b{background:url(data:image/png,x)}")
        self.assertEqual(list(check.foreign(site)), [
            "a.html fetches https://cdn.example/x.js", "a.html fetches //x.example/y",
            "a.html fetches https://a.example/f.css", "x.css fetches https://b.example/i.png"])



@needs_docs
class Markdown(unittest.TestCase):
    """Pages are made as code hosts make them."""

    def page(self, text):
        self.warnings = []
        return Page("docs/12_tma.md", self.warnings.append, text)

    def test_comments_vanish_but_not_from_code(self):
        text = ("<!-- table: x -->\n| a |\n|-|\n| <!-- value: y -->1<!-- /value --> |\n<!-- /table -->\n\n"
                "```html\n<!-- z -->\n```\n\n`<!-- code -->` b <!-- over\ntwo --> c\n\n<!-- d -->e<!-- f -->\n\ng")
        html, page = self.page(text).html, self.page(text)
        self.assertRegex(html, "<td>1</td>")
        self.assertEqual(re.findall("&lt;!--(?:</?span[^>]*>)? (?:</?span[^>]*>)*(\\w+)", html), ["z", "code"])
        self.assertNotIn("<!--", html)
        self.assertEqual(export.plain(page), "| a |\n|-|\n| 1 |\n\n```html\n<!-- z -->\n```\n\n`<!-- code -->` b  c\n\ne\n\ng\n")

    def test_what_is_for_the_repository_alone(self):
        page = self.page("a\n\n<!-- not on the site -->\nb\n\n```bash\nc\n```\n<!-- /not on the site -->\n\nd")
        self.assertEqual((page.html, export.plain(page)), ("<p>a</p>\n<p>d</p>\n", "a\n\nd\n"))
        self.assertNotIn("build/site", export.plain(Page("README.md", self.warnings.append)))

    def test_links(self):
        html = self.page("[a](12_tma.md#the-picture) [b](../kernels/12_tma.cu#L3-L5) [c](../README.md) [d](../common/emulator/tests/golden) "
                         "[e](../bench/schema.json)").html
        self.assertFalse(self.warnings)
        self.assertEqual(re.findall(r'href="([^"]+)"', html), [
            "12_tma.html#the-picture", "source/kernels/12_tma.cu.html#L3", "index.html", "source/common/emulator/tests/golden/index.html",
            "source/bench/schema.json"])
        self.page("[a](nowhere.md)")
        self.assertRegex(self.warnings[0], "the link to nowhere.md leads nowhere")

    def test_a_paragraph_that_leads_to_an_explorer_holds_it(self):
        page = self.page("[Try it: `a` & *b*.](interactive.md?no_wait#phase-explorer)")
        self.assertRegex(page.html, '^<div class="explorer"><p><a href="[^"]+">Try it: <code>a</code> &amp; <em>b</em>.</a></p><div data')
        self.assertEqual(re.findall(r'(data-\w+|href)="([^"]+)"', page.html), [
            ("href", "interactive/phases.html#no_wait"), ("data-interactive", "interactive/phases.html#no_wait"),
            ("href", "interactive.html#phase-explorer")])
        self.assertEqual(page.html.count("<div"), page.html.count("</div>"))
        self.assertIn("[Try it: `a` & *b*.](interactive/phases.html#no_wait)", export.plain(page))
        phases = "[a](interactive.md#phase-explorer)"
        self.assertIn('data-interactive="interactive/phases.html"', self.page(phases).html)
        for other in (f"In {phases}.", f"{phases} [b](interactive.md?v128#phase-explorer)", "[a](interactive.md)", "[a](11_wgmma.md)", "[a](#b)",
                      f"| {phases} |\n|-|", "a"):
            self.assertNotIn("data-interactive", self.page(other).html, other)
        html = self.page("In [one](interactive.md?no_wait#phase-explorer) or [more](interactive.md#phase-explorer).").html
        self.assertEqual(re.findall('href="([^"]+)"', html), ["interactive/phases.html#no_wait", "interactive.html#phase-explorer"])
        self.assertFalse(self.warnings)

    def test_a_checkpoint_holds_its_questions(self):
        page = self.page("**Checkpoint:** [five questions](checkpoints.md#11-wgmma).")
        questions = (ROOT / "docs" / "checkpoints.md").read_text(encoding="utf-8").split("\n## 11: ")[1].split("\n## ")[0]
        self.assertEqual(len(re.findall(r"^\*\*\d\. ", questions, re.MULTILINE)), 5)
        self.assertEqual(page.html.count("<p><strong>"), 1 + 2 * 5)  # the link, questions and answers
        self.assertEqual(page.html.count("<summary>Answer</summary>"), 5)
        self.assertRegex(page.html, r'</p>\n<details>\n<summary>Answer them here</summary>\n<section data-search-exclude>\n<p><strong>1\. ')
        self.assertEqual(page.html.count("<details"), page.html.count("</details>"))
        self.assertNotIn("Answer", export.plain(page))
        self.assertNotIn("<details", self.page("See [five questions](checkpoints.md#11-wgmma).").html)
        self.assertFalse(self.warnings)
        self.page("**Checkpoint:** [five questions](checkpoints.md#17-none).")
        self.assertIn("checkpoints.md has no section #17-none", self.warnings[0])

    def test_anchors_are_those_of_code_hosts(self):
        page = self.page("# A: `b_c`, d\n## Same\n## Same\n")
        self.assertEqual([anchor for _, anchor, _ in page.headings], ["a-b_c-d", "same", "same-1"])
        self.assertEqual(page.title, "A: b_c, d")

    def test_maths(self):
        html = self.page("so $m_i = \\max_j s_{ij}$ costs $5 or $6.\n\n$$\n\\frac{a}{b}\n$$\n").html
        self.assertEqual(html.count("<math"), 2)
        self.assertIn('so <span class="math"><math', html)  # no class that the theme has for something else
        self.assertIn("<mfrac>", html)
        self.assertIn("$5 or $6", html)
        self.page("$\\nonsense{x}$")
        self.assertRegex(self.warnings[0], "nonsense")


@needs_docs
class Pieces(unittest.TestCase):
    def test_no_character_of_the_code_is_lost(self):
        for path in sorted((ROOT / "kernels").glob("*.cu")):
            code = re.search(r"<code>(.*)</code>", sources.page(f"kernels/{path.name}"), re.DOTALL)[1]
            self.assertEqual(unescape(re.sub(r"<[^>]+>", "", code)), path.read_text(), path.name)

    def test_the_contents_name_every_page_once_in_groups_and_parts(self):
        found = layout.sections()
        self.assertEqual(list(dict.fromkeys(group for group, *_ in found)), ["", "Learn", "Look up", "Prove", "Use"])
        kernels = [path for group, part, paths in found if part.startswith("Part ") for path in paths]
        self.assertEqual(kernels, [f"docs/{path.stem}.md" for path in sorted((ROOT / "kernels").glob("*.cu"))])
        pages = [path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")]
        self.assertEqual([path for path in sorted(layout.book_pages()) if path.startswith("docs/")], sorted([*pages, layout.API]))

    def test_requirements_are_pinned_to_the_last(self):
        docs, charts = pins("scripts/docs-requirements.txt"), pins("scripts/requirements.txt")
        for both in ("vl-convert-python", "latex2mathml"):
            self.assertEqual(docs[both], charts[both])
        there = subprocess.run([sys.executable, "-m", "pip", "freeze", "--disable-pip-version-check"], capture_output=True,
                               text=True, check=True, timeout=60).stdout
        installed = {normal(name): version for name, version in (line.split("==") for line in there.split())}
        self.assertEqual(docs, installed)


if __name__ == "__main__":
    main()
