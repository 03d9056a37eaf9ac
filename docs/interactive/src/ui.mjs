// What the interactive pages share: elements, a grid for pointer and keyboard, a line of words, the theme.
//
// A page is a module NAME.mjs with
//
//   export const title = "...";
//   export function start(root, data) {...}     root: an empty <main>; data: data/NAME.json
//
// and scripts/fa interactive makes one file NAME.html of ui.mjs, style.css, the module and its data. Modules may import
// names from "./OTHER.mjs" and export functions and constants, each in a statement of its own.
//
// What a test can rely on, in every page:
//
//   <body data-ready="true">   once the page has started
//   [data-status]              one line of text that says what is chosen
//   [data-keyboard]            holds one element with tabindex="0"; an arrow key there changes the text of [data-status]
//   [data-hover]               a pointer over it changes the text of [data-status], if nothing is pinned
//
// And what a page that shows it in a frame can rely on:
//
//   ?theme=dark or light       otherwise as the system has it
//   postMessage({theme: "dark"})                       to the frame, whenever the theme changes
//   {interactive: "height", height: pixels}            from the frame, whenever its height changes

// ---- elements ------------------------------------------------------------------------------------------------------

// h("button", {type: "button", onclick: f}, "text", child, ...)
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) {
      element.addEventListener(name.slice(2), value);
    } else if (value === true) {
      element.setAttribute(name, "");
    } else if (value !== false && value !== null && value !== undefined) {
      element.setAttribute(name, value);
    }
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

// A drop-down list with its label. options: [[value, text], ...]; onChange(value).
export function choice({label, options, value, onChange}) {
  const select = h("select", {onchange: () => onChange(select.value)},
                   options.map(([id, text]) => h("option", {value: id, selected: id === value}, text)));
  return h("label", {class: "choice"}, h("span", {}, label), select);
}

// The line that says in words what is chosen; screen readers read it when it changes.
export function statusLine(text) {
  const line = h("p", {class: "status", role: "status", "aria-live": "polite", "data-status": true}, text);
  return {element: line, say: (words) => { if (line.textContent !== words) line.textContent = words; }};
}

// ---- a grid of cells -----------------------------------------------------------------------------------------------
// One tab stop; arrows, Home, End, Page Up and Page Down move, Enter and Space pin, Escape unpins.
//
//   grid({label, rows, columns,
//         cell(row, column)      {text, class, label} of a cell; label: what a screen reader says, default the text
//         rowHeader(row), columnHeader(column)         texts at the edges, optional
//         corner                 text where they meet
//         onActive(row, column)  pointer or focus is there
//         onLeave()              and is gone
//         onPin(row, column)     click, Enter, Space
//         onEscape()})
//
// Returns {element, at(row, column), update(), focus(row, column)}; update() asks cell() again for all.

