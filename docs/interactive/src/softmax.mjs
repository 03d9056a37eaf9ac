// The running softmax of one row, block by block, as kernels 02, 10 and 16 compute it: data/softmax.json.
import {choice, grid, h, selection, statusLine} from "./ui.mjs";

export const title = "Online-softmax stepper";

const MODES = [
  ["classic", "02: the maximum", "m", "the largest score so far is subtracted; at every block the sums are multiplied by e^(old m \u2212 new m)"],
  ["lazy", "10: a maximum that may lag", "m, log2", "m follows the largest score only when that has grown by more than {growth} in units of log2"],
  ["first", "16: the first scores", "r, log2", "{margin} above the largest score of the first block; if a block's sum exceeds {sum}, its P, l and O are scaled down, and beyond {lost} the row is given up"],
];
const BLOCKS = [1, 2, 4, 8];

// ---- the same arithmetic in JavaScript, for rows that the reader writes ------------------------------------------------
// fp32 by Math.fround. Its powers are rounded to nearest, a GPU's ex2.approx is up to 2 ulp away.
const f32 = Math.fround;
const exp = (x) => f32(Math.exp(x));
const exp2 = (x) => (x < -126 ? 0 : f32(2 ** x));
const fma = (a, b, c) => f32(a * b + c);

// Steps as in data.presets[i].steps["mode block"].
export function stepsOf(scores, block, mode, data) {
  const {values, growth, margin, sum: most, lost: too_much} = data, log2e = f32(data.log2e);
  const columns = values[0].length;
  let m = -Infinity, l = 0;
  let acc_o = Array(columns).fill(0);
  const steps = [];
  for (let first = 0; first < scores.length; first += block) {
    const part = scores.slice(first, first + block).map(f32);
    const largest = Math.max(...part);
    const max = mode === "classic" ? largest : f32(largest * log2e);
    let p = [], factor = 1, rescaled = false, lost = false;
    const exponentials = () => {
      p = part.map((score) => exp2(fma(score, log2e, -m)));
      return p.reduce((sum, each) => f32(sum + each), 0);
    };
    const rescale = (to, power) => {
      factor = power(f32(m - to));
      rescaled = true;
      acc_o = acc_o.map((o) => f32(o * factor));
      m = to;
    };
    if (mode === "classic") {
      rescale(Math.max(m, max), exp);
      p = part.map((score) => exp(f32(score - m)));
      l = fma(l, factor, p.reduce((sum, each) => f32(sum + each), 0));
    } else if (mode === "lazy") {
      if (max > f32(m + growth)) {
        rescale(Math.max(m, max), exp2);
        l = f32(l * factor);
      }
      l = f32(l + exponentials());
    } else {
      if (first === 0) m = fma(largest, log2e, margin);
      const sum = exponentials();
      l = f32(l + sum);
      if (sum > 2 ** most) {
        const up = 2 * Math.max(Math.ceil(f32(f32(f32(Math.log2(sum)) + margin) / 2)), 0);
        const now = sum > 2 ** too_much, half = now ? NaN : exp2(-up / 2);
        factor = exp2(-up);
        rescaled = !now;
        m = now ? Infinity : f32(m + up);
        l = now ? 0 : f32(f32(l * half) * half);
        acc_o = acc_o.map((o) => f32(o * factor));
        p = p.map((each) => f32(f32(each * half) * half));
      }
      lost = m === Infinity;
    }
    p.forEach((each, j) => { acc_o = acc_o.map((o, c) => fma(each, values[first + j][c], o)); });
    const inverse = f32(1 / l);
    steps.push({max, m, factor, l, rescaled, lost, p, acc_o, o: acc_o.map((o) => f32(o * inverse))});
  }
  return steps;
}

// O of the whole row at once, in double precision.
export function plainOf(scores, values) {
  const most = Math.max(...scores);
  const p = scores.map((score) => Math.exp(score - most));
  const sum = p.reduce((a, b) => a + b);
  return values[0].map((_, c) => p.reduce((o, each, j) => o + each * values[j][c], 0) / sum);
}

// O of a row that kernel 16 gave up, from all its scores, in fp32.
export function mendedOf(scores, data) {
  const scaled = scores.map((score) => f32(f32(score) * f32(data.log2e)));
  const most = Math.max(...scaled);
  const p = scaled.map((score) => exp2(f32(score - most)));
  const sum = p.reduce((a, b) => f32(a + b), 0);
  return data.values[0].map((_, c) => f32(p.reduce((o, each, j) => fma(each, data.values[j][c], o), 0) / sum));
}

// ---- words -------------------------------------------------------------------------------------------------------------

