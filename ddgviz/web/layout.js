// Where things stand on the screen: widths of columns, heights of arcs and rows, the part that is in view.

import {
  cell, clusterRows, columnCount, columnOf, complete, edges, lattice, layers, newColumns, pills,
} from "./model.js";

export const GAP = 4;
export const STRIP = 34;
export const CLUSTER = 20;
const LINK = 22;
const NARROWEST = 36;
const WIDEST = 150;
const WIDEST_DRAFT = 64;
const WIDEST_LANE = 96;
const COMFORTABLE = 80;
const TIGHTEST = 0.78;
const PADDING = 16;

// What drawing needs to know of all cells at once, gathered pass by pass, and anew when the output's length is known.
export function survey(model, known, measure) {
  const limit = complete(model) || model.right ? columnCount(model) : Infinity;
  const kept = known && known.limit === limit && known.source === model.header && known.rows <= model.rows.length;
  const found = kept ? known : {
    limit, source: model.header, rows: 0, natural: [], kinds: new Set(), moved: false, continues: false, open: false,
    guesses: new Set(),
  };
  for (let row = found.rows; row < model.rows.length; row++) {
    for (const slot of model.rows[row].places.keys()) {
      const column = columnOf(model, slot);
      if (column < limit) note(found, cell(model, row, column), measure);
    }
    if (!model.beam) continue;
    for (const item of lattice(model)[row]) widen(found, row, Math.min(WIDEST_LANE, measure(item.text, item.best) + PADDING));
  }
  found.rows = model.rows.length;
  if ([...model.settled.values()].some(([row]) => row < found.rows - 1)) found.kinds.add("settled");
  return found;
}

const widen = (found, column, need) => {
  found.natural[column] = Math.max(found.natural[column] || NARROWEST, need);
};

function note(found, item, measure) {
  found.kinds.add(item.kind);
  found.moved = found.moved || item.moved;
  found.continues = found.continues || item.continues;
  if (item.kind === "masked" && item.token < 0) found.open = true;
  if (item.guess) found.guesses.add(item.origin);
  if (item.kind === "settled") return;
  const fresh = item.kind === "new";
  widen(found, item.column, Math.min(fresh ? WIDEST : WIDEST_DRAFT, measure(item.text, fresh) + PADDING));
}

// Widths in pixels: as the tokens need, or as `zoom` wants; by themselves a little tighter where that lets all be seen.
function placeColumns(model, natural, room, { zoom, brush }) {
  const gap = model.beam ? LINK : GAP;
  const count = columnCount(model);
  const inside = (column) => !brush || brush[0] >= count || (column >= brush[0] && column <= brush[1]);
  const needs = Array.from({ length: count }, (_, column) => natural[column] || NARROWEST);
  const drawn = needs.filter((_, column) => inside(column));
  const free = room - gap * drawn.length;
  const fitting = Math.min(1, free / drawn.reduce((sum, need) => sum + need, 0));
  // less than the tightest only where all is seen thereby: else half of the last column would be hidden
  const scale = zoom || (fitting < 0.95 * TIGHTEST ? TIGHTEST : fitting);
  const floor = leastWidth(drawn, free);
  let x = 0;
  const places = needs.map((need, column) => {
    if (!inside(column)) return { x, width: 0, middle: x, right: x, hidden: true };
    const width = zoom ? need * zoom : Math.max(need * scale, floor);
    const place = { x, width, middle: x + width / 2, right: x + width };
    x += width + (zoom && zoom < 1 ? Math.max(1, gap * zoom) : gap);
    return place;
  });
  return { places, scale };
}

function leastWidth(widths, room) {
  let floor = 0;
  while (floor < COMFORTABLE && widths.reduce((sum, width) => sum + Math.max(width, floor + 1), 0) <= room) floor += 1;
  return floor;
}

export const arcHeight = (from, to, most) => Math.min(18 + 0.15 * Math.abs(to.middle - from.middle), most);

