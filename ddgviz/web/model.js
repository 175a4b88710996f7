// The trace as a grid: reads events and carries settled tokens down. How tokens are written is told by Python (`labels`).

const LIVE_COLUMNS = 40;
const LIVE_AHEAD = 12;
const PLAIN = ["", "pad", "recycled", "mask"];
const NOTHING = { text: "", continues: false };

export function emptyModel() {
  return {
    header: null, labels: {}, shares: {}, origins: {}, meanings: {}, source: null, rows: [], settled: new Map(), hypotheses: [], greedy: null, edges: [], finished: false,
    beam: false, masks: false, grouped: false, reach: 0, right: 0, known: new Map(),
  };
}

// What has been worked out of a model stays until the next event.
function once(model, key, make) {
  if (!model.known.has(key)) model.known.set(key, make());
  return model.known.get(key);
}

export function append(model, event) {
  if (event.event === "start") return Object.assign(emptyModel(), { header: event });
  model.known.clear();
  if (event.event === "iteration") appendRow(model, event);
  if (event.event === "end") {
    model.hypotheses = event.hypotheses || [];
    model.greedy = event.greedy || null;
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
    model.right = Math.max(model.right, -slot);
  }
  model.beam = model.beam || Boolean(event.lanes && event.lanes.length);
  model.masks = model.masks || event.status.includes("masked");
  model.grouped = model.grouped || Boolean(event.cluster && event.cluster.some((cluster) => cluster !== null));
}

// What Python tells of a trace: how tokens are written, shares of the vocabulary, and which measured edges are drawn.
export function teach(model, { labels, shares, edges, ...others }) {
  Object.assign(model.labels, labels);
  Object.assign(model.shares, shares);
  if (edges) model.edges = edges.map(([source, target, strength]) => ({ source, target, strength }));
  for (const name of ["origins", "meanings", "source"]) model[name] = others[name] || model[name];
  model.known.clear();
}

export function fromTrace(trace, running, words) {
  if (!trace || !trace.format) return emptyModel();
  let model = append(emptyModel(), { ...trace, event: "start" });
  teach(model, words);
  for (const row of trace.iterations) model = append(model, { ...row, event: "iteration" });
  return running ? model : append(model, { ...trace, event: "end" });
}

export const complete = (model) => model.hypotheses.length > 0 && model.hypotheses[0].stop !== "interrupted";

export function columnCount(model) {
  if (complete(model)) return Math.max(model.hypotheses[0].tokens.length, model.beam ? model.rows.length : 0);
  if (model.right) return model.reach + 1 + model.right;
  if (model.beam) return model.reach;
  return Math.min(model.reach, Math.max(LIVE_COLUMNS, model.settled.size + LIVE_AHEAD));
}

export const slotOf = (model, column) =>
  !model.right || column < model.reach ? column : column - columnCount(model);

export const columnOf = (model, slot) => (slot >= 0 ? slot : slot + columnCount(model));

export function labelOf(model, token) {
  if (token < 0) return NOTHING;
  const [text, continues] = model.labels[token] || [`#${token}`, false];
  return { text, continues };
}

export function cell(model, row, column) {
  const slot = slotOf(model, column);
  const known = model.settled.get(slot);
  const carried = known !== undefined && known[0] <= row;
  const from = carried ? known[0] : row;
  const index = carried ? known[1] : model.rows[row].places.get(slot);
  if (index === undefined) {
    return {
      row, column, kind: "empty", token: -1, ...NOTHING, probability: null, margin: null, draft: -1, origin: "",
      moved: false, guess: "", from, word: -1,
    };
  }
  const pass = model.rows[from];
  const kind = carried ? (from === row ? "new" : "settled") : pass.status[index] === "masked" ? "masked" : "draft";
  const token = pass.tokens[index];
  const draft = pass.drafts[index];
  const told = kind !== "settled" && draft >= 0 && !PLAIN.includes(pass.origins[index]);
  return {
    row, column, kind, token, ...labelOf(model, token),
    probability: pass.probabilities ? pass.probabilities[index] : null,
    margin: pass.margins ? pass.margins[index] : null,
    draft, origin: pass.origins[index],
    moved: kind === "draft" && draft >= 0 && pass.origins[index] !== "pad" && draft !== token,
    guess: told ? (draft === token ? "right" : "wrong") : "", from,
    word: pass.sources && model.source ? (model.source.of[pass.sources[index]] ?? -1) : -1,
  };
}

export function newColumns(model, row) {
  const layer = layers(model, model.rows.length).find((found) => found.row === row);
  return layer ? layer.columns : [];
}

export const layers = (model, upto) => once(model, `layers ${upto}`, () => {
  const limit = columnCount(model);
  const found = new Map();
  for (const [slot, [row]] of model.settled) {
    const column = columnOf(model, slot);
    if (row >= upto || column >= limit) continue;
    if (!found.has(row)) found.set(row, []);
    found.get(row).push(column);
  }
  return [...found.keys()].sort((a, b) => a - b).map((row) => ({ row, columns: found.get(row).sort((a, b) => a - b) }));
});

