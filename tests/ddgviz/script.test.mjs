// Run by test_script.py beside the joined script and what Python made of the same traces.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import * as picture from "./picture.mjs";

const given = JSON.parse(readFileSync("given.json", "utf8"));

function seen(model) {
  const rows = model.rows.map((_, row) => row);
  const columns = Array.from({ length: picture.columnCount(model) }, (_, column) => column);
  return {
    cells: rows.map((row) => columns.map((column) => picture.cell(model, row, column)).map((c) =>
      [c.kind, c.token, c.text, c.continues, c.probability, c.margin, c.draft, c.origin, c.moved, c.guess])),
    edges: [...rows, rows.length].map((upto) => picture.edges(model, upto).map((e) => [e.source, e.target, e.strength])),
    order: [...rows, rows.length].map((upto) => picture.edges(model, upto, "order").map((e) => [e.source, e.target])),
    blocks: picture.blocks(model).map((b) => [b.row, b.end_row, b.column, b.end_column]),
    lattice: model.beam ? picture.lattice(model).map((nodes) =>
      nodes.map((n) => [n.token, n.text, n.score, n.parent, n.finished, n.best])) : [],
    picks: [...rows, rows.length].map((upto) =>
      picture.picks(model, upto).map((p) => [p.column, p.cluster, p.active, p.settled])),
    clusters: picture.clusterRows(model),
    lanes: Array.from({ length: 25 }, (_, index) => picture.laneName(index)),
    pills: [picture.layers(model, rows.length).map((layer) => picture.pills(model, layer.columns))],
  };
}

given.cases.forEach(({ trace, words, events, seen: expected }, index) => {
  test(`trace ${index} reads as in Python`, () => assert.deepEqual(seen(picture.fromTrace(trace, false, words)), expected));
  test(`trace ${index} streams to the same grid`, () => {
    const model = events.reduce((state, event) => picture.append(state, event), picture.emptyModel());
    picture.teach(model, words);
    assert.deepEqual(seen(model), expected);
  });
});

const KEYS = ["call", "slots", "drafts", "tokens", "status", "origins", "lanes", "probabilities", "margins", "num_active", "cluster"];
const rounded = (row) => Object.fromEntries(KEYS.map((key) => {
  const floats = ["probabilities", "margins"].includes(key) && row[key];
  return [key, floats ? floats.map((value) => (value === null ? null : Math.fround(value))) : row[key]];
}));

given.packed.forEach(({ rows, records, bytes }, index) => {
  test(`packed passes ${index} arrive as they were`, () => {
    const padded = Buffer.concat([Buffer.from("odd"), Buffer.from(bytes, "base64")]);
    const take = picture.reader(new DataView(padded.buffer, padded.byteOffset + 3, padded.length - 3));
    assert.deepEqual(records.map((record) => rounded(picture.unpack(record, take))), rows.map(rounded));
  });
});

test("a run in progress reads as in Python", () => {
  assert.deepEqual(seen(picture.fromTrace(given.half.trace, true, given.half.words)), given.half.seen);
});

test("a grid that forgets is noticed", () => {
  const model = picture.fromTrace(given.cases[0].trace, false, given.cases[0].words);
  model.settled.clear();
  assert.notDeepEqual(seen(model), given.cases[0].seen);
});

function feedOf(sealedState) {
  const got = { loads: 0, events: [] };
  const view = { load: () => (got.loads += 1), receive: (events) => got.events.push(...events) };
  return { got, feed: picture.createFeed(view, () => sealedState) };
}

const message = (seq, ...events) => ({ k: "rows", seq, events, words: { passes: { [seq]: ["said", ""] }, labels: {} } });

test("words of bundled messages are kept", () => {
  const got = [];
  const feed = picture.createFeed({ load() {}, receive: (_, words) => got.push(Object.keys(words.passes)) }, () => ({ seq: 0 }));
  feed.sealed();
  feed.message(message(2, "b"));
  feed.message(message(1, "a"));
  assert.deepEqual(got, [["1", "2"]]);
});

test("events in order pass through, repeats are dropped", () => {
  const { got, feed } = feedOf({ seq: 0, trace: null });
  feed.sealed();
  feed.message(message(1, "a", "b"));
  feed.message(message(2, "b", "c"));
  feed.message({ other: true });
  assert.deepEqual(got, { loads: 1, events: ["a", "b", "c"] });
});

test("an event that comes early waits", () => {
  const { got, feed } = feedOf({ seq: 0, trace: null });
  feed.sealed();
  feed.message(message(2, "b"));
  assert.deepEqual(got.events, []);
  feed.message(message(1, "a"));
  assert.deepEqual(got.events, ["a", "b"]);
});

test("a late view begins with the sealed trace", () => {
  const state = { seq: 5, trace: null };
  const { got, feed } = feedOf(state);
  feed.sealed();
  feed.message(message(4, "old", "old", "new"));
  assert.deepEqual(got.events, ["new"]);
  feed.message(message(9, "far"));
  Object.assign(state, { seq: 8 });
  feed.sealed();
  assert.deepEqual([got.loads, got.events], [2, ["new", "far"]]);
});
