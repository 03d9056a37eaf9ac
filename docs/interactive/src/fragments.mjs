// Which lane holds which element of a matrix, in which register: data/fragments.json, printed by layouts dump from
// common/layout. This module only looks up what is there.
import {choice, grid, h, LANE, list, selection, statusLine} from "./ui.mjs";

export const title = "Fragment explorer";

const WINDOW = 16;  // columns of a wide matrix that are shown at a time
const LANES = 32;

const plural = (name, count = 2) => (count === 1 || name.length === 1 ? name : name === "query" ? "queries" : `${name}s`);

// "row 1, k 10 and 11", "k 2 and 3, column 1": elements [row, column] of one register.
function places(view, elements) {
  const rows = [...new Set(elements.map(([row]) => row))], columns = [...new Set(elements.map(([, column]) => column))];
  return `${plural(view.row_name, rows.length)} ${list(rows)}, ${plural(view.column_name, columns.length)} ${list(columns)}`;
}

// The same data by register and by element.
function index(view) {
  const registers = view.positions.map((flat) =>  // of a thread: the elements of each register
    Array.from({length: view.registers}, (_, i) => Array.from({length: view.halves}, (_, half) => {
      const at = 2 * (i * view.halves + half);
      return [flat[at], flat[at + 1]];
    })));
  const owners = new Map();
  registers.forEach((mine, thread) => mine.forEach((elements, register) => elements.forEach(([row, column], half) => {
    owners.set(row * view.columns + column, {thread, register, half});
  })));
  return {registers, owner: (row, column) => owners.get(row * view.columns + column)};
}

