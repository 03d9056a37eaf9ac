// One or two kernels' traces of one CTA, in one scale: data/timeline.json (scripts/fa_tools/figures/timeline_page.py says what is in it).
import {choice, h, statusLine} from "./ui.mjs";

export const title = "Pipeline timeline";

const SHORT = {"Tensor Cores": "Tensor Core", "Products under way": "products", "Exponentials": "exp2", "Shared memory": "shared mem.",
               "L2 to SM": "from L2", "Loads under way": "loads", "Copies under way": "copies"};
const ROW = 15, GAP = 2, AXIS = 26;

const dark = () => getComputedStyle(document.documentElement).colorScheme === "dark";
let units = {};  // what a warp does or waits for: its name, its colour on light and on dark
const colour = (unit) => (units[unit] ?? units.other)[dark() ? 2 : 1];
const cycles = (n) => Math.round(n).toLocaleString("en");

// A trace with its events as {row, index, start, end, times, kind, arrows: [others], ends: true if an arrow comes from it}.
export function unpack(trace, groups) {
  const rows = trace.rows.map(([group, name, words], row) => {
    let at = 0;
    const events = (words ? words.split(" ") : []).map((word, index) => {
      const [gap, length, kind, times = 1] = word.split(".").map((digits) => parseInt(digits, 36));
      const start = at + gap;
      at = start + length;
      return {row, index, start, end: at, times, kind: trace.kinds[kind], ended_by: null, ends: []};
    });
    return {group: groups[group], name, events};
  });
  for (const arrow of trace.arrows ? trace.arrows.split(" ") : []) {
    const [row, index, by_row, by_index] = arrow.split(".").map((digits) => parseInt(digits, 36));
    const waits = rows[row].events[index], by = rows[by_row].events[by_index];
    waits.ended_by = by;
    by.ends.push(waits);
  }
  return {...trace, rows, id: trace.kernel.slice(0, 2) + (trace.recorded ? "r" : "")};
}

function rowName({group, name}) {
  if (group === "Warps") return name;
  const first = /^of warps (\d+)/.exec(name);
  return `${SHORT[group]}${first ? ` ${first[1]}` : name && /^\d+$/.test(name) ? ` ${name}` : ""}`;
}

function owner(trace, event) {
  const {group, name} = trace.rows[event.row];
  if (group === "Warps") return name;
  if (event.kind[4]) return `${group}, of ${event.kind[4]}`;
  return /^of warps/.test(name) ? `${group} ${name}` : group;
}

// What an event is, in words.
export function describe(trace, event) {
  const [name, , line, amount] = event.kind;
  const length = event.end - event.start;
  const parts = [`${owner(trace, event)}: ${name}${event.times > 1 ? ` \u00d7 ${event.times}` : ""}`,
                 `cycles ${cycles(event.start)} to ${cycles(event.end)} (${cycles(length)})`];
  if (amount) parts.push(event.times > 1 ? `${amount} each` : amount);
  if (line) parts.push(/^\d/.test(line) ? `line ${line}` : line);
  let text = `${parts.join("; ")}.`;
  if (event.ended_by) text += ` Ended by ${owner(trace, event.ended_by)}: ${event.ended_by.kind[0]}. Enter goes there.`;
  if (event.ends.length) {
    const who = [...new Set(event.ends.map((wait) => owner(trace, wait)))];
    text += ` It ends the wait of ${who.length > 3 ? `${who.slice(0, 2).join(", ")} and ${who.length - 2} more` : who.join(", ")}.`;
  }
  return text;
}

// ---- one trace -----------------------------------------------------------------------------------------------------------

