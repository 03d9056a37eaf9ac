"""The site in a real browser: each page wide and on a phone, some in both colours and with axe's rules for readers who do
not see the screen; some sources on a phone. Nothing is fetched from elsewhere.

Usage: test_browser.py [--site FOLDER] [--whole]   (otherwise it builds one; --whole: both colours and axe on every page)
"""

import argparse
import asyncio
import functools
import http.server
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.dont_write_bytecode = True
sys.path[:0] = [str(ROOT / "tests" / "scripts"), str(ROOT / "docs" / "site")]
import check
from support import main

VENV, DOCS_VENV = ROOT / ".venv-tests", ROOT / ".venv-docs"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
if (VENV / "complete").exists() and Path(sys.prefix) != VENV:
    os.execv(VENV / "bin" / "python", [str(VENV / "bin" / "python"), "-B", *sys.argv])

LACKING = next((sentence for missing, sentence in (
    (CHROMIUM is None, "no Chromium here"),
    (Path(sys.prefix) != VENV, "no Playwright in .venv-tests (scripts/test.sh --all installs it if the network is there)"),
    (not (ROOT / "build" / "emulator" / "interactive" / "complete").exists(),
     "no interactive pages in build/emulator (scripts/fa docs interactive builds them)"),
    (not (DOCS_VENV / "complete").exists(), "no MkDocs in .venv-docs (scripts/test.sh --all installs it if the network is there)"),
) if missing), None)
if LACKING is None:
    import axe_playwright_python
    from playwright.async_api import Error, async_playwright

    AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")

WIDE, PHONE = {"width": 1280, "height": 900}, {"width": 360, "height": 800}
AT_ONCE = 4  # pages
# Pages that axe looks at with all that is around the text, which is the same everywhere. With --whole it looks at the text
# of the others, too, and not at the code.
THOROUGH = {"index.html", "12_tma.html", "bugs.html", "broken.html"}
PATIENCE = 30_000  # milliseconds: the machine may be busy

# Pictures that are shown, all of them loaded whether they have been scrolled to or not.
PICTURES = """async () => {
  const shown = [...document.images].filter((image) => image.offsetParent !== null);
  for (const image of shown) image.loading = "eager";
  await Promise.all(shown.map((image) => image.complete || new Promise((done) => {
    image.onload = image.onerror = done;
  })));
  return shown.filter((image) => !image.naturalWidth).map((image) => image.getAttribute("src"));
}"""
# What makes a page wider than the window.
TOO_WIDE = """() => {
  const width = document.documentElement.clientWidth;
  if (Math.max(document.body.scrollWidth, document.documentElement.scrollWidth) <= width) return [];
  const inside = (element) => {
    for (let up = element.parentElement; up; up = up.parentElement) {
      if (["auto", "scroll", "hidden"].includes(getComputedStyle(up).overflowX)) return true;
    }
    return false;
  };
  const wide = [...document.body.querySelectorAll("*")].filter((element) =>
    element.getBoundingClientRect().right > width + 1 && !inside(element));
  return [`${document.documentElement.scrollWidth} pixels`, ...wide.slice(0, 3).map((element) =>
    element.outerHTML.slice(0, 80))];
}"""
RUN_AXE = """async (whole) => {
  const place = document.querySelector(whole ? "html" : "article") ?? document;
  const { violations } = await axe.run(whole ? place : { include: [place], exclude: ["pre"] }, { resultTypes: ["violations"], iframes: false });
  return violations.filter(({ impact }) => ["serious", "critical"].includes(impact)).map(({ id, nodes }) =>
    `${id}: ${nodes.length} times, e.g. ${nodes[0].html.slice(0, 160)} (${(nodes[0].any[0] ?? nodes[0]).message ?? ""})`);
}"""


