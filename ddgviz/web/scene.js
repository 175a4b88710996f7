// Draws what lies around the cells as SVG: the graph, row names, bars, highlights and the focus ring.

import { arcHeight, CLUSTER, inView, STRIP } from "./layout.js";
import {
  cell, edgeKind, edges, labelOf, laneName, lattice, layers, newColumns, passName, pills, toldOf,
} from "./model.js";
import { fitted, useFont } from "./paint.js";

const SVG = "http://www.w3.org/2000/svg";

export function node(tag, attributes = {}, children = []) {
  const made = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

export function createScene() {
  // random, as each picture of a notebook evaluates its own copy of this module and ids are the page's
  const id = `ddg${Math.random().toString(36).slice(2)}`;
  const clip = node("rect");
  const columns = node("g");
  const rows = node("g");
  const marks = node("g");
  const fade = [];
  const gradient = (side, [x1, x2]) => {
    const stops = [node("stop", { offset: 0, "stop-opacity": 0 }), node("stop", { offset: 1 })];
    fade.push(...stops);
    return node("linearGradient", { id: `${id}-${side}`, x1, x2 }, stops);
  };
  const defs = node("defs", {}, [node("clipPath", { id }, [clip]), gradient("right", [0, 1]), gradient("left", [1, 0])]);
  const clipped = node("g", { "clip-path": `url(#${id})` }, [columns, marks]);
  return {
    id, svg: node("svg", { class: "ddg-scene", "aria-hidden": "true" }, [defs, clipped, rows]), clip, columns, rows, marks, fade,
  };
}

export function drawScene(scene, state, context) {
  const { geo, size } = state;
  scene.svg.setAttribute("width", size.width);
  scene.svg.setAttribute("height", size.height);
  const clip = { x: geo.left - 3, y: 0, width: Math.max(0, size.width - geo.left + 3), height: size.height };
  for (const [key, value] of Object.entries(clip)) scene.clip.setAttribute(key, value);
  scene.columns.setAttribute("transform", `translate(${geo.left - state.scroll.left} 0)`);
  scene.columns.replaceChildren(...graphNodes(state, context));
  scene.rows.replaceChildren(...rowNodes(scene, state));
  drawMarks(scene, state);
}

function graphNodes(state, context) {
  const { model, geo, shown } = state;
  const { columns } = inView(geo, state.scroll, state.size);
  const [first, last] = [columns[0], columns.at(-1)];
  const near = (one, other) => Math.max(one, other) >= first && Math.min(one, other) <= last;
  const drawable = ({ source, target }) => near(source, target) && !geo.places[source].hidden && !geo.places[target].hidden;
  const related = relatives(state);
  const made = edges(model, shown, state.graph).filter(drawable).map((edge) => arc(state, edge));
  const drawn = new Set();
  for (const layer of layers(model, shown)) {
    for (const run of pills(model, layer.columns.filter((column) => !geo.places[column].hidden))) {
      if (!near(run[0], run.at(-1))) continue;
      run.forEach((column) => drawn.add(column));
      made.push(...pill(state, layer.row, run, context, related));
    }
  }
  columns.forEach((column) => {
    const place = geo.places[column];
    if (!drawn.has(column) && geo.readable) made.push(node("circle", { cx: place.middle, cy: geo.pill + 13, r: 1.6, class: "ddg-dot" }));
  });
  return made;
}

function arc(state, edge) {
  const { geo, model, hot } = state;
  const from = geo.places[edge.source];
  const to = geo.places[edge.target];
  const foot = geo.pill - 1;
  const lift = foot - (arcHeight(from, to, geo.arch) * 4) / 3;
  const measured = edgeKind(model, state.graph) === "measured";
  const weight = measured ? 0.8 + 2 * edge.strength : 1.6;
  const alpha = measured ? 0.3 + 0.5 * edge.strength : 0.65;
  const lit = hot !== null && (edge.source === hot || edge.target === hot);
  return node("path", {
    d: `M${from.middle} ${foot}C${from.middle} ${lift} ${to.middle} ${lift} ${to.middle} ${foot}`,
    class: "ddg-arc",
    "stroke-width": lit ? weight + 0.8 : weight,
    "stroke-opacity": hot === null ? alpha : lit ? 1 : 0.15,
  });
}

function pill(state, row, run, context, related) {
  const { geo, model, hot } = state;
  const pad = geo.readable ? 2 : 0;
  const x = geo.places[run[0]].x + pad;
  const width = geo.places[run.at(-1)].right - pad - x;
  const together = run.length > 1;
  const made = [
    node("rect", { x, y: geo.pill, width, height: 26, rx: geo.readable ? 13 : 3, class: "ddg-pill", "fill-opacity": together ? 0.18 : 0.1 }),
  ];
  const size = 13 * Math.min(1, geo.type);
  useFont(context, state.colors, size, { bold: true });
  for (const column of run) {
    const place = geo.places[column];
    const item = cell(model, row, column);
    if (column === hot || related.has(column)) {
      const kind = column === hot ? "ddg-lit ddg-self" : "ddg-lit";
      made.push(node("rect", { x: place.x + 2, y: geo.pill, width: place.width - 4, height: 26, rx: 13, class: kind }));
    }
    if (differs(state, column)) made.push(node("path", { d: `M${place.middle - 5} ${geo.pill + 31}h10m-10 4h10m-2.5 -6.5l-5 9`, class: "ddg-differs" }));
    if (find(state, item)) made.push(node("rect", { x: place.x + 4, y: geo.pill + 2, width: place.width - 8, height: 22, rx: 11, class: "ddg-found" }));
    if (!geo.readable) continue;
    made.push(written(fitted(context, item.text, place.width - 8), place.middle, geo.pill + 17.5, "token", { "font-size": size }));
    if (item.continues) made.push(node("path", { d: `M${place.x + 4} ${geo.pill + 13.5}h4`, class: "ddg-tick" }));
  }
  if (together && width > 50) made.push(written(`${whole(model, row, run[0])} at once`, x + width / 2, geo.pill + (state.match.includes(-1) ? 50 : 41), "at-once"));
  return made;
}

const find = (state, item) => state.find && item.text.toLowerCase().includes(state.find);

export const differs = (state, column) => state.match.length > column && state.match[column] < 0;

function relatives(state) {
  const found = new Set();
  if (state.hot === null) return found;
  for (const edge of edges(state.model, state.shown, state.graph)) {
    if (edge.source === state.hot) found.add(edge.target);
    if (edge.target === state.hot) found.add(edge.source);
  }
  return found;
}

function rowNodes(scene, state) {
  const { model, geo, scroll, size, shown, colors } = state;
  const view = inView(geo, scroll, size);
  const made = [];
  const barX = Math.min(geo.left + geo.grid - scroll.left, size.width - geo.bars) + 18;
  if (geo.width > size.width) {
    const cover = { y: 0, height: size.height };
    const start = barX - 14;
    made.push(node("rect", { ...cover, x: start, width: size.width, fill: colors.paper }));
    scene.fade.forEach((stop) => stop.setAttribute("stop-color", colors.paper));
    if (scroll.left + size.width < geo.width - 1) {
      made.push(node("rect", { ...cover, x: start - 28, width: 28.5, fill: `url(#${scene.id}-right)` }));
    }
    if (scroll.left > 1) made.push(node("rect", { ...cover, x: geo.left - 4, width: 28, fill: `url(#${scene.id}-left)` }));
  }
  const named = [1, 2, 5, 10, 20].find((every) => every * geo.pitch >= 13);
  for (let row = view.first; row < Math.min(view.end, geo.lines); row++) {
    const middle = geo.top + row * geo.pitch - scroll.top + (geo.pitch - geo.gap) / 2;
    if (middle < geo.top - 4) continue;
    if (model.beam) {
      made.push(rowName(geo, middle, laneName(row)));
      continue;
    }
    if (row >= model.rows.length) break;
    const current = row === shown - 1;
    if (current || ((row + 1) % named === 0 && Math.abs(row - shown + 1) >= named)) {
      const name = rowName(geo, middle, passName(model, row), current);
      if (row >= shown) name.setAttribute("opacity", 0.45);
      made.push(name);
    }
    const count = newColumns(model, row).length;
    if (row >= shown || !count) continue;
    const bar = Math.max(2, Math.min(16, geo.pitch - 2));
    made.push(node("rect", { x: barX, y: middle - bar / 2, width: geo.unit * count, height: bar, rx: bar / 4, class: "ddg-bar" }));
    if (geo.pitch < 13) continue;
    made.push(written(`+${count}`, barX + geo.unit * count + 7, middle + 4.5, "count"));
  }
  made.push(...clusterNames(state, barX));
  return made;
}

// Tokens of the run that a column belongs to, those out of view included.
const whole = (model, row, column) => pills(model, newColumns(model, row)).find((run) => run.includes(column)).length;

function written(text, x, y, kind, more = {}) {
  const made = node("text", { x, y, class: `ddg-${kind}`, ...more });
  made.textContent = text;
  return made;
}

const rowName = (geo, middle, text, now) => written(text, geo.left - 14, middle + 4, now ? "row ddg-now" : "row");

function clusterNames({ geo, scroll, size, cluster, sizes }, x) {
  const top = geo.active - scroll.top;
  const within = (y) => y > geo.top && y < size.height;
  const made = geo.clusters.length && within(top + STRIP - 10) ? [rowName(geo, top + STRIP - 8, "scored")] : [];
  geo.clusters.forEach((number, index) => {
    const y = top + STRIP + 8 + index * CLUSTER + 8;
    if (!within(y)) return;
    made.push(rowName(geo, y, `cluster ${number}`, number === cluster));
    made.push(written((sizes[number] || [""])[0], x, y + 4, "row ddg-size"));
  });
  return made;
}

function drawMarks(scene, state) {
  const { geo, scroll, size, hot, focus, shown, brushing } = state;
  const made = [];
  const left = geo.left - scroll.left;
  if (hot !== null && geo.places[hot] && !geo.places[hot].hidden) {
    const place = geo.places[hot];
    const end = Math.min(size.height, geo.top + (state.model.beam ? geo.lines : shown) * geo.pitch - scroll.top);
    const height = Math.max(0, (geo.clusters.length ? size.height : end) - geo.top + 4);
    made.push(node("rect", { x: left + place.x - 2, y: geo.top - 4, width: place.width + 4, height, rx: 8, class: "ddg-band" }));
  }
  if (focus && geo.places[focus.column] && focus.row < geo.lines) {
    const place = geo.places[focus.column];
    const y = geo.top + focus.row * geo.pitch - scroll.top;
    const ring = { x: left + place.x - 2, y: y - 2, width: place.width + 4, height: geo.pitch - geo.gap + 4, rx: 8, class: "ddg-ring" };
    if (y >= geo.top - 4) made.push(node("rect", ring));
  }
  if (brushing) {
    const [from, to] = brushing.map((column) => geo.places[column]);
    made.push(node("rect", { x: left + from.x - 2, y: 0, width: to.right - from.x + 4, height: size.height, rx: 4, class: "ddg-brush" }));
  }
  scene.marks.replaceChildren(...made);
}

export function describe(model, row, column) {
  if (model.beam) return describeNode(model, row, column);
  const item = cell(model, row, column);
  const where = `Position ${column + 1}, ${passName(model, row)}`;
  if (item.kind === "empty") return { head: "nothing yet", lines: [where] };
  const lines = [where];
  const settledIn = item.kind === "settled" || item.kind === "new" ? `settled in ${passName(model, item.from)}` : "";
  lines.push(settledIn || (item.kind === "masked" ? (item.token < 0 ? "open" : "to be masked again") : "not settled"));
  if (item.token >= 0) lines.push(`token id ${item.token}`);
  if (item.probability !== null) lines.push(`probability ${item.probability.toPrecision(3)}`);
  if (item.margin !== null) lines.push(`margin to the runner-up ${item.margin.toPrecision(3)}`);
  if (item.draft >= 0) lines.push(`draft before: ${labelOf(model, item.draft).text}${item.origin ? ` (${toldOf(model, item.origin, 1)})` : ""}`);
  if (item.word >= 0) lines.push(`${model.source.said[item.origin] || "from"} “${model.source.parts[item.word]}”`);
  return { head: item.text || "open", lines };
}

function describeNode(model, lane, column) {
  const nodes = lattice(model)[column] || [];
  const item = nodes[lane];
  const where = `Position ${column + 1}, ${laneName(lane)}`;
  if (!item) return { head: "no hypothesis", lines: [where] };
  const lines = [where, item.finished ? "finished" : "open", `token id ${item.token}`];
  if (item.score !== null) lines.push(`score ${item.score.toPrecision(4).replace("-", "−")}`);
  if (item.best) lines.push("part of the best hypothesis");
  return { head: item.text, lines };
}
