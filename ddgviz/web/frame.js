// Builds the parts around the stage: heading, player, caption, legend, tooltip and the table for screen readers.

import { blocks, cell, columnCount, edgeKind, edges, lattice, passName, toldOf } from "./model.js";
import { node } from "./scene.js";

export function element(tag, name, children = []) {
  const made = document.createElement(tag);
  if (name) made.className = name;
  made.append(...children);
  return made;
}

const ICONS = {
  play: "M3 1v14l11 -7z", pause: "M3 1h4v14h-4zM9 1h4v14h-4z", back: "M10 2l-7 6l7 6", on: "M6 2l7 6l-7 6", out: "M3 8h10",
  in: "M3 8h10M8 3v10", graph: "M2 12C3 3 13 3 14 12",
  loop: "M3 8a5 5 0 0 1 9 -3M13 8a5 5 0 0 1 -9 3M12.5 1.5v3.8h-3.8M3.5 14.5v-3.8h3.8",
};
const FRAME = "title headline sub stage scroll notice beyond legend tip words head player caption progress beside search speed";

export function setIcon(button, name, said) {
  const shape = node("path", { d: ICONS[name] });
  button.replaceChildren(node("svg", { width: 16, height: 16, viewBox: "0 0 16 16", "aria-hidden": "true" }, [shape]));
  button.ariaLabel = button.title = said;
}

function control(icon, said) {
  const button = element("button");
  Object.assign(button, { type: "button", tabIndex: -1 });
  setIcon(button, icon, said);
  return button;
}

export function createFrame(root) {
  const part = Object.fromEntries(FRAME.split(" ").map((name) => {
    const tag = { search: "input", speed: "button", beside: "span", progress: "span" }[name] || "div";
    return [name, element(tag, `ddg-${name}`)];
  }));
  Object.assign(part, {
    subtitle: element("span"), comparison: part.beside, name: element("b"), said: element("span"), canvas: element("canvas"),
    spread: element("div"), live: element("div", "ddg-aside"), table: element("div", "ddg-aside"),
    line: node("svg", { class: "ddg-line", "aria-hidden": "true" }), play: control("play", "Play"),
    back: control("back", "One pass back"), on: control("on", "One pass on"), loop: control("loop", "Loop"),
    out: control("out", "Smaller"), in: control("in", "Larger"), graph: control("graph", "Arcs"),
  });
  Object.assign(part.speed, { type: "button", tabIndex: -1, title: "Speed" });
  Object.assign(part.search, { type: "search", tabIndex: -1, placeholder: "find" });
  part.search.ariaLabel = "Find a token";
  part.words.hidden = part.tip.hidden = true;
  part.scroll.tabIndex = -1;
  part.live.ariaLive = "polite";
  part.notice.role = "alert";
  part.spread.append(part.stage);
  part.stage.append(part.canvas);
  part.scroll.append(part.spread);
  part.head.append(part.title, part.headline);
  part.sub.append(part.subtitle, part.beside);
  part.player.append(
    part.play, part.back, part.on, part.line, part.speed, part.loop, part.graph, part.out, part.in, part.search);
  part.caption.append(element("span", "", [part.name, " ", part.said]), part.progress);
  root.replaceChildren(
    part.head, part.sub, part.notice, part.player, part.scroll, part.words, part.caption, part.beyond, part.legend, part.tip,
    part.live, part.table);
  return part;
}

const put = (place, text) => {
  if (place.textContent !== text) place.textContent = text;
};

// The source sentence, and lit in it the word that a token's draft came from, paler where the pass replaced the draft.
function writeTitle(host, text, source, lit) {
  if (!source) {
    put(host, text);
    return;
  }
  if (host.children.length !== source.parts.length || host.textContent !== source.parts.join("")) {
    host.replaceChildren(...source.parts.map((part) => element("span", "", [part])));
  }
  Array.from(host.children).forEach((word, index) => {
    word.classList.toggle("ddg-source", index === lit?.word);
    word.classList.toggle("ddg-astray", index === lit?.word && lit.draft !== lit.token);
  });
}

export function writeHead(part, model, words, shown, brush = null, lit = null) {
  writeTitle(part.title, words.title || "", model.source, lit);
  for (const name of ["headline", "subtitle", "comparison", "beyond"]) put(part[name], words[name] || "");
  const [said, progress] = (shown > 0 && words.passes[shown - 1]) || [];
  put(part.name, shown > 0 ? passName(model, shown - 1) : "");
  put(part.said, said || words.nothing || "");
  put(part.progress, (brush ? `positions ${brush[0] + 1}–${brush[1] + 1} · ` : "") + (progress || ""));
}

