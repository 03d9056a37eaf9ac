// The 64-bit matrix descriptor of wgmma, fields and bits: data/descriptor.json, printed by layouts dump from
// common/layout and kernel 11. Where a field lies and what its lowest bit counts is in the data.
import {choice, grid, h, list, statusLine} from "./ui.mjs";

export const title = "wgmma descriptor builder";

const SECTION = {
  start: "Matrix Descriptor Format", leading: "Strides", stride: "Strides", base_offset: "Matrix Descriptor Format",
  mode: "Shared Memory Matrix Layout",
};
const EXPLAINED = {
  start: "Where the operand's element (0, 0) lies, an address in shared memory. The next 16 of k are the same descriptor "
    + "with a later start.",
  leading: "K-major with a swizzle: not used, one row of an atom has all 16 k. MN-major with a swizzle: from one slab of rows or "
    + "columns to the next. Without a swizzle: from 8 k to the next 8.",
  stride: "With a swizzle: from one atom to the next, which is 8 rows (K-major) or 8 k (MN-major) further. Without one: from 8 rows "
    + "to the next 8.",
  base_offset: "0 if the swizzle's atoms begin at multiples of their size. Otherwise in which row of 128 bytes they do: "
    + "(address / 128) mod 8.",
  mode: "How 16-byte chunks are permuted inside of an atom of 8 rows.",
};
const COLOURS = {start: 0, leading: 3, stride: 1, base_offset: 3, mode: 2};
const LINE = 16;  // bits to a line
const SHARED_BYTES = 228 * 1024;  // of an SM of compute capability 9.0 (CUDA C++ Programming Guide)

const hex = (value) => `0x${value.toString(16)}`;
const hex64 = (bits) => `0x${bits.toString(16).padStart(16, "0")}`;

// A whole number, decimal or hexadecimal; null if it is none.
function parse(text) {
  const trimmed = text.trim();
  return /^(0x[0-9a-f]+|[0-9]+)$/i.test(trimmed) ? BigInt(trimmed) : null;
}

// ---- packing, by the table of fields -------------------------------------------------------------------------------

const ones = (field) => (1n << BigInt(field.width)) - 1n;

function decode(field, bits) {
  return Number((bits >> BigInt(field.low)) & ones(field)) * field.unit;
}

// The bits with another field: what its bits cannot say is lost.
function encode(field, bits, value) {
  const low = BigInt(field.low);
  return (bits & ~(ones(field) << low)) | (((value / BigInt(field.unit)) & ones(field)) << low);
}

// ---- what is wrong with it -----------------------------------------------------------------------------------------

// Sentences on one field as it was typed.
function complaints(field, value, bits) {
  const kept = decode(field, bits), bytes = field.unit > 1;
  if (value === null) return [`${field.short}: not a whole number; decimal or 0x... is understood.`];
  const found = [];
  const most = BigInt(2 ** field.width * field.unit);
  if (value >= most) {
    found.push(`${field.short}: ${hex(value)} ${bytes ? `does not fit into 18 bits` : `does not fit into ${field.width} bits`}; `
      + `the field keeps ${bytes ? hex(kept) : kept}.`);
  } else if (value % BigInt(field.unit) !== 0n) {
    found.push(`${field.short}: ${value} is not a multiple of ${field.unit}, and the field has no bits for the rest; it says ${kept}.`);
  }
  return found;
}

// Sentences on the descriptor as a whole.
function warnings(data, bits) {
  const value = Object.fromEntries(data.fields.map((field) => [field.id, decode(field, bits)]));
  const mode = data.modes.find((one) => one.value === value.mode);
  const swizzled = mode.span > 16;
  const found = [];
  const nobodys = Array.from({length: 64}, (_, i) => i).filter((i) => (bits >> BigInt(i)) & 1n
    && !data.fields.some((field) => i >= field.low && i < field.low + field.width));
  if (nobodys.length) {
    found.push(nobodys.length > 1 ? `Bits ${list(nobodys)} belong to no field and have to be 0.`
      : `Bit ${nobodys[0]} belongs to no field and has to be 0.`);
  }
  if (value.start >= SHARED_BYTES) {
    found.push(`No SM of compute capability 9.0 has shared memory at ${hex(value.start)}: there are 228 KB.`);
  }
  if (!swizzled && value.base_offset) {
    found.push("A base offset says where the swizzle's pattern begins; without a swizzle there is none.");
  }
  const row = Math.floor(value.start % mode.period / 128);
  if (swizzled && row && !value.base_offset) {
    found.push(`The start lies ${row} ${row > 1 ? "rows" : "row"} of 128 bytes past a multiple of ${mode.period}. If the atoms begin `
      + `there, the base offset has to say ${Math.floor(value.start / 128) % 8}.`);
  }
  if (swizzled && value.stride % mode.period) {
    found.push(`An atom has ${mode.period} bytes, but SBO leads ${value.stride} bytes on: into the middle of the pattern.`);
  }
  if (value.stride === 0) found.push("An SBO of 0 reads the same eight rows again and again.");
  return found;
}