// Whether no token is settled before all are: a search, or masks. From both ends, greedily, the first pass settles some.
const late = ({ beam, masks, right, settled }) => beam || masks || (right && [...settled.values()][0]?.[0]);

export function pills(model, columns) {
  const runs = [];
  for (const column of columns) {
    const last = runs.at(-1);
    if (last && last.at(-1) === column - 1 && !late(model)) last.push(column);
    else runs.push([column]);
  }
  return runs;
}

export const edgeKind = (model, wanted = "auto") => (wanted === "auto" ? (model.edges.length ? "measured" : "order") : wanted);

export const edges = (model, upto, wanted = "auto") => once(model, `edges ${upto} ${wanted}`, () => {
  const order = layers(model, upto);
  const kind = edgeKind(model, wanted);
  if (kind === "measured") {
    const drawn = new Set(order.flatMap((layer) => layer.columns));
    return model.edges.filter((edge) => drawn.has(edge.source) && drawn.has(edge.target));
  }
  if (kind === "none" || late(model)) return [];
  const last = columnCount(model) - (model.right > 0);
  return order.slice(1).flatMap((layer, index) => layer.columns.filter((at) => at < last).map((target) => {
    const far = (other) => Math.abs(other - target);
    const source = order[index].columns.reduce((best, other) => (far(other) <= far(best) ? other : best));
    return { source, target, strength: 1 };
  }));
});

// What passes computed as one: a window pass by pass, a block of the output until it is settled.
export const blocks = (model) => once(model, "blocks", () => {
  const limit = columnCount(model);
  const found = [];
  let reach = NaN;
  model.rows.forEach(({ slots }, row) => {
    const last = slots.at(-1);
    const extend = () => (found.at(-1).end_row = row + 1);
    if (slots.length < 2 || last < 0 || late(model) || slots[0] >= limit) {
      if (slots.length > 1) reach = NaN;
      if (slots.length === 1 && last === reach) extend();
      return;
    }
    if (last === reach) extend();
    else found.push({ row, end_row: row + 1, column: slots[0], end_column: Math.min(last + 1, limit) });
    reach = last;
  });
  return found;
});

// A beam's hypotheses: for each pass the tokens it appended, open hypotheses before finished ones.
export const lattice = (model) => once(model, "lattice", () => {
  const rows = model.rows;
  const best = complete(model) ? model.hypotheses[0].tokens : rows.length ? rows.at(-1).tokens : [];
  let before = new Map([["", -1]]);
  return rows.map(({ lanes }, row) => {
    const unique = new Map((lanes || []).filter((lane) => lane.tokens.length === row + 1).map((lane) => [String(lane.tokens), lane]));
    const grown = [...unique.values()].sort((a, b) => Boolean(a.finished) - Boolean(b.finished));
    const nodes = grown.map((lane) => ({
      token: lane.tokens[row], ...labelOf(model, lane.tokens[row]), score: lane.score,
      parent: before.get(String(lane.tokens.slice(0, row))) ?? -1, finished: Boolean(lane.finished),
      best: String(lane.tokens) === String(best.slice(0, row + 1)),
    }));
    before = new Map(grown.map((lane, index) => [String(lane.tokens), index]));
    return nodes;
  });
});

// Clusters picked in the first passes: those that drafts picked, then those of settled tokens.
export const picks = (model, upto) => once(model, `picks ${upto}`, () => {
  const found = new Map();
  const limit = columnCount(model);
  model.rows.slice(0, upto).forEach((pass, row) => pass.slots.forEach((slot, index) => {
    const cluster = pass.cluster ? pass.cluster[index] : null;
    const column = columnOf(model, slot);
    if (cluster === null || column >= limit) return;
    const known = model.settled.get(slot);
    const settled = known !== undefined && known[0] === row && known[1] === index;
    const key = `${column} ${cluster}`;
    if (settled || !found.has(key)) found.set(key, { column, cluster, active: pass.num_active ? pass.num_active[index] : null, settled });
  }));
  return [...found.values()].sort((a, b) => a.settled - b.settled || a.column - b.column || a.cluster - b.cluster);
});

export const clusterRows = (model) => once(model, "clusters", () => {
  const order = [...picks(model, model.rows.length)].sort((a, b) => b.settled - a.settled || a.column - b.column || a.cluster - b.cluster);
  return [...new Set(order.map((pick) => pick.cluster))];
});

export const laneName = (index) => `lane ${index + 1}`;

export const passName = (model, row) => `pass ${model.rows[row].call + 1}`;

export const probabilityText = (value) => (value >= 0.995 ? "1.0" : value.toFixed(2).replace(/^0/, ""));

// What Python says of an origin: 0 for the legend, 1 for a tip. Plain ones are their own names.
export const toldOf = (model, name, index) => (Object.hasOwn(model.origins, name) ? model.origins[name][index] : name);
