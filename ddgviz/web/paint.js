// Draws the cells in view on a canvas; text goes through fillText only.

import { GAP, inView } from "./layout.js";
import { cell, probabilityText } from "./model.js";

const ELLIPSIS = "…";

export function font(colors, size, { bold = false, italic = false } = {}) {
  return `${italic ? "italic " : ""}${bold ? 600 : 400} ${size}px ${colors.font}`;
}

export function fitted(context, text, room) {
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
  context.save();
  context.beginPath();
  context.rect(geo.left - 2, geo.top - 3, Math.max(0, size.width - geo.left - 2), size.height - geo.top + 3);
  context.clip();
  context.textAlign = "center";
  context.textBaseline = "alphabetic";
  context.direction = "ltr";
  const view = inView(geo, scroll, size);
  for (let row = view.first; row < Math.min(view.end, shown); row++) {
    const y = geo.top + row * geo.pitch - scroll.top;
    for (const column of view.columns) {
      const place = geo.places[column];
      drawCell(context, state, cell(model, row, column), geo.left + place.x - scroll.left, y, place.width);
    }
  }
  context.restore();
  context.globalAlpha = 1;
}

function drawCell(context, state, item, x, y, width) {
  const { colors, geo } = state;
  const high = geo.pitch - GAP;
  if (item.kind === "empty") {
    dot(context, colors, x + width / 2, y + high / 2);
    return;
  }
  box(context, colors, item, x, y, width, high);
  const settled = item.kind === "settled" || item.kind === "new";
  const bold = item.kind === "new";
  context.font = font(colors, 12.5, { bold, italic: !settled });
  context.fillStyle = settled ? colors.ink : colors.muted;
  const known = item.probability !== null;
  const baseline = y + (known ? 18 : high / 2 + 4.5);
  const text = item.kind === "masked" ? "·" : fitted(context, item.text, width - 8);
  context.fillText(text, x + width / 2, baseline);
  if (known) {
    context.font = font(colors, 10);
    context.fillStyle = bold ? colors.ink : colors.muted;
    context.fillText(probabilityText(item.probability), x + width / 2, y + 33);
  }
  if (item.continues) tick(context, colors, x, baseline - 4);
  if (item.moved) chevron(context, colors, x + width / 2, y);
}

function box(context, colors, item, x, y, width, high) {
  const sure = item.probability === null ? 0.8 : item.probability;
  context.beginPath();
  if (item.kind === "settled") {
    context.roundRect(x, y, width, high, 6);
    context.fillStyle = colors.settled;
    context.globalAlpha = 0.1 + 0.13 * sure;
    context.fill();
  } else if (item.kind === "new") {
    context.roundRect(x + 0.5, y + 0.5, width - 1, high - 1, 6);
    context.fillStyle = colors.settled;
    context.globalAlpha = 0.26 + 0.22 * sure;
    context.fill();
    context.globalAlpha = 1;
    context.strokeStyle = colors.accent;
    context.lineWidth = 1.8;
    context.stroke();
  } else {
    context.roundRect(x + 0.5, y + 0.5, width - 1, high - 1, 6);
    context.strokeStyle = colors.muted;
    context.globalAlpha = 0.6;
    context.lineWidth = 1;
    context.setLineDash([2.5, 3]);
    context.stroke();
    context.setLineDash([]);
  }
  context.globalAlpha = 1;
}

function dot(context, colors, x, y) {
  context.beginPath();
  context.arc(x, y, 1.6, 0, 2 * Math.PI);
  context.fillStyle = colors.muted;
  context.globalAlpha = 0.45;
  context.fill();
  context.globalAlpha = 1;
}

function tick(context, colors, x, y) {
  context.beginPath();
  context.moveTo(x, y);
  context.lineTo(x + 4, y);
  context.strokeStyle = colors.muted;
  context.lineWidth = 1.4;
  context.stroke();
}

function chevron(context, colors, x, y) {
  context.beginPath();
  context.moveTo(x - 7.5, y + 0.5);
  context.lineTo(x + 7.5, y + 0.5);
  context.strokeStyle = colors.paper;
  context.lineWidth = 3;
  context.stroke();
  context.beginPath();
  context.moveTo(x - 4.5, y - 1.5);
  context.lineTo(x, y + 2.5);
  context.lineTo(x + 4.5, y - 1.5);
  context.strokeStyle = colors.accent;
  context.lineWidth = 1.6;
  context.stroke();
}
