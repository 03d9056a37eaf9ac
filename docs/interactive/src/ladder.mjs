// One tile of K and V in each kernel: what moves where, in which order, at the same time as what. Places and arrows are drawn here;
// which arrows there are, when they move and how much is in data/ladder.json, of the emulator's traces.
import {choice, h, list, selection, statusLine, svg} from "./ui.mjs";

export const title = "The ladder, tile by tile";

// What each kernel brings, and what it does away with.
const IDEAS = {
  "01": ["Three passes, one thread per element.", "Nothing yet: S and P travel through global memory."],
  "02": ["K and V come in tiles through shared memory, with a running maximum and sum.", "S no longer goes to global memory."],
  "03": ["Each thread owns a register tile and loads 16 bytes at a time.", "Most loads from shared memory: a value serves several products."],
  "04": ["Tensor Cores multiply.", "Products on CUDA cores. But S, P and O have to pass through shared memory."],
  "05": ["The layout of fragments is known, and warps split the keys.", "S and O leave shared memory. P and the statistics of rows still cross it."],
  "06": ["Warps split the queries.", "P and the statistics leave shared memory: P stays in the registers in which S was."],
  "07": ["Copies fly by themselves, into a ring of stages.", "K and V no longer pass through registers, and no warp waits for a load in the middle of a tile."],
  "08": ["XOR swizzle of shared memory.", "Bank conflicts: the wavefronts of ldmatrix fall to their ideal."],
  "09": ["Fragments are read one step ahead.", "Reading Q again for every tile: it stays in registers."],
  "10": ["32 rows per warp; rescaling only after a vote.", "Half of the fragment loads per product, nearly all shuffles, and instructions that the trace does not show."],
  "11": ["wgmma: a warpgroup's products read shared memory themselves.", "ldmatrix: K and V skip the registers."],
  "12": ["TMA: one thread asks for whole boxes.", "Copies thread by thread, and the barrier of all warps: full and empty take its place."],
  "13": ["Roles: a producer warp loads, two warpgroups compute.", "Loads among the instructions of the warps that multiply."],
  "14": ["Exponentials under products, in turns and inside a warpgroup.", "Tensor Cores that wait for a softmax."],
  "15": ["Persistent CTAs: O leaves by TMA while the next query tile begins.", "The pause at the boundary between two query tiles."],
  "16": ["The first score is the reference.", "The row's maximum, and its exchange between lanes. Comparisons are plain arithmetic, which the trace does not show."],
};

// ---- names and numbers -------------------------------------------------------------------------------------------------

// What an arrow carries, by the names in a trace.
const TENSOR = {Q: "Q", K: "K", V: "V", O: "O", workspace: "S", "Q*K": "S", exp2: "P", "exp2*V": "O", "": "m, l"};
const PLACE = {global: "global memory", shared: "shared memory", registers: "registers"};
const NAMES = {"cp.async.bulk.tensor (load)": "TMA", "cp.async.bulk.tensor (store)": "TMA", "wmma.m16n16k16": "wmma"};
const LOOK = {Q: "blue", K: "blue", V: "blue", S: "orange", P: "orange", O: "green", "m, l": "muted"};
const number = (x) => x.toLocaleString("en", {maximumFractionDigits: 2});
const name_of = (how) => NAMES[how] ?? how.replace(/^(mma|wgmma)\..*/, "$1");
const kilobytes = (bytes) => (bytes < 1024 ? `${number(bytes)} bytes` : `${number(bytes / 1024)} KB`);
const counted = (count, what) => `${number(count)} ${what}${count === 1 ? "" : "s"}`;
const is_product = (flow) => flow.to === "tensor";
const operands = (flow) => flow.of.split(" ").map((name) => TENSOR[name]);
const result = (flow) => (operands(flow).includes("K") ? "S" : "O");

// The arrows of a flow: {tensor, from, to}. A product also has an arrow for what it makes; a wgmma reads P from registers.
function arrows(flow) {
  if (is_product(flow)) {
    return [...operands(flow).map((tensor) => ({tensor, from: tensor === "P" ? "registers" : flow.from, to: "tensor"})),
            {tensor: result(flow), from: "tensor", to: "registers"}];
  }
  if (flow.to === "exponential") {
    return [{tensor: "S", from: "registers", to: "exponential"}, {tensor: "P", from: "exponential", to: "registers"}];
  }
  return flow.to === "lanes" ? [] : [{tensor: TENSOR[flow.of], from: flow.from, to: flow.to}];
}

