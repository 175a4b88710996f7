// Draws the cells in view on a canvas; text goes through fillText only. `SHAPES` are the marks of Python's cells.

import { CLUSTER, inView, STRIP } from "./layout.js";
import { blocks, cell, lattice, picks, probabilityText } from "./model.js";

const ELLIPSIS = "…";
const KEPT = 20000;
const DASH = [2.5, 3];
const cut = new Map();
const marks = new Map();

function font(colors, size, { bold = false, italic = false } = {}) {
  return `${italic ? "italic " : ""}${bold ? 600 : 400} ${size}px ${colors.font}`;
}

// Setting a font and asking for it are slow: the context remembers the last one by name.
export function useFont(context, colors, size, style) {
  const wanted = font(colors, size, style);
  if (context.named !== wanted) context.font = context.named = wanted;
}

export function fitted(context, text, room) {
  const key = `${context.named}\n${Math.round(room)}\n${text}`;
  if (!cut.has(key)) {
    if (cut.size > KEPT) cut.clear();
    cut.set(key, cutText(context, text, room));
  }
  return cut.get(key);
}

function cutText(context, text, room) {
  if (context.measureText(text).width <= room) return text;
  const characters = Array.from(text);
  let low = 0;
  let high = characters.length;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    const wide = context.measureText(characters.slice(0, middle).join("") + ELLIPSIS).width > room;
    if (wide) high = middle - 1;
    else low = middle;
  }
  return characters.slice(0, low).join("") + ELLIPSIS;
}

export function paint(context, state) {
  const { model, geo, scroll, size, ratio, shown } = state;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, size.width, size.height);
  context.named = "";
  context.save();
  context.beginPath();
  context.rect(geo.left - 3, geo.top - 3, Math.max(0, size.width - geo.left - 1), size.height - geo.top + 3);
  context.clip();
  Object.assign(context, { textAlign: "center", textBaseline: "alphabetic", direction: "ltr" });
  context.translate(geo.left - scroll.left, geo.top - scroll.top);
  const view = inView(geo, scroll, size);
  if (model.beam) lanes(context, state, view);
  else {
    const end = Math.min(view.end, shown);
    state.drafts = new Path2D();
    for (let row = view.first; row < end; row++) {
      for (const column of view.columns) drawCell(context, state, cell(model, row, column), geo.places[column], row * geo.pitch);
    }
    if (geo.readable) {
      stroke(context, state.colors.muted, 1, 0.6, DASH, state.drafts);
      outlines(context, state, view);
    } else stroke(context, state.colors.muted, 1, 0.45, [], state.drafts);
    if (state.fade < 1 && end === shown) veil(context, state, (shown - 1) * geo.pitch);
  }
  if (geo.clusters.length) activeSets(context, state, view);
  context.restore();
  context.named = "";
}

function stroke(context, color, width, alpha = 1, dash = [], path = null) {
  Object.assign(context, { strokeStyle: color, lineWidth: width, globalAlpha: alpha });
  context.setLineDash(dash);
  if (path) context.stroke(path);
  else context.stroke();
  context.globalAlpha = 1;
}

function rounded(context, ...where) {
  context.beginPath();
  context.roundRect(...where);
}

function polyline(context, ...points) {
  context.beginPath();
  for (const [x, y] of points) context.lineTo(x, y);
}

const fill = (context, color, alpha) => {
  context.fillStyle = color;
  context.globalAlpha = alpha;
  context.fill();
  context.globalAlpha = 1;
};

// The newest pass comes in softly: paper over it that clears.
function veil(context, { colors, geo, fade }, y) {
  Object.assign(context, { fillStyle: colors.paper, globalAlpha: 1 - fade });
  context.fillRect(-2, y - 2, geo.grid + 4, geo.pitch);
  context.globalAlpha = 1;
}