function text(x) {
  if (x === 0) return "0";
  if (!Number.isFinite(x)) return x === Infinity ? "\u221e" : "NaN";  // the data have null for both; m is never NaN
  const size = Math.abs(x);
  if (size >= 1e5 || size < 1e-3) {
    const [digits, exponent] = x.toExponential(2).split("e");
    return `${digits}e${Number(exponent)}`.replace(/-/g, "\u2212");
  }
  return String(Number(x.toPrecision(4))).replace("-", "\u2212");
}
const tuple = (numbers) => `(${numbers.map(text).join(", ")})`;

// "1, 2.5, -3" as numbers, or a sentence that says what is wrong.
export function parse(line, most) {
  const words = line.split(/[\s,;]+/).filter((word) => word);
  const numbers = words.map(Number);
  if (words.length < 2 || words.length > most) return `Write 2 to ${most} numbers.`;
  const wrong = words.find((_, i) => !(Math.abs(numbers[i]) <= 1000));
  return wrong === undefined ? numbers : `"${wrong}" is no number from \u22121000 to 1000.`;
}

export function start(root, data) {
  let preset, block = 2, step = 0;
  let runs, keys;

  const status = statusLine("");
  const controls = h("div", {class: "controls"}), row = h("div", {}), tables = h("div", {class: "panels"});
  const answer = h("p", {}), arithmetic = h("p", {class: "note"});
  const go = (to) => {
    step = Math.min(Math.max(to, 0), runs.classic.length);
    show();
  };
  const button = (words, label, to) => h("button", {type: "button", "aria-label": label, onclick: () => go(to())}, words);
  const steps = h("div", {class: "controls", role: "group", "aria-label": "Steps"},
                  button("\u21e4 Start", "To the start", () => 0), button("\u2190 Back", "One block back", () => step - 1),
                  button("Next \u2192", "Next block", () => step + 1), button("End \u21e5", "To the end", () => runs.classic.length));
  const input = h("input", {type: "text", size: 40, "aria-describedby": "scores-wrong"});
  const wrong = h("p", {id: "scores-wrong", class: "note", role: "alert"});
  const own = h("form", {class: "controls", onsubmit: (event) => {
    event.preventDefault();
    const scores = parse(input.value, data.values.length);
    wrong.textContent = typeof scores === "string" ? scores : "";
    if (typeof scores === "string") return;
    preset = {id: "own", scores, plain: plainOf(scores, data.values), mended: mendedOf(scores, data)};
    begin();
  }}, h("label", {class: "choice"}, h("span", {}, "Scores of your own"), input), h("button", {type: "submit"}, "Take these"), wrong);
  root.append(controls, row, status.element, steps, tables, answer, own, arithmetic);

  function begin() {
    block = Math.min(block, 2 ** Math.floor(Math.log2(preset.scores.length)));
    runs = Object.fromEntries(MODES.map(([mode]) =>
      [mode, preset.steps?.[`${mode} ${block}`] ?? stepsOf(preset.scores, block, mode, data)]));
    step = 1;  // after the first block, so there is something to see
    input.value = preset.scores.join(", ");
    arithmetic.textContent = preset.steps
      ? "These numbers come from a program of this repository, which computes in fp32 with the GPU's exponentials."
      : "These numbers are computed here, in JavaScript, rounded to fp32 after each operation. The last digits may differ from a GPU's.";
    controls.replaceChildren(
      choice({label: "Row of scores", value: preset.id,
              options: [...(preset.steps ? [] : [["own", "your own"]]), ...data.presets.map((one) => [one.id, one.name])],
              onChange: (id) => { history.replaceState(null, "", `#${id}`); take(id); controls.querySelector("select").focus(); }}),
      choice({label: "Keys per block", value: String(block),
              options: BLOCKS.filter((size) => size <= preset.scores.length).map((size) => [String(size), String(size)]),
              onChange: (size) => { block = Number(size); begin(); controls.querySelectorAll("select")[1].focus(); }}));
    const columns = Math.min(8, preset.scores.length), lines = Math.ceil(preset.scores.length / columns);
    const key = (line, column) => (line * columns + column < preset.scores.length ? line * columns + column : null);
    const chosen = selection((j) => status.say(j === null ? summary() : words(j)));
    keys = grid({
      label: "Scores of the row's keys", rows: lines, columns,
      cell: (line, column) => {
        const j = key(line, column);
        if (j === null) return {label: "no key"};
        const now = Math.floor(j / block) === step - 1, done = j < step * block;
        return {text: text(preset.scores[j]), label: words(j), class: now ? "colour-1 framed" : done ? "colour-0" : ""};
      },
      onActive: (line, column) => chosen.hover(key(line, column)),
      onLeave: () => chosen.hover(null),
      onPin: (line, column) => { if (key(line, column) !== null) go(Math.floor(key(line, column) / block) + 1); },
    });
    row.replaceChildren(h("h2", {}, "Scores, key after key"), keys.element, h("ul", {class: "keys"},
      h("li", {}, h("span", {class: "key colour-1"}), "this block"), h("li", {}, h("span", {class: "key colour-0"}), "blocks before")));
    show();
  }

  function summary() {
    if (step === 0) return "Nothing is known yet. Next takes the first block; a click on a key goes to its block.";
    const rescaled = MODES.filter(([mode]) => runs[mode][step - 1].rescaled && runs[mode][step - 1].factor !== 1)
      .map(([mode, name]) => `${name.split(":")[0]} by ${text(runs[mode][step - 1].factor)}`);
    const lost = lostNow(step - 1) ? " 16 gives the row up: a P may be infinite." : runs.first[step - 1].lost ? " 16 has given the row up." : "";
    return `Block ${step} of ${runs.classic.length}. ` +
      (step === 1 ? "The first block: there is nothing to rescale." :
       rescaled.length ? `What was summed up before is multiplied: ${rescaled.join(", ")}.` : "Nothing is rescaled.") + lost;
  }
  // Whether kernel 16 gives the row up in this block.
  function lostNow(i) {
    return runs.first[i].lost && !(i > 0 && runs.first[i - 1].lost);
  }
  function words(j) {
    const at = Math.floor(j / block), place = j % block;
    return `Key ${j}, block ${at + 1}: score ${text(preset.scores[j])}, v = ${tuple(data.values[j])}. P = ` +
      MODES.map(([mode, name]) => `${text(runs[mode][at].p[place])} in ${name.split(":")[0]}`).join(", ") + ".";
  }

  function show() {
    status.say(summary());
    keys.update();
    const [start, back, next, end] = steps.querySelectorAll("button");
    const focused = document.activeElement;
    start.disabled = back.disabled = step === 0;
    next.disabled = end.disabled = step === runs.classic.length;
    if (focused && focused.disabled) (step === 0 ? next : back).focus();
    tables.replaceChildren(...MODES.map(([mode, name, reference, about]) => {
      const seen = runs[mode].slice(0, step);
      const lines = seen.map((s, i) => {
        const changes = s.rescaled && i > 0 && s.factor !== 1;
        const factor = s.lost && !seen[i - 1]?.lost ? "given up" : i === 0 ? "\u2013" : !s.rescaled ? "none" : `\u00d7 ${text(s.factor)}`;
        return h("tr", {class: i === step - 1 ? "now" : ""}, h("th", {scope: "row"}, i + 1), h("td", {}, s.lost ? text(Infinity) : text(s.m)),
                 h("td", {}, changes ? h("strong", {class: "rescaled"}, factor) : factor), h("td", {}, text(s.l)),
                 h("td", {}, tuple(s.o)));
      });
      const times = seen.filter((s, i) => s.rescaled && i > 0 && s.factor !== 1).length;
      return h("section", {class: "panel"}, h("h2", {}, name), h("p", {class: "note"}, filled(about)),
        h("div", {class: "scroll whole", tabindex: 0, role: "region", "aria-label": `${name}: its steps`},
          h("table", {class: "steps"}, h("thead", {}, h("tr", {}, ["Block", reference, "Factor", "l", "O = acc_o / l"].map((head) => h("th", {scope: "col"}, head)))),
            h("tbody", {}, lines.length ? lines : h("tr", {}, h("td", {colspan: 5}, "no block yet"))))),
        h("p", {}, `Rescaled ${times === 1 ? "once" : `${times} times`}.` + (seen.at(-1)?.lost ? " Given up, and computed again when all blocks are done." : "")));
    }));
    const at_end = step === runs.classic.length;
    answer.replaceChildren(h("strong", {}, "Plain softmax of the whole row: "), `O = ${tuple(preset.plain)}. `,
      at_end && runs.first.at(-1).lost ? `16 computes the row again, with its maximum: O = ${tuple(preset.mended)}. ` : "",
      at_end ? `Largest difference: ${MODES.map(([mode, name]) => `${name.split(":")[0]} ${text(difference(mode))}`).join(", ")}.`
             : "It needs all scores before the first exponential.");
  }
  // The words about a mode, with the kernel's numbers.
  function filled(about) {
    return about.replace(/\{(\w+)\}/g, (_, name) => (["lost", "sum"].includes(name) ? `2^${text(data[name])}` : text(data[name])));
  }
  function difference(mode) {
    const last = runs[mode].at(-1);
    return Math.max(...(last.lost ? preset.mended : last.o).map((o, c) => Math.abs(o - preset.plain[c])));
  }

  // The address names the row: softmax.html#dominant
  function take(id) {
    preset = data.presets.find((one) => one.id === id) ?? data.presets.find((one) => one.id === "increasing");
    begin();
  }
  addEventListener("hashchange", () => take(location.hash.slice(1)));
  take(location.hash.slice(1));
}