class Visit:
    """One page of the site in a tab of the browser, and what goes wrong there."""

    def __init__(self, tab, base, name, size):
        self.page, self.url, self.base, self.name, self.size = tab, base + name, base, name, size
        self.problems = {}
        self.handlers = {"console": self.on_console, "pageerror": self.on_error, "request": self.on_request,
                         "requestfailed": self.on_failure, "response": self.on_response}

    def add(self, kind, *what):
        self.problems.setdefault(kind, []).extend(what)

    def is_ours(self, request):
        return request.url.startswith((self.base, "data:", "blob:"))

    def on_console(self, message):
        if message.type in ("error", "warning"):
            self.add("console", message.text)

    def on_error(self, error):
        self.add("console", str(error))

    def on_request(self, request):
        if not self.is_ours(request):
            self.add("foreign", request.url)

    def on_failure(self, request):
        if self.is_ours(request) and "ERR_ABORTED" not in (request.failure or ""):  # leaving a page ends what it asks for
            self.add("requests", f"{request.url} failed")

    def on_response(self, response):
        if response.status >= 400:
            self.add("requests", f"{response.url} answered {response.status}")

    async def __aenter__(self):
        for event, handler in self.handlers.items():
            self.page.on(event, handler)
        await self.page.emulate_media(color_scheme="light")
        await self.page.set_viewport_size(self.size)
        await self.page.mouse.move(1, 1)
        await self.page.goto(self.url, wait_until="load")
        return self

    async def __aexit__(self, *_):
        for event, handler in self.handlers.items():
            self.page.remove_listener(event, handler)
        await self.page.evaluate("localStorage.clear()")  # which colours were chosen

    async def colours(self, scheme):
        await self.page.emulate_media(color_scheme=scheme)
        if await self.page.locator("#__palette_0").count():
            wanted = {"light": "default", "dark": "slate"}[scheme]
            await self.page.wait_for_function(f"document.body.dataset.mdColorScheme === '{wanted}'")

    async def looks(self, scheme):
        """On a screen and on a phone."""
        await self.colours(scheme)
        for size in (PHONE, WIDE):
            await self.page.set_viewport_size(size)
            where = f"{scheme}, {size['width']} pixels"
            self.add("pictures", *(f"{where}: {source} did not come" for source in await self.page.evaluate(PICTURES)))
            if size is PHONE:
                wide = await self.page.evaluate(TOO_WIDE)
                if wide:
                    self.add("width", f"{where}: {'; '.join(wide)}")

    async def axe(self, scheme):
        await self.colours(scheme)
        if not await self.page.evaluate("typeof axe !== 'undefined'"):
            await self.page.evaluate(AXE)
        self.add("axe", *(f"{scheme}: {line}" for line in await self.page.evaluate(
            RUN_AXE, self.name in THOROUGH)))

    async def charts(self):
        """Each becomes interactive, and says something when the mouse is over a mark."""
        figures = self.page.locator("[data-chart]")
        for i in range(await figures.count()):
            figure = figures.nth(i)
            name = await figure.get_attribute("data-chart")
            if not await figure.is_visible():
                continue  # in a folded solution
            await figure.evaluate("element => element.scrollIntoView({block: 'center', behavior: 'instant'})")
            try:
                await figure.locator(".chart svg").wait_for()
                if not await self.says(figure):
                    self.add("charts", f"{name}: no tooltip")
            except Error as problem:
                self.add("charts", f"{name}: {str(problem).splitlines()[0]}")

    async def says(self, figure):
        marks = await figure.evaluate("""(figure) => {
          const marks = [...figure.querySelectorAll(".mark-symbol path, .mark-rect path")];
          const inside = marks.map((mark) => mark.getBoundingClientRect()).filter(({ width, height, left, right, top, bottom }) =>
            width > 3 && height > 3 && left > 0 && right < innerWidth && top > 60 && bottom < innerHeight);
          return inside.map(({ x, y, width, height }) => [x + width / 2, y + height / 2]).slice(-12);
        }""")
        for x, y in reversed(marks):
            await self.page.mouse.move(x - 1, y)
            await self.page.mouse.move(x, y)
            text = await self.page.evaluate("""() => {
              const tip = document.querySelector("#vg-tooltip-element");
              return tip?.classList.contains("visible") ? tip.innerText : "";
            }""")
            if text.strip():
                await self.page.mouse.move(1, 1)
                return True
        return False


