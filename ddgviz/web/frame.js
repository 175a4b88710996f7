// Builds the parts around the stage: heading, player, caption, legend, tooltip and the table for screen readers.

import { blocks, cell, columnCount, edges, lattice, meaning, origin, passName } from "./model.js";
import { node } from "./scene.js";

export function element(tag, name, children = []) {
  const made = document.createElement(tag);
  if (name) made.className = name;
  made.append(...children);
  return made;
}

const ICONS = {
  play: [{ d: "M3 1v14l11 -7z", fill: "currentColor" }],
  pause: [{ d: "M3 1h4v14h-4zM9 1h4v14h-4z", fill: "currentColor" }],
  back: [{ d: "M10 2l-7 6l7 6", fill: "none", stroke: "currentColor", "stroke-width": 1.8 }],
  on: [{ d: "M6 2l7 6l-7 6", fill: "none", stroke: "currentColor", "stroke-width": 1.8 }],
  loop: [{ d: "M3 8a5 5 0 0 1 9 -3M13 8a5 5 0 0 1 -9 3M12.5 1.5v3.8h-3.8M3.5 14.5v-3.8h3.8", fill: "none", stroke: "currentColor", "stroke-width": 1.5 }],
  out: [{ d: "M3 8h10", stroke: "currentColor", "stroke-width": 1.6 }],
  in: [{ d: "M3 8h10M8 3v10", stroke: "currentColor", "stroke-width": 1.6 }],
  graph: [{ d: "M2 12C3 3 13 3 14 12", fill: "none", stroke: "currentColor", "stroke-width": 1.6 }],
};

export function setIcon(button, name, said) {
  const shapes = ICONS[name].map((shape) => node("path", shape));
  button.replaceChildren(node("svg", { width: 16, height: 16, viewBox: "0 0 16 16", "aria-hidden": "true" }, shapes));
  button.setAttribute("aria-label", said);
  button.title = said;
}

function control(icon, said, name) {
  const button = element("button", name);
  button.type = "button";
  button.tabIndex = -1;
  setIcon(button, icon, said);
  return button;
}

export function createFrame(root) {
  const part = {
    title: element("div", "ddg-title"), headline: element("div", "ddg-headline"), subtitle: element("span"),
    comparison: element("span", "ddg-beside"), play: control("play", "Play", "ddg-play"),
    back: control("back", "One pass back", "ddg-step"), on: control("on", "One pass on", "ddg-step"),
    line: node("svg", { class: "ddg-line", "aria-hidden": "true" }), speed: element("button", "ddg-speed"),
    loop: control("loop", "Play again and again", "ddg-step"), out: control("out", "Smaller", "ddg-step"),
    in: control("in", "Larger", "ddg-step"), graph: control("graph", "Arcs", "ddg-step"), search: element("input", "ddg-search"),
    progress: element("span", "ddg-progress"), words: element("div", "ddg-words"), canvas: element("canvas"),
    stage: element("div", "ddg-stage"), spread: element("div"), scroll: element("div", "ddg-scroll"),
    notice: element("div", "ddg-notice"), name: element("b"), said: element("span"), beyond: element("div", "ddg-beyond"), legend: element("div", "ddg-legend"),
    tip: element("div", "ddg-tip"), live: element("div", "ddg-aside"), table: element("div", "ddg-aside"),
  };
  Object.assign(part.speed, { type: "button", tabIndex: -1, title: "Speed" });
  Object.assign(part.search, { type: "search", tabIndex: -1, placeholder: "find", title: "Find a token; Enter goes to the next" });
  part.search.setAttribute("aria-label", "Find a token");
  part.words.hidden = true;
  part.scroll.tabIndex = -1;
  part.tip.hidden = true;
  part.live.setAttribute("aria-live", "polite");
  part.notice.setAttribute("role", "alert");
  part.spread.append(part.stage);
  part.stage.append(part.canvas);
  part.scroll.append(part.spread);
  root.replaceChildren(
    element("div", "ddg-head", [part.title, part.headline]),
    element("div", "ddg-head ddg-sub", [part.subtitle, part.comparison]),
    part.notice, element("div", "ddg-player", [
      part.play, part.back, part.on, part.line, part.speed, part.loop, part.graph, part.out, part.in, part.search]),
    part.scroll, part.words, element("div", "ddg-caption", [element("span", "", [part.name, " ", part.said]), part.progress]), part.beyond, part.legend, part.tip, part.live,
    part.table);
  return part;
}

export function writeHead(part, model, words, shown) {
  for (const name of ["title", "headline", "subtitle", "comparison", "beyond"]) part[name].textContent = words[name] || "";
  const [said, progress] = (shown > 0 && words.passes[shown - 1]) || [];
  const none = model.finished ? "The run made no pass." : "Waiting for the first pass.";
  part.name.textContent = shown > 0 ? passName(model, shown - 1) : "";
  part.said.textContent = said || (model.rows.length ? "Before the first pass." : none);
  part.progress.textContent = progress || "";
}

