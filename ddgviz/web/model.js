// The trace as a grid: reads events, carries settled tokens down, and says in words what a pass did.

const HIDDEN = [
  [0x0000, 0x001f], [0x007f, 0x009f], [0x00ad, 0x00ad], [0x034f, 0x034f], [0x061c, 0x061c], [0x115f, 0x1160],
  [0x17b4, 0x17b5], [0x180b, 0x180f], [0x200b, 0x200f], [0x2028, 0x202e], [0x2060, 0x206f], [0x3164, 0x3164],
  [0xd800, 0xdfff], [0xfeff, 0xfeff], [0xffa0, 0xffa0], [0xfff0, 0xfffb], [0xfffe, 0xffff], [0x1d173, 0x1d17a],
  [0xe0000, 0xe0fff],
];
const LIVE_COLUMNS = 40;
const LIVE_AHEAD = 12;
const WORD_START = "▁";
const NOTHING = { text: "", continues: false };
export const END = "‹end›";

const hidden = (code) => HIDDEN.some(([low, high]) => low <= code && code <= high);
const wordlike = (text) => /[\p{L}\p{N}]/u.test(text);
const count = (number, one, ending, many) => `${number} ${number === 1 ? one : many || one + ending}`;

export function visible(text) {
  const codes = Array.from(text, (character) => character.codePointAt(0));
  const script = (code) => code >= 0x0590 && !hidden(code);
  const joins = (index) =>
    (codes[index] === 0x200c || codes[index] === 0x200d) &&
    index > 0 && index + 1 < codes.length && script(codes[index - 1]) && script(codes[index + 1]);
  return codes
    .map((code, index) =>
      hidden(code) && !joins(index)
        ? `⟨U+${code.toString(16).toUpperCase().padStart(4, "0")}⟩`
        : String.fromCodePoint(code))
    .join("");
}

export function label(piece, isEnd) {
  if (isEnd) return { text: END, continues: false };
  const starts = piece.startsWith(WORD_START);
  if (starts && piece.length > 1) return { text: visible(piece.slice(1)), continues: false };
  if (!piece) return { text: "‹empty›", continues: false };
  return { text: visible(piece), continues: !starts && wordlike(piece) };
}

function joined(labels) {
  return labels.reduce(
    (text, item) => text + (item.continues || !wordlike(item.text) || !text ? "" : " ") + item.text, "");
}

export function emptyModel() {
  return {
    header: null, pieces: {}, rows: [], settled: new Map(), hypotheses: [], greedy: null, edges: [], finished: false,
    beam: false, reach: 0,
  };
}

export function append(model, event) {
  if (event.event === "start") return Object.assign(emptyModel(), { header: event });
  Object.assign(model.pieces, event.pieces || {});
  if (event.event === "iteration") appendRow(model, event);
  if (event.event === "end") {
    model.hypotheses = event.hypotheses || [];
    model.greedy = event.greedy || null;
    model.edges = event.edges || [];
    if (event.target) model.header = { ...model.header, target: event.target };
    model.finished = true;
  }
  return model;
}

function appendRow(model, event) {
  const row = model.rows.length;
  const places = new Map(event.slots.map((slot, index) => [slot, index]));
  model.rows.push({ ...event, places });
  for (const [slot, index] of places) {
    if (event.status[index] === "settled" && !model.settled.has(slot)) model.settled.set(slot, [row, index]);
    model.reach = Math.max(model.reach, slot + 1);
  }
  if (event.lanes && event.lanes.length) model.beam = true;
}

export function fromTrace(trace, running) {
  if (!trace || !trace.format) return emptyModel();
  let model = append(emptyModel(), { ...trace, event: "start" });
  model.pieces = { ...trace.pieces };
  for (const row of trace.iterations) model = append(model, { ...row, pieces: {}, event: "iteration" });
  return running ? model : append(model, { ...trace, event: "end" });
}

export const complete = (model) => model.hypotheses.length > 0 && model.hypotheses[0].stop !== "interrupted";

export function columnCount(model) {
  if (complete(model)) return model.hypotheses[0].tokens.length;
  if (model.beam) return model.reach;
  return Math.min(model.reach, Math.max(LIVE_COLUMNS, model.settled.size + LIVE_AHEAD));
}

export function labelOf(model, token) {
  if (token < 0) return NOTHING;
  const piece = model.pieces[token];
  return label(piece === undefined ? `#${token}` : piece, model.header.end.includes(token));
}