export function drawLine(line, room, total, shown) {
  const width = room || 300;
  const x = (index) => 8 + (total > 0 ? (index / total) * (width - 16) : 0);
  const made = [
    node("line", { x1: 8, x2: width - 8, y1: 14, y2: 14, class: "ddg-rail" }),
    node("line", { x1: 8, x2: x(shown), y1: 14, y2: 14, class: "ddg-done" }),
  ];
  if (total > 0 && (width - 16) / total >= 16) {
    for (let index = 0; index <= total; index++) {
      made.push(node("circle", { cx: x(index), cy: 14, r: 3.2, class: index <= shown ? "ddg-stop ddg-past" : "ddg-stop" }));
    }
  }
  made.push(node("circle", { cx: x(shown), cy: 14, r: 7, class: "ddg-knob" }));
  line.replaceChildren(...made);
}

export function passAt(line, total, clientX) {
  const box = line.getBoundingClientRect();
  const share = (clientX - box.left - 8) / Math.max(1, box.width - 16);
  return Math.round(Math.min(1, Math.max(0, share)) * total);
}

export function writeWords(host, clusters, cluster) {
  host.hidden = cluster === null;
  if (host.hidden) return;
  const [size, words] = clusters[cluster] || ["", ""];
  host.replaceChildren(element("b", "", [`Cluster ${cluster}${size && ` · ${size}`}`]), words);
}

const INK = "var(--ddg-ink)";
const MUTED = "var(--ddg-muted)";
const TEAL = "var(--ddg-settled)";
const ACCENT = "var(--ddg-accent)";
const path = (d, stroke = MUTED, more = {}) => node("path", { d, fill: "none", stroke, "stroke-width": 1.6, ...more });
const swatch = (more) => node("rect", { x: 1, y: 1, width: 16, height: 13, rx: 4, fill: "none", stroke: MUTED, ...more });
const dashed = () => swatch({ "stroke-dasharray": "2.5 3" });

function laneLegend(model) {
  const nodes = lattice(model).flat();
  return [
    [true, "the best hypothesis", path("M-2 5C8 5 8 11 20 11", TEAL)],
    [nodes.some((item) => !item.best), "another hypothesis", dashed()],
    [nodes.some((item) => item.finished && !item.best), "finished, scored by length", swatch()],
  ];
}

function marksLegend(model, guesses) {
  const mark = (name, right) =>
    path(SHAPES[name] || SHAPES.other, INK, { transform: "translate(5 4)", fill: right ? INK : "none", "stroke-width": 0.9 });
  const found = [...guesses].sort().map((name) => [true, toldOf(model, name, 0), mark(name, false)]);
  return found.length ? [...found, [true, "filled: the pass kept the draft", mark([...guesses][0], true)]] : [];
}

export function writeLegend(legend, model, { kinds, moved, continues, open, guesses }, graph, differ) {
  const word = [continues, "continues the word", path("M5 8h7")];
  const filled = { fill: TEAL, stroke: "none", "fill-opacity": 0.2 };
  const grid = () => [
    [kinds.has("settled"), "settled", swatch(filled)],
    [kinds.has("new"), "settled in this pass", swatch({ ...filled, "fill-opacity": 0.44, stroke: ACCENT, "stroke-width": 1.8 })],
    [kinds.has("draft"), "not settled", dashed()],
    [kinds.has("masked"), open ? "open" : "masked again", path("M1 6l5 -5M1 10l9 -9M17 9l-5 5M17 5l-9 9")],
    [moved, "draft replaced", path("M5 6l4 3.5l4 -3.5", ACCENT)],
    ...marksLegend(model, guesses),
    word,
    [blocks(model).some((block) => block.end_column - block.column > 1), "computed together",
      swatch({ x: -1, y: 0, width: 20, height: 15, "stroke-opacity": 0.55 })],
    [edges(model, model.rows.length, graph).length > 0, model.meanings[edgeKind(model, graph)], path("M-2 13C2 2 16 2 20 13", TEAL)],
  ];
  const entries = [
    ...(model.beam ? [...laneLegend(model), word] : grid()),
    [differ, "differs from the other run", path("M4 6h10m-10 4h10m-2.5 -6.5l-5 9", ACCENT)],
  ];
  legend.replaceChildren(
    ...entries.filter(([present]) => present).map(([, said, shape]) =>
      element("span", "", [node("svg", { width: 18, height: 15, "aria-hidden": "true" }, [shape]), said])));
}

export function writeTable(host, model, shown, first = 0) {
  const table = element("table");
  const limit = Math.min(first + 40, columnCount(model));
  const kinds = { new: "settled now", draft: "not settled" };
  for (let row = Math.max(0, shown - 40); row < shown; row++) {
    const head = element("th", "", [passName(model, row)]);
    head.scope = "row";
    const line = element("tr", "", [head]);
    for (let column = first; column < limit; column++) {
      const item = cell(model, row, column);
      const said = item.kind === "empty" ? "" : `${item.text || "open"}, ${kinds[item.kind] || item.kind}`;
      line.append(element("td", "", [said]));
    }
    table.append(line);
  }
  host.replaceChildren(table);
}
