// The ring of kernel 12, step by step: one thread loads, TMA brings boxes, two warpgroups read; the reader says which of them
// goes on. What a step does to the barriers is what common/ptx/mbarrier.h says. Numbers of the kernel: data/phases.json.
import {choice, grid, h, list, selection, statusLine} from "./ui.mjs";

export const title = "Phase explorer";

// Settings: name in the address, name, stages (null: as the kernel), what else differs from the kernel.
const SETTINGS = [
  ["kernel", "the kernel as it is", null, {}],
  ["one_stage", "the toy: one stage", 1, {}],
  ["three_stages", "exercise 1: three stages", 3, {}],
  ["load_parity", "broken: the load begins with parity 0", null, {load: 1}],
  ["read_parity", "broken: the warps begin with parity 1", null, {read: 1}],
  ["half_the_bytes", "broken: announces one box of two", null, {bytes: (whole) => whole / 2}],
  ["one_byte_less", "broken: announces one byte less", null, {bytes: (whole) => whole - 1}],
  ["twice_the_bytes", "broken: announces twice the bytes", null, {bytes: (whole) => 2 * whole}],
  ["no_wait", "broken: the load does not wait for empty", null, {waitless: true}],
  ["half_the_arrivals", "broken: empty expects one warpgroup", null, {arrivals: 0.5}],
];

const readers_of = (state, stage_of, stage) =>
  state.readers.flatMap(({tile, reads}, g) => (reads && stage_of(tile) === stage ? [g] : []));
const groups = (numbers) => `warpgroup${numbers.length > 1 ? "s" : ""} ${list(numbers)}`;

// ---- the machine -----------------------------------------------------------------------------------------------------
// A state is plain data, and a step makes a new one: so the page can go back, and try all orders.