// "K from global to shared memory (cp.async)"
function words(flow, tensors, much = "") {
  const how = name_of(flow.how) + (much && `: ${much}`);
  if (is_product(flow)) {
    return `Tensor Cores multiply ${result(flow) === "S" ? "Q by K" : "P by V"} (${how})`;
  }
  if (flow.to === "exponential") return `exponentials turn S into P${much && ` (${much})`}`;
  if (flow.to === "lanes") return `lanes exchange values (${how})`;
  const what = flow.of === "workspace" ? "S, later P" : list(tensors.map((tensor) => (tensor === "m, l" ? "statistics of rows" : tensor)));
  return `${what} from ${PLACE[flow.from]} to ${PLACE[flow.to]} (${how})`;
}

// What a flow amounts to: "128 instructions, 4,096 wavefronts, 8.00 per ideal one".
function amounts(flow) {
  const each = [counted(flow.count, "instruction")];
  if (flow.bytes) each.push(kilobytes(flow.bytes));
  if (flow.wavefronts && flow.ideal) {
    each.push(`${counted(flow.wavefronts, "wavefront")}, ${(flow.wavefronts / flow.ideal).toFixed(2)} per ideal one`);
  }
  if (flow.flops) each.push(`${number(flow.flops / 1e6)} MFLOP`);
  return each.join(", ");
}
// The one that tells most.
function amount(flow) {
  return flow.bytes ? kilobytes(flow.bytes) : flow.wavefronts && flow.ideal ? counted(flow.wavefronts, "wavefront") : counted(flow.count, "instruction");
}

// ---- the drawing -------------------------------------------------------------------------------------------------------

const WIDE = 440;
const BANDS = {global: [18, 52], shared: [126, 176], registers: [254, 306], exponential: [342, 368], tensor: [396, 432]};
const GAP = {"global shared": 91, "shared registers": 216, "registers exponential": 326, "registers tensor": 382, "global registers": 91,
             "shared tensor": 382};

// Which columns a kernel has: Q, K and V, then for each role that has registers S, P, O, and the statistics if they move.
function columns(kernel) {
  const consumers = kernel.roles.flatMap((_, role) => (kernel.flows.some((flow) => flow.role === role && (flow.to === "exponential" || is_product(flow))) ? [role] : []));
  const statistics = kernel.flows.some((flow) => flow.phase === "tile" && flow.of === "" && flow.to !== "exponential" && flow.to !== "lanes");
  const wanted = [...["Q", "K", "V"].map((tensor) => [tensor, null]),
                 ...consumers.flatMap((role) => ["S", "P", "O", ...(statistics ? ["m, l"] : [])].map((tensor) => [tensor, role]))];
  const step = (WIDE - 96) / (wanted.length - 1);
  return {consumers, all: wanted.map(([tensor, role], i) => ({tensor, role, x: 54 + i * step})), step};
}

