// Builds the parts around the stage: heading, player, caption, legend, tooltip and the table for screen readers.

import { beyond, caption, cell, columnCount, comparison, edges, headline, meaning, passName, title } from "./model.js";
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
    beside: element("span", "ddg-beside"), play: control("play", "Play", "ddg-play"),
    back: control("back", "One pass back", "ddg-step"), on: control("on", "One pass on", "ddg-step"),
    line: node("svg", { class: "ddg-line", "aria-hidden": "true" }), canvas: element("canvas"),
    stage: element("div", "ddg-stage"), spread: element("div"), scroll: element("div", "ddg-scroll"),
    notice: element("div", "ddg-notice"), name: element("b"), said: element("span"), beyond: element("div", "ddg-beyond"), legend: element("div", "ddg-legend"),
    tip: element("div", "ddg-tip"), live: element("div", "ddg-aside"), table: element("div", "ddg-aside"),
  };
  part.scroll.tabIndex = -1;
  part.tip.hidden = true;
  part.live.setAttribute("aria-live", "polite");
  part.notice.setAttribute("role", "alert");
  part.spread.append(part.stage);
  part.stage.append(part.canvas);
  part.scroll.append(part.spread);
  root.replaceChildren(
    element("div", "ddg-head", [part.title, part.headline]),
    element("div", "ddg-head ddg-sub", [part.subtitle, part.beside]),
    part.notice, element("div", "ddg-player", [part.play, part.back, part.on, part.line]),
    part.scroll, element("div", "ddg-caption", [part.name, part.said]), part.beyond, part.legend, part.tip, part.live,
    part.table);
  return part;
}

export function writeHead(part, model, subtitle, shown) {
  part.title.textContent = title(model);
  part.headline.textContent = headline(model);
  part.subtitle.textContent = subtitle;
  part.beside.textContent = comparison(model);
  part.beyond.textContent = model.rows.length ? beyond(model) : "";
  const some = shown > 0;
  part.name.textContent = some ? passName(model, shown - 1) : "";
  part.said.textContent = some ? caption(model, shown - 1) : model.rows.length ? "Before the first pass." : "Waiting for the first pass.";
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

export function writeLegend(legend, model, { kinds, moved, continues }) {
  const box = { x: 1, y: 1, width: 16, height: 13, rx: 4 };
  const filled = { ...box, fill: "var(--ddg-settled)" };
  const entries = [
    [kinds.has("settled"), "settled", node("rect", { ...filled, "fill-opacity": 0.2 })],
    [kinds.has("new"), "settled in this pass",
      node("rect", { ...filled, "fill-opacity": 0.44, stroke: "var(--ddg-accent)", "stroke-width": 1.8 })],
    [kinds.has("draft"), "draft", node("rect", { ...box, fill: "none", stroke: "var(--ddg-muted)", "stroke-dasharray": "2.5 3" })],
    [kinds.has("masked"), "open", node("circle", { cx: 9, cy: 8, r: 2, fill: "var(--ddg-muted)" })],
    [moved, "draft changed since the last pass",
      node("path", { d: "M4 6l5 5l5 -5", fill: "none", stroke: "var(--ddg-accent)", "stroke-width": 1.6 })],
    [continues, "continues the word", node("path", { d: "M5 8h7", stroke: "var(--ddg-muted)", "stroke-width": 1.6 })],
    [edges(model, model.rows.length).length > 0, meaning(model),
      node("path", { d: "M-2 13C2 2 16 2 20 13", fill: "none", stroke: "var(--ddg-settled)", "stroke-width": 2 })],
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