// ---- the page ------------------------------------------------------------------------------------------------------

export function start(root, data) {
  const fieldOf = (bit) => data.fields.find((field) => bit >= field.low && bit < field.low + field.width);
  const modeName = (mode) => (mode.span > 16 ? `${mode.span}-byte swizzle` : "no swizzle");
  const range = (field) => `bits ${field.low + field.width - 1} to ${field.low}`;

  let bits = 0n;
  let preset = null, step = null;  // whose descriptor it is, if it is one of the kernel's
  const typed = new Map();         // field -> what was typed and cannot be said in bits
  let hexComplaint = null;

  const status = statusLine("Point at a bit, or move over the bits with the arrow keys; a click or Enter flips one.");

  // ---- the kernel's own
  const presetChoice = choice({
    label: "Descriptor of kernel 11", value: "", onChange: (id) => { if (id) choosePreset(id, 0); },
    options: [["", "your own"], ...data.presets.map((one) => [one.id, `${one.name} (${one.major}-major)`])],
  });
  const stepPlace = h("span", {});

  function choosePreset(id, which) {
    const chosen = data.presets.find((one) => one.id === id);
    history.replaceState(null, "", `#${id}`);
    set(BigInt(chosen.steps[which].descriptor), chosen, which);
    status.say(`${chosen.name}, ${chosen.steps[which].what}: ${hex64(bits)}. ${advanced(chosen, which)}`);
  }
  function advanced(chosen, which) {
    if (which === 0) return `The tile begins at ${chosen.tile}.`;
    const {bytes, slab} = chosen.steps[which];
    return `The start is ${bytes} bytes further, so the field has grown by ${bytes / data.fields[0].unit}`
      + (slab ? `: slab ${slab} of the tile` : "") + "; nothing else has changed.";
  }

  // ---- the bits
  const bitAt = (row, column) => 63 - (row * LINE + column);
  const bitGrid = grid({
    label: "The 64 bits, the highest first", rows: 64 / LINE, columns: LINE,
    rowHeader: (row) => bitAt(row, 0),
    cell: (row, column) => {
      const bit = bitAt(row, column), field = fieldOf(bit), on = Number((bits >> BigInt(bit)) & 1n);
      const edge = field && bit === field.low + field.width - 1 && column ? " after-gap" : "";
      return {
        text: on, class: (field ? `colour-${COLOURS[field.id]}` : `unused${on ? " wrong" : ""}`) + edge,
        label: `bit ${bit}, ${field ? field.short : "no field"}: ${on}`,
      };
    },
    onActive: (row, column) => status.say(aboutBit(bitAt(row, column))),
    onPin: (row, column) => {
      const bit = bitAt(row, column);
      set(bits ^ (1n << BigInt(bit)));
      status.say(`${aboutBit(bit)} The descriptor is ${hex64(bits)}.`);
    },
  });
  function aboutBit(bit) {
    const field = fieldOf(bit), on = (bits >> BigInt(bit)) & 1n;
    if (!field) return `Bit ${bit} is ${on}: it belongs to no field and has to be 0.`;
    const what = field.id === "mode" ? modeName(data.modes.find((mode) => mode.value === decode(field, bits)))
      : `${decode(field, bits)} ${field.of}`;
    const worth = field.id === "mode" ? "" : `, worth ${2 ** (bit - field.low) * field.unit} ${field.of}`;
    return `Bit ${bit} is ${on}: bit ${bit - field.low} of the ${field.name} (${range(field)})${worth}. The field says ${what}.`;
  }
  const hexInput = h("input", {
    class: "mono", id: "hex", spellcheck: "false", autocomplete: "off", size: 20,
    oninput: () => {
      const value = parse(hexInput.value.trim().startsWith("0x") ? hexInput.value : `0x${hexInput.value.trim()}`);
      hexComplaint = value === null ? "The 64 bits: not a hexadecimal number."
        : value >= 1n << 64n ? "The 64 bits: this number has more than 64 of them." : null;
      if (hexComplaint) {
        showWarnings();
      } else {
        set(value, null, null, hexInput);
        status.say(`${hex64(bits)}: ${summary()}.`);
      }
    },
  });
  const call = h("code", {});

  // ---- the fields
  const inputs = new Map();
  const rows = data.fields.toReversed().map((field) => {
    const id = `field-${field.id}`;
    const input = field.id === "mode"
      ? h("select", {id, onchange: () => edit(field, BigInt(input.value))},
          data.modes.map((mode) => h("option", {value: mode.value}, `${mode.value}: ${modeName(mode)}`)))
      : h("input", {id, class: "mono", size: 8, spellcheck: "false", autocomplete: "off", "aria-describedby": `${id}-about`,
                    oninput: () => edit(field, parse(input.value))});
    inputs.set(field, input);
    return h("div", {class: "field"},
      h("label", {for: id}, h("span", {class: `key colour-${COLOURS[field.id]}`}), field.name),
      h("div", {class: "field-value"}, input,
        h("span", {class: "note"}, `${range(field)}${field.unit > 1 ? `, in units of ${field.unit} bytes` : ""}`)),
      h("details", {}, h("summary", {class: "note"}, "What it says"),
        h("p", {class: "note", id: `${id}-about`}, `${EXPLAINED[field.id]} (PTX ISA, "${SECTION[field.id]}")`)));
  });
  function edit(field, value) {
    if (value !== null) {
      const wanted = encode(field, bits, value);
      set(wanted, null, null, inputs.get(field), [field, value]);
      status.say(`${field.name}: ${value}. The descriptor is ${hex64(bits)}: ${summary()}.`);
    } else {
      typed.set(field, null);
      showWarnings();
    }
  }
  function summary() {
    const value = Object.fromEntries(data.fields.map((field) => [field.id, decode(field, bits)]));
    const mode = data.modes.find((one) => one.value === value.mode);
    return `start ${hex(value.start)}, LBO ${value.leading}, SBO ${value.stride}, base offset ${value.base_offset}, ${modeName(mode)}`;
  }
  const warningList = h("ul", {class: "warnings", "aria-label": "What is wrong"});

  // ---- what a wgmma reads
  const mapTitle = h("h2", {}), mapNote = h("p", {class: "note"}), mapPlace = h("div", {}), table = h("div", {class: "narrow"});
  const mapPanel = h("section", {class: "panel map"}, mapTitle, mapPlace, mapNote);
  const advancing = h("section", {}, h("h2", {}, "What advancing adds"), table);

  function showMap() {
    mapPanel.hidden = advancing.hidden = !preset;
    if (!preset) return;
    const {reads, slab, first_row: first, what} = preset.steps[step];
    const read = new Set(reads.map(([line, place]) => line * 8 + place));
    const slabs = preset.head_dim / 64, mn = preset.major === "MN";
    mapTitle.textContent = `What the wgmma of ${what} reads of the tile`;
    mapNote.textContent = `Rows ${first} to ${first + 15} of ${slabs > 1 ? `slab ${slab} (there are ${slabs})` : "the only slab"}; a line has `
      + "128 bytes, a place 16. The number: which chunk of 8 columns of the row lies there; marked: read."
      + (mn ? (slabs > 1 ? " LBO leads to the same places of slab 1." : "") : ` SBO leads on, eight rows at a time, to row ${preset.rows - 1}.`);
    const about = (line, place) => {
      const chunk = data.chunks[line][place], column = slab * 64 + chunk * 8;
      return `Row ${first + line}, place ${place}: columns ${column} to ${column + 7}, chunk ${chunk} of the row; `
        + `${read.has(line * 8 + place) ? "this wgmma reads it" : "this wgmma leaves it"}.`;
    };
    mapPlace.replaceChildren(grid({
      label: "The first 16 lines of the tile", rows: data.chunks.length, columns: 8,
      rowHeader: (line) => first + line, columnHeader: (place) => place,
      cell: (line, place) => ({
        text: data.chunks[line][place], label: about(line, place),
        class: (read.has(line * 8 + place) ? "lit" : "") + (line === 8 ? " below-line" : ""),
      }),
      onActive: (line, place) => status.say(about(line, place)),
    }).element);
    table.replaceChildren(h("table", {},
      h("thead", {}, h("tr", {}, ["k", "bytes", "descriptor"].map((name) => h("th", {scope: "col"}, name)))),
      h("tbody", {}, preset.steps.map((one, i) => h("tr", {class: i === step ? "chosen-row" : null},
        h("td", {}, one.what), h("td", {}, `+ ${one.bytes}`),
        h("td", {class: "mono"}, one.descriptor))))));
  }

  // ---- all of it
  function showWarnings() {
    const found = [...(hexComplaint ? [hexComplaint] : []),
      ...[...typed].flatMap(([field, value]) => complaints(field, value, bits)), ...warnings(data, bits)];
    for (const [field, input] of inputs) input.setAttribute("aria-invalid", String(typed.has(field)));
    hexInput.setAttribute("aria-invalid", String(hexComplaint !== null));
    warningList.replaceChildren(...(found.length ? found.map((text) => h("li", {class: "warning"}, text))
      : [h("li", {class: "fine"}, "Nothing is wrong with it.")]));
  }

  // `from`: the input that is being typed into and keeps its text; entered: [field, value] as typed.
  function set(value, newPreset = null, newStep = null, from = null, entered = null) {
    bits = value;
    preset = newPreset;
    step = newStep;
    hexComplaint = null;
    if (!entered) typed.clear();
    if (entered) {
      typed.delete(entered[0]);
      if (complaints(...entered, bits).length) typed.set(...entered);
    }
    for (const [field, input] of inputs) {
      if (input === from || typed.has(field)) continue;
      const number = decode(field, bits);
      input.value = field.id === "start" ? hex(number) : String(number);
    }
    if (from !== hexInput) hexInput.value = hex64(bits);
    const mode = data.modes.find((one) => one.value === decode(data.fields.find((field) => field.id === "mode"), bits));
    const number = Object.fromEntries(data.fields.map((field) => [field.id, decode(field, bits)]));
    call.textContent = `layout::descriptor(${hex(number.start)}, ${number.leading}, ${number.stride}, layout::SwizzleMode::`
      + `${mode.span > 16 ? `k${mode.span}Bytes` : "kNone"}${number.base_offset ? `, ${number.base_offset}` : ""})`;
    presetChoice.querySelector("select").value = preset ? preset.id : "";
    stepPlace.replaceChildren(...(preset ? [choice({
      label: "k", value: String(step), onChange: (which) => choosePreset(preset.id, Number(which)),
      options: preset.steps.map((one, i) => [String(i), `${one.what}: + ${one.bytes} bytes`]),
    })] : []));
    bitGrid.update();
    showMap();
    showWarnings();
  }

  root.append(
    h("div", {class: "controls"}, presetChoice, stepPlace), status.element,
    bitGrid.element,
    h("ul", {class: "keys"}, data.fields.toReversed().map((field) =>
      h("li", {}, h("span", {class: `key colour-${COLOURS[field.id]}`}), `${field.short}: ${range(field)}`))),
    h("div", {class: "controls"}, h("label", {class: "choice", for: "hex"}, h("span", {}, "The 64 bits, hexadecimal"), hexInput)),
    h("p", {}, call), warningList,
    h("div", {class: "panels"}, h("section", {class: "panel"}, h("h2", {}, "Fields"), rows, advancing), mapPanel),
    h("p", {class: "note"}, `Data: ${list(data.source)}. Shared memory of a CTA begins at byte 1,024; CUDA keeps what is before.`));
  const wanted = location.hash.slice(1);
  const first = data.presets.find((one) => one.id === wanted) ?? data.presets.find((one) => one.id === "k128") ?? data.presets[0];
  set(BigInt(first.steps[0].descriptor), first, 0);
  addEventListener("hashchange", () => {
    const id = location.hash.slice(1);
    if (data.presets.some((one) => one.id === id)) choosePreset(id, 0);
  });
}
