// Which lane holds which element of a matrix, in which register: data/fragments.json.
import {choice, grid, h, selection, statusLine} from "./ui.mjs";

export const title = "Fragment explorer";

export function start(root, data) {
  const status = statusLine("");
  const body = h("div", {});
  root.append(h("div", {class: "controls"}, choice({
    label: "Fragment", options: data.views.map((view) => [view.id, view.name]), value: data.views[0].id,
    onChange: (id) => show(data.views.find((view) => view.id === id)),
  })), status.element, body);

  function show(view) {
    const owner = new Map();  // "row,column" -> {lane, register}
    view.positions.forEach((flat, lane) => {
      for (let i = 0; i < flat.length; i += 2) {
        owner.set(`${flat[i]},${flat[i + 1]}`, {lane, register: Math.floor(i / 2 / view.halves)});
      }
    });
    let lit = null;
    const matrix = grid({
      label: view.name, rows: view.rows, columns: view.columns,
      rowHeader: (row) => row, columnHeader: (column) => column,
      cell: (row, column) => {
        const {lane, register} = owner.get(`${row},${column}`);
        return {text: lane, class: `colour-${register % 4}${lane === lit ? " lit" : ""}`};
      },
      onActive: (row, column) => lanes.hover(owner.get(`${row},${column}`).lane),
      onLeave: () => lanes.hover(null),
      onPin: (row, column) => lanes.pin(owner.get(`${row},${column}`).lane),
      onEscape: () => lanes.clear(),
    });
    const lanes = selection((lane) => {
      lit = lane;
      status.say(lane === null ? "Point at an element." : `Lane ${lane}.`);
      matrix.update();
    });
    status.say("Point at an element.");
    body.replaceChildren(matrix.element);
  }
  show(data.views[0]);
}