// view.span: cycles across, the same for all panels. zoomed(span, part) and moved(cycles) tell the page what is wanted.
function panel(letter, view, say, zoomed, moved) {
  let trace, from = 0, chosen = null, hovered = null, width = 0;
  const canvas = h("canvas", {"aria-hidden": "true"});
  const heading = h("h2", {}), about = h("p", {class: "note"});
  const box = h("div", {
    class: "timeline", tabindex: 0, role: "application", "aria-roledescription": "timeline", "data-keyboard": true,
    "data-hover": true,
  }, canvas);
  const element = h("section", {class: "panel trace"}, heading, about, box);
  const pen = canvas.getContext("2d");
  const left = () => (width < 500 ? 76 : 92);
  const scale = () => (width - left() - 4) / view.span;
  const x = (cycle) => left() + (cycle - from) * scale();
  const clamp = () => { from = Math.min(Math.max(from, 0), Math.max(trace.shown - view.span, 0)); };

  function show(next) {
    trace = next;
    from = 0;
    chosen = hovered = null;
    heading.textContent = `${letter}: ${trace.kernel}, ${trace.recorded ? "recorded" : "emulated"}`;
    const part = trace.shown < trace.cycles ? `The first ${cycles(trace.shown)} of ${cycles(trace.cycles)} cycles` : `${cycles(trace.cycles)} cycles`;
    about.textContent = `${part}; ${trace.problem}; ` + (trace.recorded
      ? `measured on an ${trace.recorded.split(" (")[0]} by lane 0 of each warp.` : "by a model of one SM, for order and overlap, not a measurement.");
    box.setAttribute("aria-label", `${heading.textContent}: arrows go from event to event, plus and minus zoom`);
    draw();
  }

  function draw() {
    width = box.clientWidth;
    if (!width || !trace) return;
    clamp();
    const tall = trace.rows.length * (ROW + GAP) + AXIS, dots = window.devicePixelRatio || 1;
    canvas.width = width * dots;
    canvas.height = tall * dots;
    canvas.style.height = `${tall}px`;
    pen.setTransform(dots, 0, 0, dots, 0, 0);
    const style = getComputedStyle(document.documentElement);
    const text = style.getPropertyValue("--text"), muted = style.getPropertyValue("--muted"), cell = style.getPropertyValue("--cell");
    pen.clearRect(0, 0, width, tall);
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "middle";
    trace.rows.forEach((row, i) => {
      const y = i * (ROW + GAP);
      pen.fillStyle = text;
      pen.textAlign = "right";
      pen.fillText(rowName(row), left() - 6, y + ROW / 2, left() - 6);
      pen.fillStyle = cell;  // as far as the trace goes
      pen.fillRect(left(), y, Math.max(Math.min(width - 4, x(trace.shown)) - left(), 0), ROW);
      pen.save();
      pen.beginPath();
      pen.rect(left(), y, width - left() - 4, ROW);
      pen.clip();
      drawRow(row.events, y);
      pen.restore();
    });
    const bottom = trace.rows.length * (ROW + GAP) + 4;
    const step = [10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000].find((size) => size * scale() >= 64) ?? 20000;
    pen.fillStyle = pen.strokeStyle = muted;
    for (let cycle = Math.ceil(from / step) * step; cycle <= from + view.span; cycle += step) {
      pen.fillRect(x(cycle), bottom - 3, 1, 5);
      pen.textAlign = x(cycle) > width - 30 ? "right" : x(cycle) < left() + 12 ? "left" : "center";
      pen.fillText(cycles(cycle), x(cycle), bottom + 10);
    }
    pen.textAlign = "right";
    pen.fillText("cycle", left() - 6, bottom + 10);
    for (const [event, line] of [[hovered, 1.5], [chosen, 2.5]]) {
      if (event) outline(event, text, line);
    }
  }

  // Waits are thin, what a warp or a unit does is tall. What is narrower than a pixel shares it: the longest is drawn.
  function drawRow(events, y) {
    let column = -1, shares = {};
    const flush = () => {
      const [best] = Object.entries(shares).sort((a, b) => b[1] - a[1]);
      if (best) block(best[0].slice(1), best[0][0] === "w", column, 1, y);
      shares = {};
    };
    let first = 0, last = events.length;
    while (first < last) {  // the first event that ends after `from`
      const middle = (first + last) >> 1;
      if (events[middle].end <= from) first = middle + 1; else last = middle;
    }
    for (let i = first; i < events.length && events[i].start < from + view.span; i++) {
      const event = events[i], begin = x(event.start), wide = (event.end - event.start) * scale();
      const waits = event.kind[0].startsWith("waits:");
      if (wide >= 1) {
        block(event.kind[1], waits, begin, wide > 4 ? wide - 0.5 : wide, y);
      } else {
        if (Math.floor(begin) !== column) flush();
        column = Math.floor(begin);
        const key = (waits ? "w" : "d") + event.kind[1];
        shares[key] = (shares[key] ?? 0) + wide;
      }
    }
    flush();
  }
  function block(unit, waits, begin, wide, y) {
    pen.fillStyle = colour(unit);
    pen.fillRect(begin, waits ? y + ROW / 2 - 2 : y + 1, wide, waits ? 4 : ROW - 2);
  }

  function outline(event, ink, line) {
    const box_of = (e) => [Math.max(x(e.start), left()), e.row * (ROW + GAP), Math.max((e.end - Math.max(e.start, from)) * scale(), 3)];
    pen.strokeStyle = pen.fillStyle = ink;
    pen.lineWidth = line;
    pen.save();
    pen.beginPath();
    pen.rect(left() - 2, 0, width - left() - 2, trace.rows.length * (ROW + GAP));
    pen.clip();
    const [begin, y, wide] = box_of(event);
    if (event.end > from) pen.strokeRect(begin, y + 0.5, wide, ROW - 1);
    const pairs = event.ended_by ? [[event.ended_by, event]] : event.ends.map((wait) => [event, wait]);
    for (const [by, wait] of pairs) {
      const [x1, y1] = [x(Math.min(by.end, wait.end)), by.row * (ROW + GAP) + ROW / 2], [x2, y2] = [x(wait.end), wait.row * (ROW + GAP) + ROW / 2];
      pen.lineWidth = 1.5;
      pen.beginPath();
      pen.moveTo(x1, y1);
      pen.lineTo(x2, y2);
      pen.stroke();
      pen.beginPath();
      pen.arc(x2, y2, 3, 0, 7);
      pen.fill();
    }
    pen.restore();
  }

  // ---- pointer
  const cycleAt = (px) => from + (px - left()) / scale();
  function eventAt(px, py) {
    const row = trace.rows[Math.floor(py / (ROW + GAP))];
    if (!row || px < left()) return null;
    const cycle = cycleAt(px), slack = 2 / scale();
    let best = null;
    for (const event of row.events) {
      if (event.start > cycle + slack) break;
      if (event.end < cycle - slack) continue;
      const off = Math.max(event.start - cycle, cycle - event.end, 0);
      if (!best || off < best[0]) best = [off, event];
    }
    return best && best[1];
  }
  const summary = () => `${letter}, ${trace.kernel}, ${trace.recorded ? "recorded" : "emulated"}: cycles ${cycles(from)} to ` +
    `${cycles(Math.min(from + view.span, trace.shown))}. Point at an event, or move with the arrow keys.`;
  function tell() {
    const event = hovered ?? chosen;
    say(event ? `${letter}, ${describe(trace, event)}` : summary());
  }
  const at = (event) => {
    const area = canvas.getBoundingClientRect();
    return [event.clientX - area.left, event.clientY - area.top];
  };
  const pointers = new Map();
  let dragged = 0, pinch = null;
  box.addEventListener("pointerover", (event) => {
    if (event.pointerType === "touch") return;
    hovered = eventAt(...at(event));
    if (hovered) tell(); else say(summary());
    draw();
  });
  box.addEventListener("pointerleave", (event) => { if (event.pointerType !== "touch") { hovered = null; tell(); draw(); } });
  box.addEventListener("pointerdown", (event) => {
    pointers.set(event.pointerId, at(event));
    if (pointers.size === 1) dragged = 0;
    if (pointers.size === 2) pinch = {apart: apart(), span: view.span};
    if (event.isTrusted) box.setPointerCapture(event.pointerId);
  });
  const apart = () => Math.max(Math.abs([...pointers.values()].reduce((a, b) => a[0] - b[0])), 10);
  box.addEventListener("pointermove", (event) => {
    const now = at(event), before = pointers.get(event.pointerId);
    if (before) {
      pointers.set(event.pointerId, now);
      if (pointers.size === 2) {
        zoom(pinch.span * pinch.apart / apart(), ([...pointers.values()].reduce((a, b) => (a[0] + b[0]) / 2)));
      } else if (Math.abs(now[0] - before[0]) + dragged > 3) {
        dragged += Math.abs(now[0] - before[0]);
        moved((before[0] - now[0]) / scale());
      }
    } else if (event.pointerType !== "touch") {
      const found = eventAt(...now);
      if (found !== hovered) { hovered = found; tell(); draw(); }
    }
  });
  const up = (event) => {
    if (!pointers.delete(event.pointerId) || event.type === "pointercancel") return;
    pinch = null;
    if (dragged > 3 || pointers.size) return;
    choose(eventAt(...at(event)));
  };
  box.addEventListener("pointerup", up);
  box.addEventListener("pointercancel", up);
  box.addEventListener("wheel", (event) => {
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      zoom(view.span * 1.0015 ** event.deltaY, at(event)[0]);
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      moved((event.deltaX || event.deltaY) / scale());
    }
  }, {passive: false});

  // ---- keyboard
  function choose(event) {
    chosen = event;
    if (event && (event.start < from || event.end > from + view.span)) {
      const long = event.end - event.start >= view.span;
      if (long ? event.end <= from || event.start >= from + view.span : true) {
        moved((long ? event.start : (event.start + event.end) / 2 - view.span / 2) - from);
      }
    }
    hovered = null;
    tell();
    draw();
  }
  // In another row: what is there at the same time.
  function neighbour(rows) {
    const middle = chosen.start;
    for (let row = chosen.row + rows; row >= 0 && row < trace.rows.length; row += rows) {
      const events = trace.rows[row].events;
      if (!events.length) continue;
      return events.reduce((best, event) => (distance(event, middle) < distance(best, middle) ? event : best));
    }
    return chosen;
  }
  const distance = (event, cycle) => (event.start > cycle ? event.start - cycle : event.end <= cycle ? cycle - event.end + 1 : 0);
  const firstInView = () => {
    const row = trace.rows.find(({events}) => events.some((event) => event.end > from));
    return row.events.find((event) => event.end > from);
  };
  box.addEventListener("keydown", (event) => {
    const row = chosen && trace.rows[chosen.row].events;
    const keys = {
      ArrowRight: () => choose(chosen ? row[Math.min(chosen.index + 1, row.length - 1)] : firstInView()),
      ArrowLeft: () => choose(chosen ? row[Math.max(chosen.index - 1, 0)] : firstInView()),
      ArrowDown: () => choose(chosen ? neighbour(1) : firstInView()),
      ArrowUp: () => choose(chosen ? neighbour(-1) : firstInView()),
      Home: () => choose(chosen ? row[0] : firstInView()),
      End: () => choose(chosen ? row.at(-1) : firstInView()),
      Enter: () => choose(chosen?.ended_by ?? chosen?.ends[0] ?? chosen ?? firstInView()),
      PageDown: () => moved(view.span * 0.8),
      PageUp: () => moved(-view.span * 0.8),
      Escape: () => choose(null),
      "+": () => zoomBy(0.5), "=": () => zoomBy(0.5), "-": () => zoomBy(2), 0: () => zoom(Infinity),
    };
    if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    keys[event.key]();
  });
  function zoomBy(factor) {
    zoom(view.span * factor, chosen ? x(Math.min(Math.max((chosen.start + chosen.end) / 2, from), from + view.span)) : undefined);
  }
  // Keeps what is at `px`.
  function zoom(span, px = left() + (width - left()) / 2) {
    zoomed(span, (px - left()) / (width - left() - 4));
    tell();
  }
  return {element, show, draw, zoomBy, tell, move: (by) => { from += by; clamp(); draw(); }, shown: () => trace.shown, focus: () => box.focus()};
}