export function drawLine(line, total, shown) {
  const width = line.clientWidth || 300;
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
  const head = element("b");
  head.textContent = `Cluster ${cluster}${size && ` · ${size}`}`;
  const list = element("span");
  list.textContent = words;
  host.replaceChildren(head, list);
}

const path = (d, attributes) => node("path", { d, fill: "none", stroke: "var(--ddg-muted)", "stroke-width": 1.6, ...attributes });
const TEAL = { stroke: "var(--ddg-settled)", "stroke-width": 2 };

function laneLegend(model) {
  const nodes = lattice(model).flat();
  const dashed = { x: 1, y: 1, width: 16, height: 13, rx: 4, fill: "none", stroke: "var(--ddg-muted)" };
  return [
    [true, "the best hypothesis", path("M-2 5C8 5 8 11 20 11", TEAL)],
    [nodes.some((item) => !item.best), "another hypothesis, with its score", node("rect", { ...dashed, "stroke-dasharray": "2.5 3" })],
    [nodes.some((item) => item.finished && !item.best), "finished", node("rect", dashed)],
  ];
}

function marksLegend(guesses) {
  const mark = (name, right) => path(SHAPES[name] || SHAPES.other, {
    transform: "translate(5 4)", fill: right ? "var(--ddg-ink)" : "none", stroke: "var(--ddg-ink)", "stroke-width": 0.9,
  });
  const found = [...guesses.keys()].sort().map((name) => [
    true, name.includes("ngram") || name.includes("lexicon") ? `drafted by ${origin(name)}` : origin(name), mark(name, guesses.get(name)),
  ]);
  return found.length ? [...found, [true, "filled: the pass kept the draft", mark("other", true)]] : [];
}

export function writeLegend(legend, model, { kinds, moved, continues, open, guesses }, graph, differ) {
  const box = { x: 1, y: 1, width: 16, height: 13, rx: 4 };
  const filled = { ...box, fill: "var(--ddg-settled)" };
  const grid = () => [
    [kinds.has("settled"), "settled", node("rect", { ...filled, "fill-opacity": 0.2 })],
    [kinds.has("new"), "settled in this pass",
      node("rect", { ...filled, "fill-opacity": 0.44, stroke: "var(--ddg-accent)", "stroke-width": 1.8 })],
    [kinds.has("draft"), "draft", node("rect", { ...box, fill: "none", stroke: "var(--ddg-muted)", "stroke-dasharray": "2.5 3" })],
    [kinds.has("masked"), open ? "open" : "masked again",
      path("M1 6l5 -5M1 10l9 -9M17 9l-5 5M17 5l-9 9", { "stroke-width": 1 })],
    [moved, "draft changed since the last pass", path("M4 6l5 5l5 -5", { stroke: "var(--ddg-accent)" })],
    ...marksLegend(guesses),
    [continues, "continues the word", path("M5 8h7")],
    [blocks(model).some((block) => block.end_column - block.column > 1), "computed together",
      node("rect", { x: -1, y: 0, width: 20, height: 15, rx: 5, fill: "none", stroke: "var(--ddg-muted)", "stroke-opacity": 0.55 })],
    [edges(model, model.rows.length, graph).length > 0, meaning(model, graph), path("M-2 13C2 2 16 2 20 13", TEAL)],
  ];
  const entries = [
    ...(model.beam ? laneLegend(model) : grid()),
    [differ, "differs from the other run", path("M4 6h10m-10 4h10m-2.5 -6.5l-5 9", { stroke: "var(--ddg-accent)" })],
  ];
  legend.replaceChildren(
    ...entries.filter(([present]) => present).map(([, said, shape]) => {
      const entry = element("span", "", [node("svg", { width: 18, height: 15, "aria-hidden": "true" }, [shape])]);
      entry.append(said);
      return entry;
    }));
}

export function writeTable(host, model, shown) {
  const table = element("table");
  const limit = Math.min(40, columnCount(model));
  for (let row = Math.max(0, shown - 40); row < shown; row++) {
    const head = element("th");
    head.scope = "row";
    head.textContent = passName(model, row);
    const line = element("tr", "", [head]);
    for (let column = 0; column < limit; column++) {
      const item = cell(model, row, column);
      const place = element("td");
      place.textContent = item.kind === "empty" ? "" : `${item.text || "open"}, ${item.kind === "new" ? "settled now" : item.kind}`;
      line.append(place);
    }
    table.append(line);
  }
  host.replaceChildren(table);
}