export function cell(model, row, column) {
  const known = model.settled.get(column);
  const carried = known !== undefined && known[0] <= row;
  const from = carried ? known[0] : row;
  const index = carried ? known[1] : model.rows[row].places.get(column);
  if (index === undefined) {
    return {
      row, column, kind: "empty", token: -1, ...NOTHING, probability: null, margin: null, draft: -1, origin: "",
      moved: false, from,
    };
  }
  const pass = model.rows[from];
  const kind = carried ? (from === row ? "new" : "settled") : pass.status[index] === "masked" ? "masked" : "draft";
  const token = kind === "masked" ? -1 : pass.tokens[index];
  const draft = pass.drafts[index];
  return {
    row, column, kind, token, ...labelOf(model, token),
    probability: pass.probabilities ? pass.probabilities[index] : null,
    margin: pass.margins ? pass.margins[index] : null,
    draft, origin: pass.origins[index],
    moved: kind === "draft" && draft >= 0 && pass.origins[index] !== "pad" && draft !== token,
    from,
  };
}

export function cells(model, row) {
  return Array.from({ length: columnCount(model) }, (_, column) => cell(model, row, column));
}

export function newColumns(model, row) {
  const limit = columnCount(model);
  const found = [];
  for (const [slot, [from]] of model.settled) if (from === row && slot < limit) found.push(slot);
  return found.sort((a, b) => a - b);
}

export function layers(model, upto) {
  const limit = columnCount(model);
  const found = new Map();
  for (const [slot, [row]] of model.settled) {
    if (row >= upto || slot >= limit) continue;
    if (!found.has(row)) found.set(row, []);
    found.get(row).push(slot);
  }
  return [...found.keys()].sort((a, b) => a - b).map((row) => ({ row, columns: found.get(row).sort((a, b) => a - b) }));
}

export function pills(model, columns) {
  const runs = [];
  for (const column of columns) {
    const last = runs[runs.length - 1];
    if (last && last[last.length - 1] === column - 1 && !model.beam) last.push(column);
    else runs.push([column]);
  }
  return runs;
}

export function edges(model, upto) {
  const order = layers(model, upto);
  if (model.edges.length) {
    const drawn = new Set(order.flatMap((layer) => layer.columns));
    return model.edges
      .filter((edge) => drawn.has(edge.from) && drawn.has(edge.to) && edge.strength > 0)
      .map((edge) => ({ source: edge.from, target: edge.to, strength: Math.min(1, edge.strength) }));
  }
  if (model.beam) return [];
  return order.slice(1).flatMap((layer, index) => {
    const before = order[index].columns;
    return layer.columns.map((target) => ({ source: before[before.length - 1], target, strength: 1 }));
  });
}

export const meaning = (model) =>
  model.edges.length ? "changing the left token would change the right one" : "the right token had to wait for the left one";

export const passName = (model, row) => `pass ${model.rows[row].call + 1}`;

export const probabilityText = (value) => (value >= 0.995 ? "1.0" : value.toFixed(2).replace(/^0/, ""));

export const title = (model) =>
  visible(((model.header && model.header.source.text) || "").split(/\s+/u).filter(Boolean).join(" "));

export function headline(model) {
  if (!model.header) return "";
  const tokens = complete(model) ? model.hypotheses[0].tokens.length : model.settled.size;
  const said = `${count(model.rows.length, "pass", "es")} for ${count(tokens, "token", "s")}`;
  return complete(model) ? said : said + (model.finished ? ", stopped" : " so far");
}

export function comparison(model) {
  if (!model.greedy) return "";
  return `greedy needs ${model.greedy.calls} · ${model.greedy.identical ? "identical output" : "output differs from greedy's"}`;
}

export function beyond(model) {
  const more = Math.max(0, model.reach - columnCount(model));
  if (!more) return "";
  return complete(model)
    ? `+${count(more, "position", "s")} beyond the end ${more === 1 ? "was" : "were"} drafted too.`
    : `+${count(more, "more position", "s")}.`;
}

function quoted(list) {
  const labels = list.filter((item) => item.text !== END);
  const text = joined(labels);
  const parts = labels.length ? [`“${text.length > 48 ? text.slice(0, 47) + "…" : text}”`] : [];
  if (labels.length < list.length) parts.push("the end");
  return parts.join(" and ");
}

export function caption(model, row) {
  const list = cells(model, row);
  const fresh = list.filter((item) => item.kind === "new");
  if (model.beam) {
    const lanes = (model.rows[row].lanes || []).length;
    return fresh.length ? "settled the best hypothesis." : `kept ${count(lanes, "hypothesis", "", "hypotheses")} open.`;
  }
  const moved = list.filter((item) => item.moved).length;
  const change = moved ? `changed ${count(moved, "draft", "s")}` : "";
  if (!fresh.length) return change ? `settled nothing and ${change}.` : "changed nothing: what stands is confirmed.";
  if (fresh.length === 1) return `settled ${quoted(fresh)}${change && ` and ${change}`}.`;
  const rest = fresh.length > 3 ? `the other ${fresh.length - 1}` : fresh.slice(1).map((item) => quoted([item])).join(" and ");
  return `settled ${quoted(fresh)} in one pass: ${rest} did not have to wait for ${quoted(fresh.slice(0, 1))}.`;
}