export function grid(options) {
  const {rows, columns} = options;
  const cells = [];
  let current = 0;  // which cell has the tab stop

  const show = (index) => {
    const {text = "", class: names = "", label} = options.cell(Math.floor(index / columns), index % columns);
    const cell = cells[index];
    if (cell.textContent !== String(text)) cell.textContent = text;
    const wanted = `cell ${names}`.trim();
    if (cell.className !== wanted) cell.className = wanted;
    if (label && cell.getAttribute("aria-label") !== label) cell.setAttribute("aria-label", label);
  };
  const moveTo = (index, focus) => {
    cells[current].tabIndex = -1;
    current = index;
    cells[current].tabIndex = 0;
    if (focus) cells[current].focus();
  };
  const place = (event) => {
    const cell = event.target.closest(".cell");
    return cell ? Number(cell.dataset.index) : -1;
  };
  const active = (index) => options.onActive?.(Math.floor(index / columns), index % columns);

  const element = h("div", {
    class: "grid", role: "grid", "aria-label": options.label, "data-keyboard": true,
    style: `--columns: ${columns}`,
    onpointerover: (event) => { if (event.pointerType !== "touch" && place(event) >= 0) active(place(event)); },
    onpointerleave: (event) => { if (event.pointerType !== "touch") options.onLeave?.(); },
    onfocusin: (event) => {
      if (place(event) < 0) return;
      moveTo(place(event), false);
      active(current);
    },
    onfocusout: (event) => { if (!element.contains(event.relatedTarget)) options.onLeave?.(); },
    onclick: (event) => {
      const index = place(event);
      if (index < 0) return;
      moveTo(index, true);
      options.onPin?.(Math.floor(index / columns), index % columns);
    },
    onkeydown: (event) => {
      const row = Math.floor(current / columns), column = current % columns;
      const steps = {
        ArrowLeft: [row, column - 1], ArrowRight: [row, column + 1], ArrowUp: [row - 1, column],
        ArrowDown: [row + 1, column], Home: [row, 0], End: [row, columns - 1], PageUp: [0, column],
        PageDown: [rows - 1, column],
      };
      const to = steps[event.key];
      if (to) {
        event.preventDefault();
        if (to[0] >= 0 && to[0] < rows && to[1] >= 0 && to[1] < columns) moveTo(to[0] * columns + to[1], true);
      } else if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        options.onPin?.(row, column);
      } else if (event.key === "Escape") {
        options.onEscape?.();
      }
    },
  });
  // An empty text is no header.
  const header = (text) => h("div", {class: "header", role: text === "" ? "gridcell" : "columnheader"}, text);
  if (options.columnHeader) {
    element.append(h("div", {class: "row", role: "row"},
                     options.rowHeader ? header(options.corner ?? "") : null,
                     Array.from({length: columns}, (_, column) => header(options.columnHeader(column)))));
  }
  for (let row = 0; row < rows; row++) {
    const line = h("div", {class: "row", role: "row"},
                   options.rowHeader ? h("div", {class: "header", role: "rowheader"}, options.rowHeader(row)) : null);
    for (let column = 0; column < columns; column++) {
      const cell = h("div", {role: "gridcell", tabindex: -1, "data-index": row * columns + column, "data-hover": true});
      cells.push(cell);
      line.append(cell);
    }
    element.append(line);
  }
  if (options.rowHeader) element.classList.add("with-headers");
  const update = () => cells.forEach((_, index) => show(index));
  update();
  cells[0].tabIndex = 0;
  return {
    element, update,
    at: (row, column) => cells[row * columns + column],
    focus: (row, column) => moveTo(row * columns + column, true),
  };
}

export const LANE = 5;  // chosen at the beginning: the lane of the chapters' examples

// What is under the pointer or has the focus, and what is pinned: the former is shown while it lasts.
// onChange(shown, pinned) with what was given to hover() and pin(), or null; `pinned` is what is pinned from the beginning.
export function selection(onChange, pinned = null) {
  let hovered = null;
  const changed = () => onChange(hovered ?? pinned, pinned);
  const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);
  return {
    hover: (what) => { if (!same(hovered, what)) { hovered = what; changed(); } },
    pin: (what) => { pinned = same(pinned, what) ? null : what; changed(); },
    clear: () => { hovered = pinned = null; changed(); },
  };
}

// "1", "1 and 2", "1, 2 and 3"
export function list(items) {
  return items.length < 2 ? items.join("") : `${items.slice(0, -1).join(", ")} and ${items.at(-1)}`;
}

// ---- the page ------------------------------------------------------------------------------------------------------

function setTheme(name) {
  if (name === "dark" || name === "light") {
    document.documentElement.dataset.theme = name;
  } else {
    delete document.documentElement.dataset.theme;
  }
}

function followTheme() {
  setTheme(new URLSearchParams(location.search).get("theme"));
  addEventListener("message", (event) => {
    if (event.source === parent && event.data && event.data.theme) setTheme(event.data.theme);
  });
}

// Called by NAME.html.
export function run(start) {
  followTheme();
  if (parent !== window) {
    document.documentElement.dataset.embedded = "true";
    new ResizeObserver(() => parent.postMessage({interactive: "height", height: document.documentElement.offsetHeight}, "*"))
      .observe(document.body);
  }
  start(document.querySelector("main"), JSON.parse(document.getElementById("data").textContent));
  document.body.dataset.ready = "true";
}