function drawing(kernel) {
  const {consumers, all, step} = columns(kernel);
  // The columns of a tensor: those of the role, or of all if it only copies.
  const columns_of = (tensor, role) => all.filter((one) => one.tensor === tensor && (one.role === null || one.role === role || !consumers.includes(role)));
  const text = (x, y, words, names = "", anchor = "middle") => svg("text", {x, y, class: names, "text-anchor": anchor}, words);
  const names = [];  // drawn last, over the arrows
  const band = (place, label, from = 6, to = WIDE - 6) => {
    const [top, bottom] = BANDS[place];
    names.push(text(from + 6, top - 5, label, "label", "start"));
    return svg("rect", {x: from, y: top, width: to - from, height: bottom - top, rx: 6, class: "place"});
  };
  const flows = kernel.flows.map((flow, index) => ({flow, index}));
  const ends = flows.flatMap(({flow}) => arrows(flow).flatMap(({tensor, from, to}) => [[tensor, from, flow.role], [tensor, to, flow.role]]));
  const holds = (place, one) => ends.some(([tensor, there, role]) => tensor === one.tensor && there === place && (one.role === null || role === one.role || !consumers.includes(role)));
  const chips = ["global", "shared", "registers"].flatMap((place) => all.filter((one) => holds(place, one)).map((one) => {
    const [top, bottom] = BANDS[place], wide = Math.min(step - 6, 34);
    const name = place === "global" && one.tensor === "S" ? "S, P" : one.tensor;
    return svg("g", {class: `chip ${LOOK[one.tensor]}`, "data-at": `${place} ${one.tensor} ${one.role ?? ""}`.trim()},
               svg("rect", {x: one.x - wide / 2, y: (top + bottom) / 2 - 11, width: wide, height: 22, rx: 4}),
               text(one.x, (top + bottom) / 2 + 4.5, name));
  }));
  const lines = [], labels = [], told = new Set();
  for (const {flow, index} of flows) {
    for (const [{tensor, from, to}, at, first] of arrows(flow).flatMap((arrow) => columns_of(arrow.tensor, flow.role).map((one, i) => [arrow, one, i === 0]))) {
      const down = BANDS[from][0] < BANDS[to][0], near = Math.min(step / 4, 11);
      const right = from === "tensor" || to === "exponential" || (from === "registers" && to === "shared") || (from === "global" && to === "registers") ? -near : near;
      const straight = (from === "global" && to === "shared") || (from === "shared" && to === "global") ? 0 : right;
      const x = at.x + straight + (to === "exponential" ? 2 * near - 4 : from === "exponential" ? -2 * near + 4 : 0);
      const y1 = down ? BANDS[from][1] + 1 : BANDS[from][0] - 1, y2 = down ? BANDS[to][0] - 2 : BANDS[to][1] + 2, head = down ? -6 : 6;
      lines.push(svg("g", {class: `flow ${LOOK[tensor]}`, "data-flow": index, "data-hover": true},
        svg("path", {d: `M${x} ${y1}V${y2}`, class: "wire"}), svg("path", {d: `M${x} ${y1}V${y2 + head}`, class: "dots"}),
        svg("path", {d: `M${x - 4} ${y2 + head}H${x + 4}L${x} ${y2}z`, class: "head"})));
      // The number beside an arrow: bytes from and to global memory, wavefronts of shared memory, instructions.
      const middle = GAP[`${from} ${to}`] ?? GAP[`${to} ${from}`] ?? 382;
      const amount = is_product(flow) ? (from === "tensor" ? number(flow.count) : null)
        : to === "exponential" ? number(flow.count) : from === "exponential" ? null
        : flow.bytes ? kilobytes(flow.bytes) : number(flow.wavefronts);
      const key = `${Math.round(x)} ${middle}`;
      if (amount === null || !first || told.has(key)) continue;
      told.add(key);
      const before = straight < 0 || x > WIDE - 48;  // at the right edge there is no room behind the arrow
      labels.push(svg("g", {class: "amount", "data-flow": index}, text(x + (before ? -5 : 5), middle + (down ? 8 : -4), amount, "", before ? "end" : "start")));
    }
  }
  const registers = consumers.length < 2 ? band("registers", `registers of ${kernel.roles[consumers[0]].warps} warps`)
    : consumers.flatMap((role) => {
        const mine = all.filter((one) => one.role === role);
        return band("registers", kernel.roles[role].name.toLowerCase(), mine[0].x - step / 2 + 2, mine.at(-1).x + step / 2 - 2);
      });
  // Roles that only copy stand at the copies.
  const copying = kernel.roles.flatMap((role, i) => (consumers.includes(i) ? [] : [[role, i]])).map(([role, i], n) =>
    text((all[2].x + all[5].x) / 2, 68 + 14 * n, `${role.name.toLowerCase()}: ${counted(role.warps, "warp")}`, "label"));
  const units = consumers.flatMap((role) => {
    const [a, b] = ["S", "P"].map((tensor) => columns_of(tensor, role)[0].x);
    return [svg("rect", {x: a + 3, y: BANDS.exponential[0], width: b - a - 6, height: BANDS.exponential[1] - BANDS.exponential[0], rx: 4, class: "unit", "data-unit": `exponential ${role}`}),
            text((a + b) / 2, BANDS.exponential[0] + 17, "exp", "unit-name")];
  });
  const multiplies = kernel.flows.some(is_product);
  units.push(svg("rect", {x: 6, y: BANDS.tensor[0], width: WIDE - 12, height: BANDS.tensor[1] - BANDS.tensor[0], rx: 6, class: "unit", "data-unit": "tensor"}),
             text(WIDE / 2, BANDS.tensor[0] + 22, multiplies ? "Tensor Cores" : "CUDA cores: plain arithmetic, which the trace does not show", "unit-name"));
  return svg("svg", {viewBox: `0 0 ${WIDE} 440`, class: "tile", role: "img", "aria-label": `Kernel ${kernel.id}: where Q, K, V, S, P and O are and move`},
             band("global", "global memory, through L2"), band("shared", "shared memory"), registers, copying, units, lines, chips, labels, names);
}

