// Which lane meets which bank of shared memory in which wavefront: data/banks.json. Nothing is counted here.
import {choice, grid, h, LANE, list, selection, statusLine} from "./ui.mjs";

export const title = "Bank-conflict explorer";

// Cases that chapters speak of: name, pattern, head_dim, padding, layout.
const CASES = [
  ["05: ldmatrix, rows of 256 bytes", "ldmatrix_q", 128, 0, "none"],
  ["05: the same with 8 elements of padding", "ldmatrix_q", 128, 8, "none"],
  ["08: ldmatrix with XOR", "ldmatrix_q", 128, 0, "xor"],
  ["08: the copies with XOR", "rows_16", 128, 0, "xor"],
  ["08, exercise 1: rotation", "ldmatrix_k", 128, 0, "rotation"],
  ["08, exercise 2: every other row", "ldmatrix_k", 128, 0, "every_other_row"],
  ["08, exercise 3: ldmatrix, rows of 64 bytes", "ldmatrix_k", 128, 0, "mode_64"],
  ["08, exercise 3: the copies", "rows_16", 128, 0, "mode_64"],
  ["02: a column of K without padding", "column_2", 128, 0, "none"],
  ["02: a column of K with its 2 elements", "column_2", 128, 2, "none"],
  ["05: P stored without padding", "fragment", 64, 0, "none"],
  ["05: P stored with padding", "fragment", 64, 8, "none"],
  ["11 on: O stored as TMA wants it", "ldmatrix_q", 128, 0, "mode_128"],
];

// "3", "0 and 1", "0 to 3"
function several(numbers) {
  const first = numbers[0], last = numbers.at(-1);
  return numbers.length > 2 && last - first === numbers.length - 1 ? `${first} to ${last}` : list(numbers);
}
// The same for a cell.
function brief(numbers) {
  return numbers.length > 2 ? `${numbers[0]}\u2013${numbers.at(-1)}` : numbers.join(",");
}