function drawCell(context, state, item, place, y) {
  const { colors, geo, find } = state;
  const { x, width } = place;
  const high = geo.pitch - geo.gap;
  if (item.kind === "empty") {
    if (geo.readable) dot(context, colors, x + width / 2, y + high / 2);
    return;
  }
  box(context, colors, item, x, y, width, high, state.drafts);
  if (find && item.kind !== "settled" && item.text.toLowerCase().includes(find)) {
    rounded(context, x + 2.5, y + 2.5, width - 5, high - 5, 4);
    stroke(context, colors.ink, 1.4);
  }
  if (!geo.readable) return;
  const fresh = item.kind === "new";
  const number = item.probability === null ? "" : probabilityText(item.probability);
  words(context, state, item, place, y, { number, bold: fresh, strong: fresh, settled: fresh || item.kind === "settled" });
  // small marks stay clear of the word
  const size = geo.quiet || width < 36 ? 0.6 : 1;
  if (item.moved) chevron(context, colors, x + width, y, size);
  if (item.guess) mark(context, colors, item, x, y + high, size);
}

// A token, and below it a number where the row has room for both.
function words(context, state, item, place, y, { number, bold, strong, settled }) {
  const { colors, geo } = state;
  const both = number && !geo.quiet;
  const baseline = y + (both ? 0.41 * geo.pitch : (geo.pitch - geo.gap) / 2 + 4.5);
  useFont(context, colors, 12.5 * geo.type, { bold, italic: !settled });
  context.fillStyle = settled ? colors.ink : colors.muted;
  context.fillText(item.token < 0 ? "·" : fitted(context, item.text, place.width - 8), place.middle, baseline);
  if (item.continues) {
    polyline(context, [place.x + 2.5, baseline - 4], [place.x + 6.5, baseline - 4]);
    stroke(context, colors.muted, 1.4);
  }
  if (both) small(context, state, number, place.middle, y + 0.75 * geo.pitch, strong);
}

function small(context, { colors, geo }, text, x, y, strong) {
  useFont(context, colors, Math.max(9, 10 * geo.type));
  context.fillStyle = strong ? colors.ink : colors.muted;
  context.fillText(text, x, y);
}

function box(context, colors, item, x, y, width, high, drafts = null) {
  const sure = item.probability ?? 0.8;
  const radius = Math.min(6, high / 4);
  if (item.kind === "settled") {
    rounded(context, x, y, width, high, radius);
    fill(context, colors.settled, 0.1 + 0.13 * sure);
    return;
  }
  const path = item.kind === "new" || !drafts ? context : drafts;
  if (path === context) context.beginPath();
  path.roundRect(x + 0.5, y + 0.5, width - 1, high - 1, radius);
  if (item.kind === "new") {
    fill(context, colors.settled, 0.26 + 0.22 * sure);
    stroke(context, colors.accent, high < 16 ? 1 : 1.8);
  } else {
    if (!drafts) stroke(context, colors.muted, 1, 0.6, DASH);
    if (item.kind === "masked") hatch(context, colors, x + 1, y + 1, x + width - 1, y + high - 1);
  }
}

function hatch(context, colors, x, y, right, foot) {
  const step = Math.min(right - x, foot - y) / 6;
  context.beginPath();
  for (const by of [step, 2 * step]) {
    context.moveTo(x, y + by);
    context.lineTo(x + by, y);
    context.moveTo(right - by, foot);
    context.lineTo(right, foot - by);
  }
  stroke(context, colors.muted, 1, 0.6);
}

function dot(context, colors, x, y) {
  context.beginPath();
  context.arc(x, y, 1.6, 0, 2 * Math.PI);
  fill(context, colors.muted, 0.45);
}

function chevron(context, colors, right, y, size) {
  polyline(context, [right - 13 * size, y + 3.5 * size], [right - 9 * size, y + 7 * size], [right - 5 * size, y + 3.5 * size]);
  stroke(context, colors.accent, 1.6);
}

function mark(context, colors, item, x, foot, size) {
  const shape = SHAPES[item.origin] || SHAPES.other;
  if (!marks.has(shape)) marks.set(shape, new Path2D(shape));
  context.save();
  context.transform(size, 0, 0, size, x + 3 * size, foot - 11 * size);
  Object.assign(context, { globalAlpha: 0.7, lineWidth: 0.9 / size, strokeStyle: colors.ink, fillStyle: colors.ink });
  if (item.guess === "right") context.fill(marks.get(shape));
  context.stroke(marks.get(shape));
  context.restore();
}