export function machine(data, id) {
  const [, , own, bug] = SETTINGS.find(([name]) => name === id);
  const stages = own ?? data.stages;
  const per_group = data.warps / data.warpgroups;
  const expected = bug.arrivals ? data.warps * bug.arrivals : data.warps;
  const whole = data.boxes * data.box_bytes;
  const announced = bug.bytes ? bug.bytes(whole) : whole;
  const stage_of = (n) => n % stages, phase_of = (n) => Math.floor(n / stages);
  const parity = {full: (n) => (phase_of(n) + (bug.read ?? 0)) % 2, empty: (n) => (phase_of(n) + 1 + (bug.load ?? 0)) % 2};
  const over = (bar, wanted) => bar.phase % 2 !== wanted;

  const begin = () => ({
    loaded: 0, copies: [], broken: "",
    full: Array.from({length: stages}, () => ({phase: 0, arrivals: 1, bytes: 0})),
    empty: Array.from({length: stages}, () => ({phase: 0, arrivals: expected, bytes: 0})),
    places: Array.from({length: stages}, () => Array(data.boxes).fill(-1)),  // the tile of each box, -1: nothing
    readers: Array.from({length: data.warpgroups}, () => ({tile: 0, reads: false})),
  });
  // Whether the phase is over, and the next one has begun; `arrivals`: what a phase of this barrier needs.
  const end_phase = (bar, arrivals) => {
    if (bar.arrivals !== 0 || bar.bytes !== 0) return false;
    Object.assign(bar, {phase: bar.phase + 1, arrivals});
    return true;
  };
  const arrive = (next, bar, name, count) => {
    if (bar.arrivals < count) next.broken = `One arrival too many at ${name}: its phase has all that it waits for. The emulator stops here.`;
    bar.arrivals -= count;
  };

  // What each of them does next: {label, waits: "" or for what, act(state): what has happened}. null: nothing any more.
  function load(state) {
    const n = state.loaded, stage = stage_of(n);
    if (n === data.tiles) return null;
    const free = bug.waitless || over(state.empty[stage], parity.empty(n));
    return {
      label: `load tile ${n}`, waits: free ? "" : `waits at empty[${stage}] for parity ${parity.empty(n)}`,
      act: (next) => {
        const bar = next.full[stage];
        bar.bytes += announced;
        arrive(next, bar, `full[${stage}]`, 1);
        end_phase(bar, 1);
        for (let box = 0; box < data.boxes; box++) next.copies.push([n, box]);
        next.loaded += 1;
        return `The thread announces ${announced.toLocaleString("en")} bytes at full[${stage}] and starts the copy of tile ${n}.`;
      },
    };
  }
  function bring(state) {
    if (state.copies.length === 0) return {label: "bring a box", waits: "has nothing to bring"};
    const [n, box] = state.copies[0], stage = stage_of(n);
    return {
      label: `bring box ${box} of tile ${n}`, waits: "",
      act: (next) => {
        next.copies.shift();
        const readers = readers_of(next, stage_of, stage);
        if (readers.length) next.broken = `Box ${box} of tile ${n} overwrites what ${groups(readers)} read in stage ${stage}.`;
        next.places[stage][box] = n;
        const bar = next.full[stage], phase = bar.phase;
        bar.bytes -= data.box_bytes;
        const bytes = `${Math.abs(bar.bytes).toLocaleString("en")} byte${Math.abs(bar.bytes) === 1 ? "" : "s"}`;
        return `Box ${box} of tile ${n} is in stage ${stage}. ` +
          (end_phase(bar, 1) ? `Phase ${phase} of full[${stage}] is over.` :
           bar.bytes < 0 ? `That is ${bytes} more than full[${stage}] was told.` : `full[${stage}] lacks ${bytes}.`);
      },
    };
  }
  function read(state, g) {
    const {tile, reads} = state.readers[g], stage = stage_of(tile);
    if (tile === data.tiles) return null;
    if (reads) {
      return {
        label: `release tile ${tile}`, waits: "",
        act: (next) => {
          next.readers[g] = {tile: tile + 1, reads: false};
          const bar = next.empty[stage], phase = bar.phase;
          arrive(next, bar, `empty[${stage}]`, per_group);
          return `${per_group} warps arrive at empty[${stage}]. ` +
            (end_phase(bar, expected) ? `Phase ${phase} of it is over.` : `It lacks ${bar.arrivals} arrivals.`);
        },
      };
    }
    return {
      label: `read tile ${tile}`,
      waits: over(state.full[stage], parity.full(tile)) ? "" : `waits at full[${stage}] for parity ${parity.full(tile)}`,
      act: (next) => {
        next.readers[g].reads = true;
        const wrong = next.places[stage].findIndex((there) => there !== tile);
        if (wrong >= 0) {
          const there = next.places[stage][wrong];
          next.broken = `Warpgroup ${g} reads tile ${tile}, but in the place of its box ${wrong} is ` +
            `${there < 0 ? "nothing yet" : `tile ${there}`}.`;
        }
        return `Warpgroup ${g} reads tile ${tile} in stage ${stage}.`;
      },
    };
  }
  const roles = [["Loading thread", load], ["TMA", bring],
                 ...Array.from({length: data.warpgroups}, (_, g) => [`Warpgroup ${g}`, (state) => read(state, g)])];

  const moves = (state) => roles.map(([, next]) => next(state));
  const open = (state) => (state.broken ? [] : moves(state).flatMap((move, i) => (move && !move.waits ? [i] : [])));
  const step = (state, role) => {
    const next = structuredClone(state);
    const said = moves(state)[role].act(next);
    return {state: next, said};
  };
  // "" while something can go on; otherwise how it ends.
  const verdict = (state) => (state.broken ? "wrong" : open(state).length ? "" :
    state.readers.every(({tile}) => tile === data.tiles) ? "right" : "hangs");
  // How it can end, over all orders.
  function endings() {
    const seen = new Set(), found = new Set(), waiting = [begin()];
    while (waiting.length) {
      const state = waiting.pop(), key = JSON.stringify(state);
      if (seen.has(key)) continue;
      seen.add(key);
      if (verdict(state)) found.add(verdict(state));
      for (const role of open(state)) waiting.push(step(state, role).state);
    }
    return {ends: ["right", "wrong", "hangs"].filter((end) => found.has(end)), states: seen.size};
  }
  return {stages, parity, stage_of, phase_of, roles: roles.map(([name]) => name), begin, moves, open, step, verdict, endings};
}

