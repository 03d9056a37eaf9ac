// Charts that answer the mouse, interactive pages, checkpoints, what scrolls sideways for the keyboard. Without it pages
// are whole.
"use strict";

(() => {
  const base = new URL(document.currentScript.src).href.replace(/assets\/book\.js.*$/, "");
  const specs = {};
  const loading = {};

  window.bookChart = (name, themes) => { specs[name] = themes; };

  // What a tooltip says: the values of the record, with the words of the axes, without what only the drawing needs.
  const tip = (names) => (value, sanitize) => {
    const rows = Object.entries(value).filter(([key, item]) => names[key] && item !== null && item !== "");
    const text = (item) => (typeof item === "number" ? Number(item.toPrecision(4)).toLocaleString("en") : item);
    return `<table>${rows.map(([key, item]) =>
      `<tr><td class="key">${sanitize(names[key])}</td><td class="value">${sanitize(text(item))}</td></tr>`).join("")}</table>`;
  };

  const load = (url) => {
    loading[url] ??= new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.src = base + url;
      script.onload = resolve;
      script.onerror = () => reject(new Error(`cannot load ${url}`));
      document.head.append(script);
    });
    return loading[url];
  };

  const theme = () => (document.body.dataset.mdColorScheme === "slate" ? "dark" : "light");
  const phone = matchMedia("(max-width: 40em)"); // as markdown.py chooses a picture's form

  // Puts the chart in the place of its picture; the picture stays if that fails.
  const draw = async (figure) => {
    const name = figure.dataset.chart;
    const wanted = theme() + (phone.matches ? "-phone" : "");
    if (figure.dataset.drawn === wanted) return;
    figure.dataset.drawn = wanted;
    await load("assets/vega.js");
    await load(`charts/${name}.js`);
    const place = document.createElement("span");
    const { view } = await window.vegaEmbed(place, specs[name][wanted], {
      mode: "vega-lite", renderer: "svg", actions: false,
      tooltip: { formatTooltip: tip(specs[name].names) },
    });
    if (figure.dataset.drawn !== wanted) return view.finalize();
    const svg = place.querySelector("svg");
    svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", figure.querySelector("img").alt);
    figure.querySelector(".chart")?.remove();
    place.className = "chart";
    figure.append(place);
    figure.classList.add("drawn");
  };

  // Calls show(element) once it is nearly in sight.
  const whenSeen = (elements, show) => {
    const look = new IntersectionObserver((entries) => {
      for (const { isIntersecting, target } of entries) {
        if (!isIntersecting) continue;
        look.unobserve(target);
        show(target);
      }
    }, { rootMargin: "600px" });
    elements.forEach((element) => look.observe(element));
  };

  const seen = new Set();
  whenSeen(document.querySelectorAll("[data-chart]"), (figure) => {
    seen.add(figure);
    draw(figure).catch(console.error);
  });
  const drawAnew = () => seen.forEach((figure) => draw(figure).catch(console.error));
  new MutationObserver(drawAnew).observe(document.body, { attributeFilter: ["data-md-color-scheme"] });
  phone.addEventListener("change", drawAnew);

  // An explorer comes when its place is nearly in sight: below the words that lead to it, or instead of its picture. It tells
  // its height, and takes the colours that it is told.
  const embed = (figure, title) => {
    const [page, ...state] = figure.dataset.interactive.split("#");
    const frame = document.createElement("iframe");
    frame.className = "interactive";
    frame.title = title.textContent;
    frame.src = [`${page}?theme=${theme()}`, ...state].join("#");
    addEventListener("message", ({ source, data }) => {
      if (source === frame.contentWindow && data?.interactive === "height") frame.style.height = `${data.height + 2}px`;
    });
    new MutationObserver(() => frame.contentWindow.postMessage({ theme: theme() }, "*"))
      .observe(document.body, { attributeFilter: ["data-md-color-scheme"] });
    figure.classList.add("drawn");
    figure.append(frame);
  };
  const headings = [...document.querySelectorAll("h2")].reverse();
  const before = (figure) => headings.find((h2) => h2.compareDocumentPosition(figure) & Node.DOCUMENT_POSITION_FOLLOWING).firstChild;
  whenSeen(document.querySelectorAll("[data-interactive]"), (figure) => embed(figure, figure.previousElementSibling ?? before(figure)));

  // The letters before a checkpoint's answers become buttons, which say what the fold says of this answer alone.
  for (const fold of document.querySelectorAll("details")) {
    const answers = fold.previousElementSibling;
    const right = fold.querySelector("p > strong:first-child");
    if (fold.querySelector("summary").textContent !== "Answer" || answers?.tagName !== "UL" || !right) continue;
    answers.classList.add("answers");
    const reasons = new Map([right, ...fold.querySelectorAll("li > strong:first-child")].map((letter) =>
      [letter.textContent[0], letter.parentElement]));
    for (const answer of answers.children) {
      const letter = answer.querySelector("strong").textContent;
      const button = document.createElement("button");
      const said = document.createElement("div");
      button.type = "button";
      button.textContent = letter;
      button.setAttribute("aria-label", `Choose ${letter}`);
      said.setAttribute("role", "status");
      button.addEventListener("click", () => {
        const reason = reasons.get(letter).cloneNode(true);
        const verdict = document.createElement("strong");
        verdict.textContent = letter === right.textContent[0] ? "Right." : `No: ${letter}`;
        reason.querySelector("strong").replaceWith(verdict);
        said.replaceChildren(...reason.childNodes);
      });
      answer.querySelector("strong").replaceWith(button);
      answer.append(said);
    }
  }

  // What scrolls sideways can be reached by the keyboard.
  const reach = () => {
    for (const box of document.querySelectorAll(".md-typeset__scrollwrap, .math.block")) {
      box.toggleAttribute("tabindex", false);
      if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
    }
  };
  reach();
  addEventListener("resize", reach);
  new MutationObserver(reach).observe(document.querySelector("article"), { childList: true, subtree: true });
  document.querySelectorAll("details").forEach((details) => details.addEventListener("toggle", reach));
})();