export function start(root, data) {
  const pattern = (id) => data.patterns.find((one) => one.id === id);
  const layout = (id) => data.layouts.find((one) => one.id === id);
  const key = (c) => `${c.pattern} ${c.head_dim} ${c.pad} ${c.layout}`;
  // The address names the case: banks.html#ldmatrix_q-128-0-xor
  const hash = (c) => `#${key(c).replaceAll(" ", "-")}`;
  let chosen;

  const status = statusLine("");
  const controls = h("div", {class: "controls"});
  const counts = h("p", {class: "counts"});
  const about = h("p", {class: "note"});
  const banks = h("div", {class: "panel"}), memory = h("div", {class: "panel"});
  root.append(controls, counts, about, status.element, h("div", {class: "panels"}, banks, memory),
              h("ul", {class: "keys", "aria-label": "Colours"},
                [0, 1, 2, 3].map((i) => h("li", {}, h("span", {class: `key colour-${i}`}), `lanes ${8 * i} to ${8 * i + 7}`))));

  // The nearest case that is there: some patterns need whole 16 bytes, some layouts no padding.
  function choose(wanted, changed) {
    let now = wanted;
    if (!data.cases[key(now)]) now = {...wanted, pad: changed === "pad" ? wanted.pad : 0,
                                      layout: changed === "pad" ? "none" : wanted.layout};
    if (!data.cases[key(now)]) now = {...now, pad: 0, layout: wanted.layout};
    chosen = now;
    if (location.hash || changed !== "start") history.replaceState(null, "", hash(now));
    show(key(now) === key(wanted) ? ""
         : wanted.pad !== now.pad ? `Not with ${wanted.pad} elements of padding: ${why(wanted)}. ` : "Padding goes with plain rows. ");
  }
  const why = (c) => (c.pad * 2 % pattern(c.pattern).bytes ? "the accesses would not be aligned" : "the layout has none");

  function showControls() {
    const named = CASES.findIndex(([, ...c]) => c.join(" ") === key(chosen));
    const focused = [...controls.querySelectorAll("select")].indexOf(document.activeElement);
    controls.replaceChildren(
      choice({label: "From the book", value: String(named),
              options: [...(named < 0 ? [["-1", "\u2014"]] : []), ...CASES.map(([name], i) => [String(i), name])],
              onChange: (i) => {
                const [, id, head_dim, pad, how] = CASES[Number(i)];
                choose({pattern: id, head_dim, pad, layout: how});
              }}),
      choice({label: "The warp's access", value: chosen.pattern, options: data.patterns.map((p) => [p.id, p.name]),
              onChange: (id) => choose({...chosen, pattern: id})}),
      choice({label: "head_dim", value: String(chosen.head_dim), options: data.head_dims.map((d) => [String(d), String(d)]),
              onChange: (d) => choose({...chosen, head_dim: Number(d)})}),
      choice({label: "Padding of a row", value: String(chosen.pad),
              options: data.pads.map((p) => [String(p), p ? `${p} elements` : "none"]),
              onChange: (p) => choose({...chosen, pad: Number(p)}, "pad")}),
      choice({label: "Swizzle", value: chosen.layout, options: data.layouts.map((l) => [l.id, l.name]),
              onChange: (id) => choose({...chosen, layout: id})}));
    if (focused >= 0) controls.querySelectorAll("select")[focused].focus();
  }

  function show(remark) {
    showControls();
    const p = pattern(chosen.pattern), found = data.cases[key(chosen)];
    const width = Math.max(p.bytes, 4);  // of a column of the grids, in bytes
    const columns = 128 / width;
    const elements = p.elements[chosen.head_dim];
    const ratio = (found.wavefronts / found.ideal).toFixed(2);
    counts.replaceChildren(h("strong", {}, `${found.wavefronts} wavefront${found.wavefronts > 1 ? "s" : ""}`),
                           `, ${found.ideal} without conflicts: `, h("strong", {}, ratio), " per ideal one");
    about.textContent = `${remark}${p.about}. Rows of ${2 * (chosen.head_dim + chosen.pad)} bytes; ${layout(chosen.layout).formula}.`;
    const idle = `Point at a lane, or move with the arrow keys. ${found.wavefronts} wavefronts of ${columns} places each.`;

    // The lanes in the places of a grid whose rows are `lines`.
    const panel = (name, header, lines, line_of, corner) => {
      const there = new Map();  // "row,column" -> lanes
      for (let lane = 0; lane < 32; lane++) {
        const place = `${lines.indexOf(line_of(lane))},${Math.floor(found.addresses[lane] / width) % columns}`;
        there.set(place, [...(there.get(place) ?? []), lane]);
      }
      const lanes_at = (row, column) => there.get(`${row},${column}`) ?? [];
      const element = grid({
        label: `${name}, and which lanes are there`, rows: lines.length, columns,
        rowHeader: (row) => lines[row], columnHeader: (column) => column * width / 4, corner,
        cell: (row, column) => {
          const lanes = lanes_at(row, column);
          const where = `${header} ${lines[row]}, ${bank_names(column)}`;
          return lanes.length
            ? {text: brief(lanes), label: `${where}: lane ${several(lanes)}`,
               class: `colour-${lanes[0] >> 3}${lanes.includes(lit) ? " lit" : ""}`}
            : {text: "", class: "empty", label: `${where}: nobody`};
        },
        onActive: (row, column) => {
          const lanes = lanes_at(row, column);
          lanes_chosen.hover(lanes.length ? lanes[0] : null);
          if (!lanes.length) status.say(`${name}: ${header} ${lines[row]}, ${bank_names(column)}: no lane.`);
        },
        onLeave: () => lanes_chosen.hover(null),
        onPin: (row, column) => { if (lanes_at(row, column).length) lanes_chosen.pin(lanes_at(row, column)[0]); },
        onEscape: () => lanes_chosen.clear(),
      });
      element.element.classList.toggle("dense", lines.length > 12);
      element.element.style.minWidth = `${columns * 1.1 + 1.5}rem`;
      return element;
    };
    const bank_names = (column) => (width === 4 ? `bank ${column}` : `banks ${column * width / 4} to ${(column + 1) * width / 4 - 1}`);
    let lit = LANE;
    const wavefronts = panel("Wavefronts", "wavefront", Array.from({length: found.wavefronts}, (_, i) => i),
                             (lane) => found.served[lane]);
    const line = (lane) => Math.floor(found.addresses[lane] / 128);
    const touched = [...new Set(found.addresses.map((_, lane) => line(lane)))].sort((a, b) => a - b);
    const lines = panel("Memory", "line", touched, line);
    const say = (lane, hint = "") => {
      if (lane === null) {
        status.say(idle);
      } else {
        const address = found.addresses[lane];
        const together = found.addresses.map((_, other) => other).filter((other) => found.addresses[other] === address);
        const [row, column] = elements[lane], last = column + p.bytes / 2 - 1;
        status.say(`Lane ${several(together)}: row ${row}, column${last > column ? `s ${column} to ${last}` : ` ${column}`}, at byte ` +
                   `${address.toLocaleString("en")}: ${bank_names(Math.floor(address / width) % columns)}, wavefront ${found.served[lane]}.${hint}`);
      }
    };
    const lanes_chosen = selection((lane) => {
      lit = lane;
      say(lane);
      wavefronts.update();
      lines.update();
    }, LANE);
    banks.replaceChildren(h("h2", {}, "Banks (across) in each wavefront (down)"), h("div", {class: "scroll whole"}, wavefronts.element));
    memory.replaceChildren(h("h2", {}, "The same lanes in memory: lines of 128 bytes"), h("div", {class: "scroll whole"}, lines.element));
    say(LANE, ` ${idle.replace("a lane", "another")}`);
  }

  function begin() {
    const wanted = location.hash.slice(1).split("-");
    const [, ...first] = CASES[0];
    const [id, head_dim, pad, how] = data.cases[wanted.join(" ")] ? wanted : first;
    choose({pattern: id, head_dim: Number(head_dim), pad: Number(pad), layout: how}, "start");
  }
  addEventListener("hashchange", begin);
  begin();
}