// ---- the page --------------------------------------------------------------------------------------------------------

const ENDS = {right: "right", wrong: "with a wrong tile or an arrival too many", hangs: "in a hang"};

export function start(root, data) {
  let id, ring, past, tiles;

  const status = statusLine("");
  const controls = h("div", {class: "controls"}), orders = h("p", {class: "note"}), ended = h("ul", {class: "warnings"});
  const now = () => past.at(-1).state;
  const go = (role) => {
    past.push({...ring.step(now(), role), role});
    show();
  };
  const back = (to) => {
    past.length = to;
    show();
  };
  // The one after the last that can go on.
  const next_role = () => {
    const open = ring.open(now()), last = past.at(-1).role ?? -1;
    return open.find((role) => role > last) ?? open[0];
  };
  const to_the_end = () => {
    while (!ring.verdict(now())) {
      const open = ring.open(now());
      const role = open[Math.floor(Math.random() * open.length)];
      past.push({...ring.step(now(), role), role});
    }
    show();
  };
  const button = (words, label, act) => h("button", {type: "button", "aria-label": label, onclick: act}, words);
  const steps = h("div", {class: "controls", role: "group", "aria-label": "Steps"},
                  button("\u21e4 Start", "To the start", () => back(1)), button("\u2190 Back", "One step back", () => back(past.length - 1)),
                  button("Next \u2192", "Next step, in turn", () => go(next_role())),
                  button("Any order \u21e5", "To the end in a random order", to_the_end));
  const actors = h("div", {class: "actors", role: "group", "aria-label": "What goes on next"});
  const barriers = h("div", {class: "panel"}), table = h("div", {class: "panel"});
  root.append(controls, status.element, h("h2", {}, "What goes on next? You decide"), actors, steps, ended,
              h("div", {class: "panels"}, barriers, table), orders);

  function begin() {
    ring = machine(data, id);
    past = [{state: ring.begin(), said: "Nothing is loaded yet. Choose what goes on, or press Next."}];
    if (ring.open(now()).includes(0)) past.push({...ring.step(now(), 0), role: 0});  // the first tile is ordered
    const {ends, states} = ring.endings();
    orders.textContent = `Tried here in all orders (${states.toLocaleString("en")} different situations): ` +
      (ends.length === 1 ? `every order ends ${ENDS[ends[0]]}.` : `some orders end ${ends.map((end) => ENDS[end]).join(", others ")}.`);
    controls.replaceChildren(
      choice({label: "Kernel", value: id, options: SETTINGS.map(([name, words]) => [name, words]),
              onChange: (name) => { history.replaceState(null, "", `#${name}`); take(name); controls.querySelector("select").focus(); }}));
    const columns = [["stage", (n) => ring.stage_of(n)], ["phase", (n) => ring.phase_of(n)],
                     ["at full", (n) => ring.parity.full(n)], ["at empty", (n) => ring.parity.empty(n)]];
    const chosen = selection((n) => status.say(n === null ? past.at(-1).said : words(n)));
    tiles = grid({
      label: "Tiles, their stages, phases and parities", rows: data.tiles, columns: columns.length,
      rowHeader: (n) => n, columnHeader: (i) => columns[i][0], corner: "",
      cell: (n, i) => {
        const [name, value] = columns[i], readers = now().readers;
        const read = readers.some(({tile, reads}) => tile === n && reads), done = readers.every(({tile}) => tile > n);
        return {text: value(n), label: `tile ${n}, ${name}: ${value(n)}`,
                class: done ? "colour-2" : read ? "colour-1 framed" : n < now().loaded ? "colour-0" : ""};
      },
      onActive: (n) => chosen.hover(n), onLeave: () => chosen.hover(null),
      onPin: (n) => chosen.pin(n), onEscape: () => chosen.clear(),
    });
    table.replaceChildren(h("h2", {}, "Each tile: stage, phase, and the parities of its waits"), tiles.element,
      h("ul", {class: "keys"}, [["colour-0", "ordered"], ["colour-1", "is read"], ["colour-2", "released by all warps"]].map(
        ([key, text]) => h("li", {}, h("span", {class: `key ${key}`}), text))));
    show();
  }

  function words(n) {
    const stage = ring.stage_of(n), phase = ring.phase_of(n), before = n - ring.stages;
    return `Tile ${n}: stage ${stage}. Its bytes complete phase ${phase} of full[${stage}], and the warps wait for parity ${ring.parity.full(n)}. ` +
      `Its load waits at empty[${stage}] for parity ${ring.parity.empty(n)}: ` +
      (before < 0 ? "no phase came before." : `phase ${phase - 1}, in which tile ${before} is released.`);
  }

  function show() {
    const state = now(), moves = ring.moves(state), open = ring.open(state), end = ring.verdict(state);
    status.say(past.at(-1).said);
    const focused = [...actors.querySelectorAll("button")].indexOf(document.activeElement);
    actors.replaceChildren(...moves.map((move, role) => h("div", {},
      h("span", {}, ring.roles[role]),
      h("button", {type: "button", disabled: !open.includes(role), onclick: () => go(role)}, move ? move.label : "has finished"),
      h("span", {class: "note"}, state.broken || !move ? "\u00a0" : move.waits || "can go on"))));
    const [first, one_back, next, any] = steps.querySelectorAll("button");
    first.disabled = one_back.disabled = past.length === 1;
    next.disabled = any.disabled = open.length === 0;
    const wanted = focused < 0 ? null : actors.querySelectorAll("button")[focused];
    if (wanted || document.activeElement?.disabled) (wanted && !wanted.disabled ? wanted : next.disabled ? one_back : next).focus();
    ended.replaceChildren(...(end ? [h("li", {class: end === "right" ? "fine" : ""},
      end === "right" ? `All ${data.tiles} tiles were read whole.` : end === "wrong" ? state.broken : hang(moves))] : []));
    const missing = (bar, bytes) => [bar.phase, bar.phase % 2, bar.arrivals, bytes].map((text) => h("td", {}, text));
    const holds = (stage) => {
      const boxes = state.places[stage].map((tile) => (tile < 0 ? "nothing" : `tile ${tile}`));
      const readers = readers_of(state, ring.stage_of, stage);
      return (boxes.every((one) => one === boxes[0]) ? boxes[0] : boxes.map((one, box) => `box ${box}: ${one}`).join(", ")) +
        (readers.length ? `; read by ${groups(readers)}` : "");
    };
    barriers.replaceChildren(h("h2", {}, "Barriers and stages now"),
      h("div", {class: "scroll whole", tabindex: 0, role: "region", "aria-label": "Barriers"}, h("table", {class: "steps"},
        h("thead", {}, h("tr", {}, ["", "phase", "parity", "arrivals due", "bytes due"].map((head) => h("th", {scope: "col"}, head)))),
        h("tbody", {}, state.full.flatMap((bar, stage) => [
          h("tr", {}, h("th", {scope: "row"}, `full[${stage}]`), missing(bar, bar.bytes.toLocaleString("en"))),
          h("tr", {}, h("th", {scope: "row"}, `stage ${stage}`), h("td", {colspan: 4}, holds(stage))),
          h("tr", {}, h("th", {scope: "row"}, `empty[${stage}]`), missing(state.empty[stage], "\u2013"))])))));
    tiles.update();
  }
  // "It hangs: the loading thread waits at empty[0] for parity 0."
  function hang(moves) {
    const waits = moves.flatMap((move, role) => (move?.waits.startsWith("waits") ? [`${ring.roles[role].toLowerCase()} ${move.waits}`] : []));
    return `It hangs: the ${list(waits)}.`;
  }

  function take(name) {
    id = SETTINGS.some(([one]) => one === name) ? name : SETTINGS[0][0];
    begin();
  }
  addEventListener("hashchange", () => take(location.hash.slice(1)));
  take(location.hash.slice(1));
}