export function start(root, data) {
  const views = new Map(data.views.map((view) => [view.id, view]));
  const indexed = new Map(data.views.map((view) => [view.id, index(view)]));
  const status = statusLine("");
  const windows = h("span", {});
  const wanted = () => (views.has(location.hash.slice(1)) ? location.hash.slice(1) : data.views[0].id);
  const chooser = choice({label: "Instruction and operand", value: wanted(), onChange: (id) => {
    history.replaceState(null, "", `#${id}`);
    show(views.get(id));
  }, options: data.views.map((view) => [view.id, view.name])});
  const matrixTitle = h("h2", {}), lanesTitle = h("h2", {}), tableTitle = h("h2", {});
  const matrixPlace = h("div", {class: "scroll"}), lanesPlace = h("div", {}), table = h("div", {class: "registers"});
  const keys = h("ul", {class: "keys"}), note = h("p", {class: "note"});
  root.append(
    h("div", {class: "controls"}, chooser, windows), status.element,
    h("div", {class: "panels"},
      h("section", {class: "panel wide"}, matrixTitle, matrixPlace, keys),
      h("section", {class: "panel"}, lanesTitle, lanesPlace, tableTitle, table)),
    note);

  function show(view) {
    const {registers, owner} = indexed.get(view.id);
    const threads = view.positions.length, group = threads > LANES;
    const next = view.becomes ? indexed.get(view.becomes) : null;
    let firstColumn = 0;
    let shown = {thread: LANE}, pinned = shown;  // {thread} or {row, column}
    let hint = " Point at an element or another lane, or move with the arrow keys; a click or Enter pins it.";  // until it is done

    const tile = view.registers_of_tile ?? view.registers;
    const register = (i) => `${view.register}[${i % tile}]`;
    const side = (i) => (tile === view.registers ? "" : i < tile ? "left " : "right ");  // of two C side by side
    const named = (i) => side(i) + register(i);
    const thread = (t) => (group ? `thread ${t} (warp ${Math.floor(t / LANES)}, lane ${t % LANES})` : `lane ${t}`);
    const capital = (text) => text[0].toUpperCase() + text.slice(1);
    const halfName = (half) => (view.halves > 1 ? ["low half", "high half"][half] : null);
    // What an accumulator becomes as an operand of the next product; k counts within its 16 columns.
    const operand = (row, column) => next.owner(row, column % WINDOW);
    const becomes = (row, column) => {
      const {register: i, half} = operand(row, column);
      return `${["low", "high"][half]} half of a[${i}]`;
    };
    const selectedThread = () => (shown === null ? null : shown.thread ?? owner(shown.row, shown.column).thread);

    function words() {
      if (shown === null) return "Point at an element or a lane, or move with the arrow keys; a click or Enter pins it.";
      if (shown.thread === undefined) {
        const {row, column} = shown, {thread: t, register: i, half} = owner(row, column);
        let text = `${capital(view.row_name)} ${row}, ${view.column_name} ${column}: ${thread(t)}, ${named(i)}`;
        if (view.halves > 1) text += `, ${halfName(half)}. The register holds ${places(view, registers[t][i])}`;
        text += ".";
        if (next) text += ` Packed to 16 bits it is the ${becomes(row, column)} of the same ${group ? "thread" : "lane"}.`;
        if (view.addresses) {
          const giver = view.addresses.findIndex(([r, c]) => r === row && column >= c && column < c + 8);
          text += ` Lane ${giver} gives the address of these 8 elements.`;
        }
        return text;
      }
      const t = shown.thread;
      const mine = registers[t].map((elements, i) => [i, elements])
        .filter(([, elements]) => elements.some(([, column]) => column >= firstColumn && column < firstColumn + WINDOW));
      let text = "";
      if (view.addresses) {
        const [row, column] = view.addresses[t];
        text += `Lane ${t} gives the address of ${view.row_name} ${row}, ${plural(view.column_name)} ${column} to ${column + 7} `
          + `(row ${t % 8} of matrix ${Math.floor(t / 8)}). It gets: `;
      } else {
        text += `${capital(thread(t))} holds: `;
      }
      const parts = next || view.halves === 1
        ? pairs(mine).map(([a, b]) => `${side(a[0])}${register(a[0])} and ${register(b[0])}: ${places(view, [...a[1], ...b[1]])}`)
        : mine.map(([i, elements]) => `${named(i)}: ${places(view, elements)}`);
      return `${text}${parts.join("; ")}${view.halves > 1 ? " (the first is the low half)" : ""}.`;
    }
    function pairs(items) {
      return items.flatMap((item, i) => (i % 2 ? [] : [[item, items[i + 1]]]));
    }

    // ---- the matrix
    const columns = Math.min(view.columns, WINDOW);
    const colour = (row, column) => {
      const {register: i} = next ? operand(row, column) : owner(row, column);
      return `colour-${i % 4}`;
    };
    const select = selection((what, kept) => {
      shown = what;
      pinned = kept;
      hint = "";
      update();
    }, pinned);
    const makeMatrix = () => grid({
      label: `${view.name}: ${plural(view.row_name)} by ${plural(view.column_name)}`, rows: view.rows, columns,
      rowHeader: (row) => row, columnHeader: (column) => column + firstColumn,
      cell: (row, shownColumn) => {
        const column = shownColumn + firstColumn, {thread: t, register: i, half} = owner(row, column);
        const mine = t === selectedThread();
        const classes = [colour(row, column)];
        if (columns === 16 && shownColumn === 8) classes.push("after-gap");
        if (view.rows > 8 && row % 8 === 0 && row > 0) classes.push(row % 16 ? "below-gap" : "below-line");
        if (mine) classes.push(shown.row === row && shown.column === column ? "chosen" : "lit");
        if (view.addresses && shown?.thread !== undefined) {
          const [r, c] = view.addresses[shown.thread];
          if (row === r && column >= c && column < c + 8) classes.push("framed");
        }
        return {
          text: mine ? `${view.register}${i % tile}` : t, class: classes.join(" "),
          label: `${view.row_name} ${row}, ${view.column_name} ${column}: ${thread(t)}, ${named(i)}`
            + (view.halves > 1 ? `, ${halfName(half)}` : ""),
        };
      },
      onActive: (row, column) => select.hover({row, column: column + firstColumn}),
      onLeave: () => select.hover(null),
      onPin: (row, column) => select.pin({row, column: column + firstColumn}),
      onEscape: () => select.clear(),
    });
    let matrix = makeMatrix();

    // ---- the lanes: four to a line as in the fragments, warps side by side
    const laneColumns = threads / 8;
    const laneAt = (row, column) => Math.floor(column / 4) * LANES + 4 * row + column % 4;
    const lanes = grid({
      label: group ? "The threads of the warpgroup" : "The lanes of the warp", rows: 8, columns: laneColumns,
      columnHeader: group ? (column) => (column % 4 === 0 ? `w${column / 4}` : "") : null,
      cell: (row, column) => {
        const t = laneAt(row, column);
        const classes = t === selectedThread() ? [shown.thread === undefined ? "lit" : "chosen"] : [];
        if (group && column % 4 === 0 && column) classes.push("after-gap");
        return {text: t, class: classes.join(" "), label: thread(t)};
      },
      onActive: (row, column) => { select.hover({thread: laneAt(row, column)}); reveal(); },
      onLeave: () => select.hover(null),
      onPin: (row, column) => select.pin({thread: laneAt(row, column)}),
      onEscape: () => select.clear(),
    });
    // A matrix of 64 rows scrolls to those of the thread.
    function reveal() {
      if (!group || !shown) return;
      const row = Math.floor(selectedThread() / LANES) * 16;
      matrixPlace.scrollTop = matrix.at(row, 0).offsetTop - matrixPlace.offsetTop - 24;
    }

    // ---- the registers of the lane
    function registerTable() {
      const t = selectedThread();
      tableTitle.textContent = t === null ? "Registers" : `Registers of ${thread(t)}`;
      if (t === null) {
        table.replaceChildren(h("p", {class: "note"}, "of the lane that is chosen"));
        return;
      }
      const heads = view.halves > 1 ? ["register", "low half", "high half"] : ["register", "element"];
      if (next) heads.push("becomes");
      const chosen = shown.thread === undefined ? owner(shown.row, shown.column).register : -1;
      const rows = registers[t].flatMap((elements, i) => {
        const [row, column] = elements[0];
        if (column < firstColumn || column >= firstColumn + WINDOW) return [];
        const cells = elements.map((element) => h("td", {}, `${element[0]}, ${element[1]}`));
        if (next) cells.push(h("td", {}, becomes(row, column)));
        return h("tr", {class: i === chosen ? "chosen-row" : null},
                 h("th", {scope: "row"}, h("span", {class: `key ${colour(row, column)}`}), named(i)), cells);
      });
      table.replaceChildren(h("table", {},
        h("thead", {}, h("tr", {}, heads.map((head) => h("th", {scope: "col"}, head)))), h("tbody", {}, rows)));
    }

    function update() {
      matrix.update();
      lanes.update();
      registerTable();
      status.say(words() + hint + (!hint && pinned !== null && JSON.stringify(pinned) === JSON.stringify(shown) ? " Pinned." : ""));
    }

    // ---- which 16 columns of a wide matrix
    windows.replaceChildren(...(view.columns > WINDOW ? [choice({
      label: "Columns", value: "0", options: Array.from({length: view.columns / WINDOW}, (_, i) =>
        [String(i * WINDOW), `${i * WINDOW} to ${i * WINDOW + WINDOW - 1}`]),
      onChange: (value) => {
        firstColumn = Number(value);
        select.clear();
        matrix = makeMatrix();
        matrixPlace.replaceChildren(matrix.element);
        update();
      },
    })] : []));
    matrixTitle.textContent = `${view.rows} x ${view.columns}: ${view.row_name} down, ${view.column_name} across`
      + (columns < view.columns ? ", 16 columns of it" : "");
    lanesTitle.textContent = group ? "128 threads: four warps of 32 lanes" : "32 lanes";
    const operandName = next ? "a" : view.register;
    const colours = Math.min(4, next ? 4 : view.registers);
    keys.replaceChildren(
      ...Array.from({length: colours}, (_, i) =>
        h("li", {}, h("span", {class: `key colour-${i}`}), next ? `becomes ${operandName}[${i}]` : `${operandName}[${i}]`)),
      h("li", {}, h("span", {class: "key lit"}), "of the lane chosen"),
      ...(view.addresses ? [h("li", {}, h("span", {class: "key framed"}), "whose address it gives")] : []));
    note.textContent = `A number in the matrix: the ${group ? "thread" : "lane"} that holds the element. `
      + `PTX ISA, "${view.section}"; data: ${list(data.source)}.`;
    matrixPlace.replaceChildren(matrix.element);
    lanesPlace.replaceChildren(lanes.element);
    update();
  }
  addEventListener("hashchange", () => {
    chooser.querySelector("select").value = wanted();
    show(views.get(wanted()));
  });
  show(views.get(wanted()));
}
