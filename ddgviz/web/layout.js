// Where things stand on the screen: widths of columns, heights of arcs, the part that is in view.

import { cell, columnCount, complete, edges, layers, pills } from "./model.js";

export const GAP = 4;
const NARROWEST = 36;
const WIDEST = 150;
const WIDEST_DRAFT = 64;
const COMFORTABLE = 80;
const PADDING = 16;

// What drawing needs to know of all cells at once, gathered pass by pass, and anew when the output's length is known.
export function survey(model, known, measure) {
  const limit = complete(model) ? columnCount(model) : Infinity;
  const kept = known && known.limit === limit && known.source === model.header && known.rows <= model.rows.length;
  const found = kept ? known : { limit, source: model.header, rows: 0, natural: [], kinds: new Set(), moved: false, continues: false };
  for (let row = found.rows; row < model.rows.length; row++) {
    for (const column of model.rows[row].places.keys()) {
      if (column < limit) note(found, cell(model, row, column), measure);
    }
  }
  found.rows = model.rows.length;
  if ([...model.settled.values()].some(([row]) => row < found.rows - 1)) found.kinds.add("settled");
  return found;
}

function note(found, item, measure) {
  found.kinds.add(item.kind);
  found.moved = found.moved || item.moved;
  found.continues = found.continues || item.continues;
  if (item.kind === "settled") return;
  const fresh = item.kind === "new";
  const need = Math.min(fresh ? WIDEST : WIDEST_DRAFT, measure(item.text, fresh) + PADDING);
  found.natural[item.column] = Math.max(found.natural[item.column] || NARROWEST, need);
}

function placeColumns(model, natural, room) {
  const needs = Array.from({ length: columnCount(model) }, (_, column) => natural[column] || NARROWEST);
  const floor = leastWidth(needs, room - GAP * needs.length);
  let x = 0;
  return needs.map((need) => {
    const width = Math.max(need, floor);
    const place = { x, width, middle: x + width / 2, right: x + width };
    x += width + GAP;
    return place;
  });
}

function leastWidth(widths, room) {
  let floor = NARROWEST;
  while (floor < COMFORTABLE && widths.reduce((sum, width) => sum + Math.max(width, floor + 1), 0) <= room) floor += 1;
  return floor;
}

export const arcHeight = (from, to) => Math.min(18 + 0.15 * Math.abs(to.middle - from.middle), 84);

export function geometry(model, size, natural) {
  const left = size.width < 620 ? 62 : 86;
  const bars = size.width < 620 ? 76 : 132;
  const places = placeColumns(model, natural, Math.max(200, size.width - left - bars));
  const all = edges(model, model.rows.length);
  const arcs = all.reduce((high, edge) => Math.max(high, arcHeight(places[edge.source], places[edge.target])), 0);
  const several = layers(model, model.rows.length).some((layer) => pills(model, layer.columns).length < layer.columns.length);
  const pill = arcs + 6;
  const known = model.rows.some((row) => row.probabilities && row.probabilities.some((p) => p !== null));
  const grid = places.length ? places[places.length - 1].right : 0;
  const top = pill + 26 + (several ? 28 : 14);
  const pitch = known ? 44 : 32;
  const most = Math.max(1, ...layerSizes(model));
  return {
    left, bars, places, pill, top, pitch, grid,
    unit: Math.min(22, (bars - 60) / most),
    width: left + grid + bars,
    height: top + Math.max(1, model.rows.length) * pitch,
  };
}

function layerSizes(model) {
  const sizes = model.rows.map(() => 0);
  for (const [row] of model.settled.values()) sizes[row] += 1;
  return sizes;
}

export function inView(geo, scroll, size) {
  const lastX = scroll.left + size.width - geo.left;
  const columns = [];
  geo.places.forEach((place, column) => {
    if (place.right >= scroll.left && place.x <= lastX) columns.push(column);
  });
  const first = Math.max(0, Math.floor(scroll.top / geo.pitch));
  const end = Math.ceil((scroll.top + size.height - geo.top) / geo.pitch) + 1;
  return { columns, first, end };
}

export function hit(geo, model, shown, scroll, x, y) {
  if (y < 0 || x < geo.left) return null;
  const inner = x - geo.left + scroll.left;
  const column = geo.places.findIndex((place) => inner >= place.x && inner <= place.right);
  if (column < 0) return null;
  if (y < geo.top) return y >= geo.pill && y <= geo.pill + 26 ? { row: null, column } : null;
  const row = Math.floor((y - geo.top + scroll.top) / geo.pitch);
  return row >= 0 && row < shown ? { row, column } : null;
}