class Site:
    """A site that a small server hands out, and every page of it looked at."""

    def __init__(self, folder):
        self.folder = folder.resolve()

    def __enter__(self):
        handler = type("Quiet", (http.server.SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(handler, directory=self.folder))
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.base = f"http://127.0.0.1:{self.server.server_address[1]}/"
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    async def browse(self, look):
        async with async_playwright() as playwright:
            # As root Chromium has no sandbox; /dev/shm is small in containers. No name but the server's is found.
            browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=[
                "--no-sandbox", "--disable-dev-shm-usage", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"])
            try:
                return await look(browser)
            finally:
                await browser.close()

    async def each(self, browser, names, look, size=WIDE):
        """{name: problems} of what `look` does with each page: some tabs at a time, each used for one after the other."""
        names, results = list(reversed(names)), {}

        async def tab():
            context = await browser.new_context(viewport=WIDE, color_scheme="light")
            context.set_default_timeout(PATIENCE)
            page = await context.new_page()
            while names:
                visit = Visit(page, self.base, names.pop(), size)
                try:
                    async with visit:
                        await look(visit)
                except Error as problem:
                    visit.add("visits", str(problem).splitlines()[0])
                    await page.close()
                    page = await context.new_page()
                results[visit.name] = visit.problems
            await context.close()

        await asyncio.gather(*(tab() for _ in range(min(AT_ONCE, len(names)))))
        return results


async def whole(visit):
    await visit.charts()
    await visit.looks("light")
    if WHOLE or visit.name in THOROUGH:
        await visit.axe("light")
        await visit.looks("dark")
    if visit.name in THOROUGH:  # the dark colours are the same everywhere
        await visit.axe("dark")


async def source(visit):
    wide = await visit.page.evaluate(TOO_WIDE)
    if wide:
        visit.add("width", "; ".join(wide))


def seen(results, kind):
    return [f"{name}: {problem}" for name, problems in results.items() for problem in problems.get(kind, [])]


KINDS = ("visits", "console", "requests", "foreign", "pictures", "width", "axe", "charts")


@unittest.skipIf(LACKING, LACKING)
class Pages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        site = SITE
        if site is None or not site.is_dir():
            site = Path(cls.folder.name) / "site"
            subprocess.run([DOCS_VENV / "bin" / "python", "-B", "-m", "mkdocs", "--quiet", "build", "--site-dir", site],
                           cwd=ROOT, check=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, timeout=300)
        cls.site = Site(site)
        cls.site.__enter__()
        cls.addClassCleanup(cls.site.__exit__)
        folder = cls.site.folder
        names = [path.relative_to(folder).as_posix() for path in check.pages(folder)]
        sources = {Path(name).with_suffix("").suffix: name  # of each kind of file the one with the longest name
                   for name in sorted(names, key=len) if name.startswith("source/")}

        async def look(browser):
            return [await cls.site.each(browser, [name for name in names if not name.startswith("source/")], whole),
                    await cls.site.each(browser, list(sources.values()), source, PHONE)]

        cls.results = asyncio.run(cls.site.browse(look))

    def test_there_are_some(self):
        book, sources = self.results
        self.assertGreaterEqual(len(book), 20)
        self.assertGreaterEqual(len(sources), 5)

    def test_problems(self):
        for results in self.results:
            for kind in KINDS:
                with self.subTest(kind):
                    self.assertEqual(seen(results, kind), [])

    def keyboard(self, look, name="12_tma.html"):
        async def visit(browser):
            return await self.site.each(browser, [name], look)

        problems = asyncio.run(self.site.browse(visit))
        self.assertEqual([seen(problems, kind) for kind in KINDS], [[]] * len(KINDS))

    def test_skip_link_comes_first_and_focus_is_seen(self):
        async def look(visit):
            page = visit.page
            await page.keyboard.press("Tab")
            self.assertIn("md-skip", await page.evaluate("document.activeElement.className"))
            await page.wait_for_function("getComputedStyle(document.activeElement).opacity === '1'")
            await page.keyboard.press("Enter")
            self.assertRegex(page.url, r"#12-tma$")
            for _ in range(12):  # wherever Tab leads, it can be seen
                await page.keyboard.press("Tab")
                seen = await page.evaluate("""() => {
                  const element = document.activeElement, style = getComputedStyle(element);
                  const box = element.getBoundingClientRect();
                  return [element.outerHTML.slice(0, 90), box.width > 0 && (style.outlineStyle !== "none"
                    || style.boxShadow !== "none" || element.matches(".focus-visible, :focus-visible"))];
                }""")
                self.assertTrue(seen[1], seen[0])

        self.keyboard(look)

    def test_search_by_key(self):
        async def look(visit):
            page = visit.page
            await page.keyboard.press("/")
            await page.wait_for_function("document.activeElement.matches('[data-md-component=search-query]')")
            await page.keyboard.type("mbarrier")
            await page.locator(".md-search-result__link").first.wait_for()
            await page.keyboard.press("ArrowDown")
            await page.wait_for_function("document.activeElement.matches('.md-search-result__link')")

        self.keyboard(look)

    def test_search_finds_names_where_they_are_explained(self):
        async def look(visit):
            for words, place in (("fa.attention", "faattention"), ("cu_seqlens", "cu_seqlens_q-cu_seqlens_k"), ("fa_options", "fa_options")):
                await visit.page.reload()
                await visit.page.keyboard.press("/")
                await visit.page.wait_for_function("document.activeElement.matches('[data-md-component=search-query]')")
                await visit.page.keyboard.type(words)
                section = visit.page.locator(".md-search-result__item").first.locator(f".md-search-result__link[href*='api.html'][href$='#{place}']")
                await section.wait_for(state="attached")

        self.keyboard(look)

    def test_index_of_the_search_comes_only_when_it_is_wanted(self):
        async def look(visit):
            asked = []
            visit.page.on("request", lambda request: asked.append(request.url))
            await visit.page.reload(wait_until="networkidle")
            self.assertFalse([url for url in asked if "search_index" in url or "vega" in url], asked)

        self.keyboard(look, "third_party.html")

    def test_colours_are_switched_by_hand(self):
        async def look(visit):
            page = visit.page
            picture = page.locator(".picture:not([data-chart]) img").first
            await picture.scroll_into_view_if_needed()
            place = await picture.bounding_box()
            inside = {"x": place["x"] + 20, "y": place["y"] + 20, "width": 200, "height": 100}
            light = await page.screenshot(clip=inside)
            for option in (1, 2):
                await page.locator(f"label[for=__palette_{option}]").click()
            await page.wait_for_function("document.body.dataset.mdColorScheme === 'slate'")
            self.assertNotEqual(await page.screenshot(clip=inside), light, "the picture has kept its colours")
            await page.reload()
            await page.wait_for_function("document.body.dataset.mdColorScheme === 'slate'")  # it is remembered

        self.keyboard(look)

    def test_frames_follow_the_colours(self):
        async def look(visit):
            page = visit.page
            self.assertEqual(await page.locator("iframe.interactive").count(), 1)  # the others come when they are nearly in sight
            frame = page.frame_locator("iframe.interactive")
            await frame.locator("body[data-ready=true]").wait_for(state="attached")
            for scheme in ("dark", "light"):
                await visit.colours(scheme)
                await frame.locator(f"html[data-theme={scheme}]").wait_for(state="attached")
            await page.wait_for_function("""() => {
              const frame = document.querySelector("iframe.interactive");
              return Math.abs(frame.clientHeight - frame.contentDocument.documentElement.offsetHeight) <= 4;
            }""")

            await page.evaluate("location.hash = 'phase-explorer'")
            await page.frame_locator("iframe[title='Phase explorer']").locator("body[data-ready=true]").wait_for(state="attached")

        self.keyboard(look, "interactive.html")

    def test_answers_of_checkpoints_are_chosen_by_keyboard(self):
        async def look(visit):
            page = visit.page
            answers = page.locator(".answers").first
            await answers.locator("button").first.focus()
            said = []
            for _ in range(await answers.locator("button").count()):
                await page.keyboard.press("Enter")
                said.append(await page.evaluate("document.activeElement.parentElement.querySelector('[role=status]').textContent"))
                await page.keyboard.press("Tab")
            self.assertEqual(sorted(text.split()[0] for text in said), ["No:", "No:", "Right."])
            self.assertTrue(all(len(text.split()) > 5 for text in said), said)
            self.assertEqual(await page.locator("details[open]").count(), 0)
            self.assertEqual(await page.locator(".answers").count(), await page.locator("details:has(> summary:text-is('Answer'))").count())
            for scheme in ("light", "dark"):
                await visit.axe(scheme)
            await page.set_viewport_size(PHONE)
            self.assertEqual(await page.evaluate(TOO_WIDE), [])

        self.keyboard(look, "checkpoints.html")

    def test_questions_are_answered_at_the_end_of_their_chapter(self):
        async def look(visit):
            page = visit.page
            fold = page.locator("details:has(> summary:text-is('Answer them here'))")
            await fold.locator("> summary").focus()
            await page.keyboard.press("Enter")
            self.assertEqual(await fold.locator(".answers").count(), 5)
            answer = fold.locator(".answers > li").first
            await answer.locator("button").click()
            self.assertRegex(await answer.locator("[role=status]").text_content(), r"^(Right\.|No: a) \w+ ")
            for scheme in ("light", "dark"):
                await visit.axe(scheme)
            await page.set_viewport_size(PHONE)
            self.assertEqual(await page.evaluate(TOO_WIDE), [])

        self.keyboard(look, "07_cp_async.html")

    def test_explorers_in_chapters_come_when_scrolled_to_and_react(self):
        chapters = {page.name: re.findall('data-interactive="([^"]+)"', page.read_text())
                    for page in check.own(self.site.folder) if re.match(r"\d\d_", page.name)}
        explorers = {path.stem for path in (self.site.folder / "interactive").glob("*.html")}
        self.assertEqual({Path(state.partition("#")[0]).stem for states in chapters.values() for state in states}, explorers)

        async def look(visit):
            page, frames = visit.page, visit.page.locator("iframe.interactive")
            self.assertLessEqual(await frames.count(), 1)  # the first one may be nearly in sight
            for i, state in enumerate(chapters[visit.name]):
                place = page.locator(f".explorer [data-interactive='{state}']")
                await place.evaluate("element => element.scrollIntoView({behavior: 'instant'})")
                inside = place.frame_locator("iframe")
                await inside.locator("body[data-ready=true]").wait_for(state="attached")
                self.assertIn(await frames.count(), range(i + 1, i + 3))  # one more if it is nearly in sight
                for scheme, size in (("dark", PHONE), ("light", WIDE)):
                    await visit.colours(scheme)
                    await page.set_viewport_size(size)
                    await inside.locator(f"html[data-theme={scheme}]").wait_for(state="attached")
                    await page.wait_for_function("""(place) => {
                      const frame = place.querySelector("iframe"), {scrollWidth, clientWidth, offsetHeight} = frame.contentDocument.documentElement;
                      return scrollWidth <= clientWidth && Math.abs(frame.clientHeight - offsetHeight) <= 4;
                    }""", arg=await place.element_handle())
                    self.assertEqual(await page.evaluate(TOO_WIDE), [], state)
                await page.mouse.move(1, 1)
                await place.evaluate("(element) => element.closest('.explorer').querySelector('a').focus()")
                await page.keyboard.press("Tab")
                self.assertEqual(await page.evaluate("document.activeElement.title"), await page.locator(".explorer > p:first-child").nth(i).inner_text())
                before, key = await inside.locator("[data-status]").inner_text(), inside.locator("[data-keyboard]").first
                for _ in range(12):  # a grid comes soon
                    await page.keyboard.press("Tab")
                    if await key.evaluate("(element) => element.contains(element.ownerDocument.activeElement)"):
                        break
                await page.keyboard.press("ArrowRight")
                self.assertNotEqual(await inside.locator("[data-status]").inner_text(), before, state)

        for name in chapters:
            if chapters[name]:
                with self.subTest(name):
                    self.keyboard(look, name)

    def test_from_the_file_system(self):
        async def look(browser):
            page = await browser.new_page()
            said = []
            page.on("console", lambda message: message.type == "error" and said.append(message.text))
            page.on("pageerror", lambda error: said.append(str(error)))
            await page.goto((self.site.folder / "results.html").as_uri())
            await page.locator("[data-chart]").first.scroll_into_view_if_needed()  # drawn when it is nearly in sight
            await page.locator("[data-chart] .chart svg").first.wait_for()
            await page.keyboard.press("/")
            await page.keyboard.type("swizzle")
            await page.locator(".md-search-result__link").first.wait_for()
            self.assertEqual(said, [])

        asyncio.run(self.site.browse(look))


BROKEN = """<!doctype html><html lang="en"><head><title>x</title><meta name="viewport" content="width=device-width">
<link rel="icon" href="data:,"></head><body><main><h1>x</h1>
<p style="color:#aaa;background:#fff">pale</p><p style="width:900px">wide</p><img src="gone.png" alt="x">
<img src="https://example.org/x.png">
<span data-chart="c"><span class="chart"><svg width="50" height="50"><g class="mark-rect"><path d="M0,0h40v40h-40z"/></g></svg></span>
</span></main><script>console.error("said")</script></body></html>"""


@unittest.skipIf(LACKING, LACKING)
class Finds(unittest.TestCase):
    """Each check finds what it is for."""

    def test_everything_that_is_broken(self):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "broken.html").write_text(BROKEN)
            with Site(Path(folder)) as site:
                async def look(browser):
                    return [(await site.each(browser, ["broken.html"], how, size))["broken.html"]
                            for how, size in ((whole, WIDE), (source, PHONE))]

                problems, on_a_phone = asyncio.run(site.browse(look))
        self.assertEqual(set(on_a_phone), {"console", "requests", "foreign", "width"})
        self.assertIn("said", problems["console"])
        self.assertRegex("\n".join(problems["requests"]), r"gone\.png answered 404")
        self.assertEqual(problems["foreign"][0], "https://example.org/x.png")
        self.assertRegex(problems["pictures"][0], "gone.png did not come")
        self.assertRegex(problems["width"][0], "light, 360 pixels: 9.. pixels; <p style=\"width:900px\"")
        self.assertRegex("\n".join(problems["axe"]), "light: color-contrast")
        for rule in ("color-contrast", "image-alt"):
            self.assertRegex("\n".join(problems["axe"]), f"dark: {rule}")
        self.assertEqual(problems["charts"], ["c: no tooltip"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--site", type=Path)
    parser.add_argument("--whole", action="store_true")
    arguments, sys.argv[1:] = parser.parse_known_args()
    SITE, WHOLE = arguments.site, arguments.whole
    main()