// ---- the page --------------------------------------------------------------------------------------------------------------

export function start(root, data) {
  units = data.units;
  const traces = data.traces.map((trace) => unpack(trace, data.groups));
  const names = traces.map((trace) => [trace.id, `${trace.kernel}, ${trace.recorded ? "recorded" : "emulated"}`]);
  const by_id = (id) => traces.find((trace) => trace.id === id);
  const view = {span: 6000};
  const chosen = {A: "13", B: "14"};
  let together = true;

  const status = statusLine("Choose a timeline with Tab. Arrow keys move from event to event, + and \u2212 zoom, 0 shows all, Enter goes to what ended a wait.");
  // All panels keep the cycle that is at this part of their width.
  const zoomed = (span, part) => {
    const longest = Math.max(...shown().map((one) => one.shown()));
    const before = view.span;
    view.span = Math.min(Math.max(span, 40), longest);
    shown().forEach((one) => one.move(part * (before - view.span)));
  };
  const panels = {};
  for (const letter of ["A", "B"]) {
    panels[letter] = panel(letter, view, status.say, zoomed, (by) => {
      (together ? shown() : [panels[letter]]).forEach((one) => one.move(by));
    });
  }
  const shown = () => (chosen.B === "none" ? [panels.A] : [panels.A, panels.B]);

  const selects = h("div", {class: "controls"});
  function pick() {
    selects.replaceChildren(...["A", "B"].map((letter) => choice({
      label: `Trace ${letter}`, value: chosen[letter], options: letter === "B" ? [...names, ["none", "none"]] : names,
      onChange: (id) => {
        chosen[letter] = id;
        history.replaceState(null, "", `#${chosen.A},${chosen.B}`);
        show();
      },
    })));
  }
  function show() {
    panels.B.element.hidden = chosen.B === "none";
    side_by_side.classList.toggle("one", chosen.B === "none");
    for (const letter of ["A", "B"]) if (by_id(chosen[letter])) panels[letter].show(by_id(chosen[letter]));
    view.span = Math.min(view.span, Math.max(...shown().map((one) => one.shown())));
    shown().forEach((one) => one.draw());
  }
  const side_by_side = h("div", {class: "traces"}, panels.A.element, panels.B.element);
  const button = (words, label, onclick) => h("button", {type: "button", "aria-label": label, onclick}, words);
  const both = h("input", {type: "checkbox", checked: true, onchange: () => { together = both.checked; }});
  root.append(
    selects,
    h("div", {class: "controls", role: "group", "aria-label": "View"},
      button("+", "Zoom in", () => panels.A.zoomBy(0.5)), button("\u2212", "Zoom out", () => panels.A.zoomBy(2)),
      button("\u2190", "Earlier", () => shown().forEach((one) => one.move(-view.span / 2))),
      button("\u2192", "Later", () => shown().forEach((one) => one.move(view.span / 2))),
      button("All", "Show all", () => panels.A.zoomBy(Infinity)),
      h("label", {class: "check"}, both, " move both together")),
    status.element, side_by_side,
    h("ul", {class: "keys", "aria-label": "Colours"},
      Object.entries(units).map(([unit, [name]]) => h("li", {}, h("span", {class: "key", "data-unit": unit}), name)),
      h("li", {}, h("span", {class: "key thin"}), "thin: waits for it")));
  function begin() {
    const [a, b] = location.hash.slice(1).split(",");
    if (by_id(a)) chosen.A = a;
    if (by_id(b) || b === "none") chosen.B = b;
    pick();
    show();
  }
  addEventListener("hashchange", begin);
  function redraw() {
    shown().forEach((one) => one.draw());
    for (const key of document.querySelectorAll("[data-unit]")) key.style.background = colour(key.dataset.unit);
  }
  begin();
  redraw();
  new ResizeObserver(redraw).observe(root);
  new MutationObserver(redraw).observe(document.documentElement, {attributes: true, attributeFilter: ["data-theme"]});
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
}