// ---- the page ----------------------------------------------------------------------------------------------------------

// What is compared from kernel to kernel: name, value.
const BLOCK = [
  ["global memory", ({block}) => `${number(block.global_sectors / 32)} KB`],
  ["wavefronts of shared memory", ({block}) => `${number(block.shared_wavefronts)}${block.shared_wavefronts === block.shared_wavefronts_ideal ? "" : ` (ideal ${number(block.shared_wavefronts_ideal)})`}`],
  ["ldmatrix", ({block}) => number(block.ldmatrix)], ["matrix instructions", ({block}) => number(block.matrix_products)],
  ["exponentials", ({block}) => number(block.exp2)], ["shuffles and votes", ({block}) => number(block.shuffles + block.votes)],
  ["barriers of warps", ({block}) => number(block.barriers)], ["besides, per query tile: shuffles", (kernel) => number(shuffles_once(kernel))],
];
// Of the warps that compute; the others shuffle only to choose a thread.
function shuffles_once({flows}) {
  const computes = (role) => flows.some((flow) => flow.role === role && flow.to === "exponential");
  return flows.reduce((sum, flow) => sum + (flow.how === "shuffle" && flow.per === "query tile" && computes(flow.role) ? flow.count : 0), 0);
}

export function start(root, data) {
  let kernel = data.kernels[0], steps = [], step = 0, timer = null, shapes, rows;
  const slow = matchMedia("(prefers-reduced-motion: reduce)");

  const status = statusLine("");
  const idea = h("p", {class: "idea"});
  const button = (words, label, onclick) => h("button", {type: "button", "aria-label": label, onclick}, words);
  const beside = (by) => data.kernels[Math.min(Math.max(data.kernels.indexOf(kernel) + by, 0), data.kernels.length - 1)].id;
  const change = (id) => {
    history.replaceState(null, "", `#${id}`);
    choose(id);
  };
  const slider = h("input", {type: "range", min: 1, max: data.kernels.length, "aria-label": "Kernel", oninput: () => change(data.kernels[slider.value - 1].id)});
  const names = choice({label: "Kernel", value: kernel.id, options: data.kernels.map((one) => [one.id, one.kernel]), onChange: change});
  const pick = h("div", {class: "controls", role: "group", "aria-label": "Kernel"},
                 button("\u2190", "The kernel before", () => change(beside(-1))), names, button("\u2192", "The next kernel", () => change(beside(1))), slider);
  const play = button("\u25b6 Play", "Play", () => (timer === null ? begin() : stop()));
  const turns = h("div", {class: "controls", role: "group", "aria-label": "Steps"},
                  button("\u21e4 Start", "To the first step", () => go(0)), button("\u2190 Back", "One step back", () => go(step - 1)),
                  button("Next \u2192", "Next step", () => go(step + 1)), play);
  const chosen = selection((index) => {
    status.say(index === null ? sentence() : detail(kernel.flows[index]));
    mark(index);
  });
  const flow_at = (event) => {
    const found = event.target.closest("[data-flow]");
    return found ? Number(found.dataset.flow) : null;
  };
  const hovers = {
    onpointerover: (event) => { if (event.pointerType !== "touch") chosen.hover(flow_at(event)); },
    onpointerleave: (event) => { if (event.pointerType !== "touch") chosen.hover(null); },
  };
  const box = h("div", {class: "ladder-box", tabindex: 0, role: "application", "aria-roledescription": "animation", "data-keyboard": true,
                        "aria-label": "One tile: arrows left and right step, up and down change the kernel, Space plays", ...hovers});
  const flows = h("ul", {class: "flows", "aria-label": "What moves", ...hovers});
  const about = h("p", {class: "note"}), table = h("div", {class: "scroll whole", tabindex: 0, role: "region", "aria-label": "Counts beside the kernel before"});
  const barriers = h("p", {class: "note"});
  root.append(pick, idea, status.element, turns,
    h("div", {class: "panels"}, h("div", {class: "panel"}, box, about),
      h("div", {class: "panel"}, h("h2", {}, "What moves, how much, and when"), flows, barriers)),
    h("h2", {}, "For 128 \u00d7 128 scores, beside the kernel before"), table);

  // ---- words
  const named = (role) => kernel.roles[role].name;
  function said(indices) {
    const groups = new Map();  // equal words of several roles, tensors that travel together
    for (const index of indices) {
      const flow = kernel.flows[index], moves = !is_product(flow) && flow.to !== "exponential" && flow.to !== "lanes";
      const key = `${flow.how} ${flow.from} ${flow.to} ${moves ? "" : flow.of}`;
      const group = groups.get(key) ?? {flow, tensors: [], roles: [], sum: {}};
      groups.set(key, group);
      if (moves && !group.tensors.includes(TENSOR[flow.of])) group.tensors.push(TENSOR[flow.of]);
      if (!group.roles.includes(flow.role)) group.roles.push(flow.role);
      for (const name of ["count", "bytes", "wavefronts", "ideal"]) group.sum[name] = (group.sum[name] ?? 0) + flow[name];
    }
    const by_role = new Map();
    for (const {flow, tensors, roles, sum} of groups.values()) {
      const who = kernel.roles.length < 2 ? "" : list(roles.map(named)).replace(/ and Warpgroup/, " and warpgroup");
      by_role.set(who, [...(by_role.get(who) ?? []), words(flow, tensors, amount(sum))]);
    }
    return [...by_role].map(([who, what]) => `${who ? `${who}: ` : ""}${what.join("; ")}`).map((part) => `${part[0].toUpperCase()}${part.slice(1)}.`).join(" ");
  }
  function sentence() {
    const {phase, flows: indices, first, last} = steps[step];
    const when = phase === "before" ? "before the first tile" : phase === "after" ? "after the last tile"
      : `cycles ${number(first)} to ${number(last)} of ${number(kernel.cycles)}`;
    return `Kernel ${kernel.id}, step ${step + 1} of ${steps.length}, ${when}. ${indices.length ? said(indices) : "Nothing moves: warps wait."}`;
  }
  function detail(flow) {
    const who = kernel.roles.length < 2 ? "" : `${named(flow.role)}: `;
    return `Kernel ${kernel.id}, ${who}${words(flow, [TENSOR[flow.of]])}: ${amounts(flow)} per ${unit(flow)}.`;
  }
  const unit = (flow) => (flow.per === "launch" ? "CTA of each pass" : flow.per);

  // ---- steps
  function go(to, keep = false) {
    if (!keep) stop();
    step = Math.min(Math.max(to, 0), steps.length - 1);
    show();
  }
  function begin() {
    if (step === steps.length - 1) step = 0;
    play.textContent = "\u23f8 Pause";
    play.setAttribute("aria-label", "Pause");
    box.classList.toggle("playing", !slow.matches);
    turn();
    show();
  }
  function stop() {
    clearTimeout(timer);
    timer = null;
    play.textContent = "\u25b6 Play";
    play.setAttribute("aria-label", "Play");
    box.classList.remove("playing");
  }
  // A step lasts as long as its part of the tile, so that a tile takes ten seconds; a reader needs at least two.
  function turn() {
    const {first, last} = steps[step];
    timer = setTimeout(() => {
      if (step === steps.length - 1) return stop();
      go(step + 1, true);
      turn();
    }, Math.max(10_000 * (last - first) / kernel.cycles, 2000));
  }
  const mark = (index) => {
    for (const one of [...shapes, ...rows]) one.classList.toggle("marked", index !== null && Number(one.dataset.flow) === index);
  };
  function show() {
    const now = steps[step].flows;
    status.say(sentence());
    for (const one of [...shapes, ...rows]) one.classList.toggle("now", now.includes(Number(one.dataset.flow)));
    for (const rest of box.querySelectorAll("[data-unit]")) {
      const [place, role] = rest.dataset.unit.split(" ");
      rest.classList.toggle("now", now.some((index) => kernel.flows[index].to === place && (role === undefined || Number(role) === kernel.flows[index].role)));
    }
    for (const head of flows.querySelectorAll(".playhead")) {
      const {phase, first, last} = steps[step];
      head.hidden = phase !== "tile";
      head.style.left = `${100 * first / kernel.cycles}%`;
      head.style.width = `${100 * (last - first) / kernel.cycles}%`;
    }
    const [first, back, next] = turns.querySelectorAll("button"), focused = document.activeElement;
    first.disabled = back.disabled = step === 0;
    next.disabled = step === steps.length - 1;
    if (focused?.disabled) (step === 0 ? next : back).focus();
  }

  // ---- a kernel
  function track(flow) {
    const bins = [...flow.bins].map(Number), parts = [];
    bins.forEach((share, i) => { if (share > 0) parts.push(`M${i} ${9 - share}V10H${i + 1}V${9 - share}z`); });
    return h("div", {class: "track"}, h("span", {class: "playhead"}),
             svg("svg", {viewBox: `0 0 ${data.bins} 10`, preserveAspectRatio: "none", "aria-hidden": "true"}, svg("path", {d: parts.join("")})));
  }
  function choose(id) {
    const wanted = data.kernels.find((one) => one.id === id) ?? data.kernels[0];
    stop();
    kernel = wanted;
    const place = data.kernels.indexOf(kernel);
    const ordered = (phase) => kernel.flows.flatMap((flow, i) => (flow.phase === phase && flow.to !== "lanes" ? [i] : []));
    const edge = (first) => Math.round(first / data.bins * kernel.cycles);
    steps = [
      ...(ordered("before").length ? [{phase: "before", flows: ordered("before"), first: 0, last: 0}] : []),
      ...kernel.steps.map(([first, indices], i) => ({phase: "tile", flows: indices, first: edge(first), last: edge(kernel.steps[i + 1]?.[0] ?? data.bins)})),
      ...(ordered("after").length ? [{phase: "after", flows: ordered("after"), first: 0, last: 0}] : [])];
    step = 0;
    slider.value = place + 1;
    slider.setAttribute("aria-valuetext", kernel.kernel);
    names.querySelector("select").value = kernel.id;
    idea.replaceChildren(h("strong", {}, "New: "), `${IDEAS[kernel.id][0]} `, h("strong", {}, "Gone: "), IDEAS[kernel.id][1]);
    box.replaceChildren(drawing(kernel));
    shapes = [...box.querySelectorAll("[data-flow]")];
    const began = (flow) => ({before: -1, tile: flow.bins.search(/[1-9]/) >>> 0, after: Infinity})[flow.phase];
    const told = kernel.flows.map((flow, i) => [flow, i]).filter(([flow]) => flow.phase === "tile" || flow.to !== "lanes");
    told.sort(([a], [b]) => began(a) - began(b) || 0);
    flows.replaceChildren(...told.map(([flow, i]) => h("li", {"data-flow": i, "data-hover": true},
      h("span", {class: `mark ${is_product(flow) ? LOOK[result(flow)] : LOOK[flow.to === "exponential" ? "P" : flow.to === "lanes" ? "m, l" : TENSOR[flow.of]]}`}),
      h("span", {class: "what"}, `${kernel.roles.length < 2 ? "" : `${named(flow.role)}: `}${words(flow, [TENSOR[flow.of]])}`),
      h("span", {class: "much"}, amounts(flow) + (flow.phase === "tile" ? (unit(flow) === "query tile" ? ", per query tile" : "")
        : `, ${flow.phase} the ${flow.phase === "before" ? "first" : "last"} tile`)),
      flow.phase === "tile" ? track(flow) : null)));
    rows = [...flows.children];
    about.textContent = (kernel.passes ? `One CTA of each of three launches, ${kernel.tokens} tokens. `
      : `One tile: ${kernel.rows} queries, ${kernel.keys} keys, head_dim 128${kernel.boundary ? ", where one query tile ends and the next begins" : ""}. `)
      + "Beside the arrows: bytes of global memory, wavefronts of shared memory or, at the units, instructions of warps.";
    const waits = Object.entries(kernel.waits).map(([name, count]) => `${number(count)} ${name}`);
    barriers.textContent = waits.length ? `Barriers per tile, all warps together: ${waits.join(", ")}.` : "No barriers.";
    const before = data.kernels[place - 1];
    table.replaceChildren(h("table", {class: "steps"},
      h("thead", {}, h("tr", {}, ["counter", ...(before ? [before.id] : []), kernel.id].map((head) => h("th", {scope: "col"}, head)))),
      h("tbody", {}, BLOCK.map(([name, value]) => h("tr", {}, h("th", {scope: "row"}, name),
        [...(before ? [before] : []), kernel].map((one) => h("td", {}, value(one))))))));
    show();
  }
  box.addEventListener("keydown", (event) => {
    const keys = {
      ArrowRight: () => go(step + 1), ArrowLeft: () => go(step - 1), Home: () => go(0), End: () => go(steps.length - 1),
      ArrowDown: () => change(beside(1)), ArrowUp: () => change(beside(-1)),
      " ": () => play.click(),
    };
    if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    keys[event.key]();
  });
  addEventListener("hashchange", () => choose(location.hash.slice(1)));
  choose(location.hash.slice(1));
}