function outlines(context, { model, geo, colors, shown }, view) {
  for (const block of blocks(model)) {
    const end = Math.min(block.end_row, shown);
    if (block.row >= Math.min(shown, view.end) || end <= view.first) continue;
    const inside = geo.places.slice(block.column, block.end_column).filter((place) => !place.hidden);
    if (inside.length < 2) continue;
    const [first, last] = [inside[0], inside.at(-1)];
    const pad = geo.gap / 2;
    rounded(context, first.x - pad, block.row * geo.pitch - pad, last.right - first.x + 2 * pad, (end - block.row) * geo.pitch, 8);
    stroke(context, colors.muted, 1, 0.55);
  }
}

function lanes(context, state, { columns }) {
  const { model, geo, shown, colors } = state;
  const drawn = lattice(model);
  const high = geo.pitch - geo.gap;
  const lit = lineage(state);
  for (const column of columns.filter((place) => place < shown)) {
    const place = geo.places[column];
    drawn[column].forEach((item, lane) => {
      const y = lane * geo.pitch;
      const traced = lit ? lit.has(`${column} ${lane}`) : item.best;
      if (item.parent >= 0 && !geo.places[column - 1].hidden) {
        const from = geo.places[column - 1].right;
        const [start, end] = [item.parent * geo.pitch + high / 2, y + high / 2];
        const bend = (from + place.x) / 2;
        context.beginPath();
        context.moveTo(from, start);
        context.bezierCurveTo(bend, start, bend, end, place.x, end);
        stroke(context, traced ? colors.settled : colors.muted, traced ? 2.4 : 1, traced ? 0.9 : 0.5);
      }
      const kind = item.best ? (item.finished ? "new" : "settled") : "draft";
      box(context, colors, { kind, probability: 0.8 }, place.x, y, place.width, high);
      if ((item.finished && !item.best) || (lit && traced)) {
        rounded(context, place.x + 0.5, y + 0.5, place.width - 1, high - 1, 6);
        stroke(context, traced ? colors.settled : colors.muted, traced ? 2 : 1);
      }
      if (!geo.readable) return;
      const number = item.score === null ? "" : scoreText(item.score);
      words(context, state, item, place, y, { number, bold: item.best, settled: item.best });
    });
  }
}

export const scoreText = (score) => score.toFixed(1).replace("-", "−");

// The hypothesis under the pointer, as keys of its cells.
function lineage({ model, over }) {
  if (!over || over.row === null) return null;
  const found = new Set();
  let lane = over.row;
  for (let column = Math.min(over.column, model.rows.length - 1); column >= 0 && lane >= 0; column--) {
    found.add(`${column} ${lane}`);
    lane = lattice(model)[column][lane]?.parent ?? -1;
  }
  return found;
}

function activeSets(context, state, { columns }) {
  const { model, geo, colors, shown, cluster } = state;
  const seen = new Set(columns);
  const most = Math.max(1, ...picks(model, model.rows.length).map((pick) => pick.active || 0));
  const top = geo.active - geo.top;
  const end = geo.places.length ? geo.grid : 0;
  geo.clusters.forEach((number, index) => {
    const y = top + STRIP + 8 + index * CLUSTER;
    polyline(context, [0, y + 8], [end, y + 8]);
    stroke(context, number === cluster ? colors.accent : colors.muted, 1, number === cluster ? 0.9 : 0.25);
  });
  for (const pick of picks(model, shown)) {
    if (!seen.has(pick.column)) continue;
    const place = geo.places[pick.column];
    const part = (pick.active || 0) / most;
    if (pick.settled && pick.active !== null) {
      const high = Math.max(1.5, (STRIP - 14) * part);
      rounded(context, place.x, top + STRIP - high, place.width, high, 1.5);
      fill(context, colors.settled, 0.55);
      if (place.width > 26) small(context, state, model.shares[pick.active], place.middle, top + STRIP - high - 3, false);
    }
    const y = top + STRIP + 8 + geo.clusters.indexOf(pick.cluster) * CLUSTER;
    rounded(context, place.x + 0.5, y + 0.5, place.width - 1, 15, 4);
    fill(context, colors.paper, 1);
    if (pick.settled) fill(context, colors.settled, 0.3 + 0.5 * part);
    else stroke(context, colors.muted, 1, 0.6, DASH);
  }
}