export function geometry(model, size, natural, options) {
  const narrow = size.width < 620;
  // Grouped: room for "cluster 123" on the left, and for "2,976 · 18.6%" on the right.
  const left = narrow ? (model.grouped ? 80 : 62) : 86;
  const bars = model.beam && !model.grouped ? 12 : narrow ? (model.grouped ? 100 : 76) : 132;
  const room = Math.max(200, size.width - left - bars);
  const { places, scale } = placeColumns(model, natural, room, options);
  const passes = model.rows.length;
  const arch = options.group ? 30 : 84;
  const arcs = edges(model, passes, options.graph).reduce(
    (high, { source, target }) => Math.max(high, arcHeight(places[source], places[target], arch)), 0);
  const several = layers(model, passes).some((layer) => pills(model, layer.columns).length < layer.columns.length);
  const pill = arcs + 6;
  const known = model.beam || model.rows.some((row) => row.probabilities && row.probabilities.some((p) => p !== null));
  const top = pill + 26 + (several ? 28 : 14) + (options.differ ? 10 : 0);
  const lines = Math.max(1, model.beam ? Math.max(0, ...lattice(model).map((nodes) => nodes.length)) : passes);
  const clusters = model.grouped ? clusterRows(model) : [];
  const below = clusters.length ? 28 + STRIP + clusters.length * CLUSTER : 0;
  const full = known ? 44 : 32;
  const fit = Math.floor((options.tallest - top - below) / lines);
  const pitch = options.zoom ? Math.max(3, Math.round(full * options.zoom)) : Math.max(Math.min(full, fit), options.group ? 20 : 30);
  const grid = places.length ? places.at(-1).right : 0;
  const most = Math.max(1, ...model.rows.map((_, row) => newColumns(model, row).length));
  return {
    left, bars, places, pill, top, arch, pitch, grid, lines, clusters,
    type: Math.max(TIGHTEST, Math.min(1.4, scale)), readable: scale >= 0.5 && pitch >= 16, quiet: pitch < 40 * Math.min(1, scale),
    gap: pitch < 24 ? 1 : GAP, unit: Math.min(22, (bars - 60) / most), active: top + lines * pitch + 20,
    width: left + grid + bars, height: top + lines * pitch + below,
  };
}

export function inView(geo, scroll, size) {
  const lastX = scroll.left + size.width - geo.left;
  const columns = [];
  geo.places.forEach((place, column) => {
    if (!place.hidden && place.right >= scroll.left && place.x <= lastX) columns.push(column);
  });
  const first = Math.max(0, Math.floor(scroll.top / geo.pitch));
  const end = Math.ceil((scroll.top + size.height - geo.top) / geo.pitch) + 1;
  return { columns, first, end };
}

// What lies under the pointer: a token of the graph (row null), a cell, or a cluster.
export function hit(geo, model, shown, scroll, x, y) {
  const cluster = y < geo.top ? -1 : Math.floor((y + scroll.top - geo.active - STRIP - 8) / CLUSTER);
  if (geo.clusters[cluster] !== undefined) return { row: null, column: columnAt(geo, scroll, x), cluster: geo.clusters[cluster] };
  if (y < 0 || x < geo.left) return null;
  const column = columnAt(geo, scroll, x);
  if (column === null) return null;
  if (y < geo.top) return y >= geo.pill && y <= geo.pill + 26 ? { row: null, column } : null;
  const row = Math.floor((y - geo.top + scroll.top) / geo.pitch);
  if (model.beam) return column < shown && lattice(model)[column][row] ? { row, column } : null;
  return row >= 0 && row < shown ? { row, column } : null;
}

export function columnAt(geo, scroll, x) {
  const inner = x - geo.left + scroll.left;
  const column = geo.places.findIndex((place) => !place.hidden && inner >= place.x && inner <= place.right + GAP);
  return column < 0 ? null : column;
}
