// The picture on a page: holds the state, draws on the next frame, and listens to reader and kernel.

import { createFrame, drawLine, element, passAt, setIcon, writeHead, writeLegend, writeTable, writeWords } from "./frame.js";
import { columnAt, geometry, hit, survey } from "./layout.js";
import { link } from "./link.js";
import { append, cell, columnCount, edgeKind, edges, emptyModel, fromTrace, lattice, newColumns, teach } from "./model.js";
import { paint, useFont } from "./paint.js";
import { createScene, describe, drawScene } from "./scene.js";
import { calm, colorsOf, followTheme } from "./theme.js";

const PACE = 333;
const WHOLE_RUN = 8000;
const REST = 1400;
const FADE = 160;
const QUIET = 250;
const EDGE = 40;
const TALLEST = 760;
const SPEEDS = [1, 2, 4, 0.5];
const ZOOMS = [0.07, 0.1, 0.15, 0.25, 0.35, 0.5, 0.7, 0.85, 1, 1.25, 1.5];
const FRESH = { focus: null, hot: null, over: null };
const NO_WORDS = { passes: {} };
const PLAIN_VIEW = { graph: "auto", zoom: 0, brush: null, find: "", cluster: null, speed: 1, loop: false };
const SANE = {
  graph: (value) => ["measured", "order", "none"].includes(value), zoom: (value) => Number.isFinite(value) && value >= 0.05 && value <= 4,
  brush: (value) => Array.isArray(value) && value.every(Number.isInteger) && value[0] >= 0 && value[0] <= value[1],
  find: (value) => typeof value === "string", cluster: Number.isInteger, speed: (value) => SPEEDS.includes(value),
  loop: (value) => value === true,
};

export function mount(host, options = {}) {
  const root = element("div", "ddgviz");
  root.tabIndex = 0;
  root.role = "group";
  root.ariaLabel = "Decoding, pass by pass. Space plays, brackets step, arrows move between tokens, s speed, a arcs.";
  host.append(root);
  const view = new View(root, options.onView || (() => {}));
  view.start();
  return view;
}

class View {
  constructor(root, onView) {
    Object.assign(this, { root, onView, model: emptyModel(), words: NO_WORDS, clock: 0, playing: false, stale: true, ...PLAIN_VIEW });
    Object.assign(this, { ...FRESH, frame: 0, timer: 0, born: 0, geo: null, told: "" });
    Object.assign(this, { group: "", match: [], palette: "auto", peer: { total: 0, natural: [] }, brushing: null });
    this.part = createFrame(root);
    this.scene = createScene();
    this.part.stage.append(this.scene.svg);
    this.context = this.part.canvas.getContext("2d");
    this.stops = new AbortController();
    this.link = link((said) => this.hear(said));
  }

  // Passes shown. The clock may run on for a longer picture of the group.
  get shown() {
    return Math.min(this.clock, this.model.rows.length);
  }

  // Two that are compared are both to be in view.
  get tallest() {
    return this.group ? Math.max(200, Math.min(TALLEST, innerHeight / 2 - 210)) : TALLEST;
  }

  // The token under the cursor, in whose draft's source word the title is lit.
  get lit() {
    const { over, focus, model, shown } = this;
    const { row, column } = over || focus || {};
    if (column === undefined || !shown || model.beam || column >= columnCount(model)) return null;
    return cell(model, Math.min(row ?? shown - 1, shown - 1), column);
  }

  get focused() {
    return this.focus ? this.focus.column : null;
  }

  get total() {
    return Math.max(this.model.rows.length, this.group ? this.peer.total : 0);
  }

  start() {
    const on = (target, name, handler, more = {}) => target.addEventListener(name, handler, { signal: this.stops.signal, ...more });
    const { part } = this;
    const { line, stage, search } = part;
    on(part.play, "click", () => this.toggle());
    on(part.back, "click", () => this.step(-1));
    on(part.on, "click", () => this.step(1));
    on(part.speed, "click", () => this.set({ speed: SPEEDS[(SPEEDS.indexOf(this.speed) + 1) % SPEEDS.length] }));
    on(part.loop, "click", () => this.set({ loop: !this.loop }));
    on(part.graph, "click", () => this.nextGraph());
    on(part.out, "click", () => this.zoomBy(-1));
    on(part.in, "click", () => this.zoomBy(1));
    on(search, "input", () => this.set({ find: search.value.toLowerCase() }));
    on(line, "pointerdown", (event) => {
      line.setPointerCapture(event.pointerId);
      this.seek(event);
    });
    on(line, "pointermove", (event) => {
      if (event.buttons) this.seek(event);
    });
    on(part.scroll, "scroll", () => this.draw());
    on(part.scroll, "wheel", (event) => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      this.zoomBy(event.deltaY < 0 ? 1 : -1);
    }, { passive: false });
    on(stage, "pointerdown", (event) => this.brushFrom(event));
    on(stage, "pointermove", (event) => (this.brushStart ? this.brushTo(event) : this.hover(event)));
    on(stage, "pointerup", () => this.brushEnd(this.brushing));
    on(stage, "pointercancel", () => this.brushEnd(null, null));
    on(stage, "pointerleave", () => this.leave());
    on(stage, "dblclick", () => this.set({ brush: null }));
    on(this.root, "keydown", (event) => this.key(event));
    on(this.root, "focusout", () => (part.tip.hidden = true));
    this.resize = new ResizeObserver(() => this.draw(true));
    this.resize.observe(this.root);
    // the line becomes shorter where a button appears beside it
    this.resize.observe(this.part.line);
    this.theme = followTheme(this.root, () => this.palette, () => this.draw(true));
  }

  destroy() {
    this.stops.abort();
    this.resize.disconnect();
    this.theme.stop();
    this.link.stop();
    clearTimeout(this.timer);
    clearTimeout(this.idle);
    cancelAnimationFrame(this.frame);
    this.root.remove();
  }

  configure({ group = "", match = [], palette = "auto", twin = "" }) {
    Object.assign(this, { group, match, palette, twin });
    this.theme.apply();
    this.draw(true);
  }

  // What the other pictures of the group should know: the cursor, and the pass while this one leads.
  share(more = {}) {
    if (this.group) this.link.say({ group: this.group, twin: this.twin, total: this.model.rows.length, playing: this.playing, ...more });
  }

  hear({ id, group, total, playing, hot, pass, natural, twin, over }) {
    if (group !== this.group || !group) return;
    this.peer.total = total;
    if (natural && this.match.every((column, index) => column === index)) Object.assign(this.peer, { natural });
    if (hot !== undefined) {
      const found = hot === null ? -1 : this.match.length && twin !== this.twin ? this.match.indexOf(hot) : hot;
      this.hot = this.geo && this.geo.places[found] ? found : this.focused;
    }
    if (pass !== undefined && !(this.playing && playing && this.link.id < id)) {
      if (this.playing) this.halt();
      this.clock = pass;
      this.held = true;
      if (over) this.rest();
      else if (this.shown) this.followNewest();
      if (!playing) this.tell();
    }
    this.draw(natural !== undefined);
  }

  load(trace, { words = NO_WORDS, running = false, view = {} } = {}) {
    if (!running) Object.assign(this, { ...FRESH, clock: 0, held: false, told: "" });
    this.model = fromTrace(trace, running, words);
    this.words = words;
    this.clock = Math.min(this.clock, this.total);
    this.setView(view);
    if (!Number.isInteger(view.pass) && !this.playing) this.follow();
    this.share();
    this.draw(true);
  }

  receive(events, words) {
    for (const event of events) {
      const fresh = event.event === "start";
      this.model = append(this.model, event);
      if (fresh || this.model.right) Object.assign(this, FRESH);
      if (fresh) Object.assign(this, { clock: 0, held: false, brush: null, cluster: null, words: NO_WORDS });
    }
    teach(this.model, words);
    this.words = { ...this.words, ...words, passes: { ...this.words.passes, ...words.passes } };
    this.share();
    this.draw(true);
    this.follow();
  }

  follow() {
    if (this.held) return;
    if (calm()) this.clock = this.model.rows.length;
    else this.setPlaying(this.model.rows.length > 0);
  }

  get interval() {
    return Math.max(60, Math.min(PACE, WHOLE_RUN / Math.max(1, this.total))) / this.speed;
  }

  halt() {
    clearTimeout(this.timer);
    Object.assign(this, { timer: 0, playing: false });
  }

  setPlaying(playing) {
    if (playing && !this.clock && !this.model.finished) {
      // The first pass of a run that is under way is shown as soon as it comes.
      this.playing = true;
      this.tick();
      return;
    }
    if (playing && !this.timer) this.timer = setTimeout(() => this.tick(), Math.min(this.interval, 120));
    if (!playing) this.halt();
    this.playing = playing;
    this.draw();
  }

  tick() {
    this.timer = 0;
    if (this.clock < this.total) {
      this.clock += 1;
      if (this.interval > 120 && !calm()) this.born = performance.now();
      if (this.clock <= this.model.rows.length) this.followNewest();
    }
    const over = this.clock >= this.total;
    const again = this.loop && this.model.finished;
    if (!over || again) {
      this.timer = setTimeout(() => (over ? this.restart() : this.tick()), over ? REST : this.interval);
    } else {
      this.setPlaying(false);
      if (this.model.finished) this.rest();
    }
    this.share({ pass: this.clock, over: over && !again });
    this.draw();
  }

  // Played to the end, a picture that scrolls is seen from its beginning again.
  rest() {
    this.part.scroll.scrollTo({ left: 0, top: 0, behavior: calm() ? "instant" : "smooth" });
    this.tell();
  }

  restart() {
    Object.assign(this, { timer: 0, clock: 0 });
    this.setPlaying(true);
  }

  toggle() {
    this.held = this.playing;
    if (!this.playing && this.clock >= this.total) this.clock = 0;
    this.setPlaying(!this.playing && this.total > 0);
    this.tell();
    this.share({ pass: this.clock });
  }

  goTo(pass) {
    this.held = true;
    this.setPlaying(false);
    this.clock = Math.max(0, Math.min(this.total, pass));
    if (this.focus && this.shown > 0 && !this.model.beam) this.focus = this.over = { ...this.focus, row: this.shown - 1 };
    this.tell();
    this.share({ pass: this.clock });
    this.draw();
  }

  seek(event) {
    this.goTo(passAt(this.part.line, this.model.rows.length, event.clientX));
  }

  step(by) {
    this.goTo(this.clock + by);
    if (this.shown < 1) return;
    this.followNewest();
    const { name, said } = this.part;
    this.writeHead();
    this.say(`${name.textContent} ${said.textContent}`);
  }

  writeHead() {
    writeHead(this.part, this.model, this.words, this.shown, this.brush, this.lit);
  }

  set(change) {
    Object.assign(this, change);
    this.tell();
    this.draw(true);
  }

  nextGraph() {
    const kinds = this.model.edges.length ? ["measured", "order", "none"] : ["order", "none"];
    this.set({ graph: kinds[(kinds.indexOf(edgeKind(this.model, this.graph)) + 1) % kinds.length] });
  }

  zoomBy(by) {
    const now = this.zoom || this.state().geo.type;
    const next = by > 0 ? ZOOMS.find((zoom) => zoom > now + 0.01) : ZOOMS.findLast((zoom) => zoom < now - 0.01);
    if (next) this.set({ zoom: next });
  }

  // The reader's view as a small record; what is as usual is left out.
  view() {
    const changed = Object.entries(PLAIN_VIEW).filter(([key, usual]) => this[key] !== usual).map(([key]) => [key, this[key]]);
    return { pass: this.shown, ...(this.focus || {}), ...Object.fromEntries(changed) };
  }

  setView(view) {
    if (JSON.stringify(view) === this.told) return;
    for (const [key, usual] of Object.entries(PLAIN_VIEW)) this[key] = SANE[key](view[key]) ? view[key] : usual;
    const last = this.model.rows.length;
    if (this.part.search.value.toLowerCase() !== this.find) this.part.search.value = this.find;
    this.find = this.find.toLowerCase();
    this.told = JSON.stringify(view);
    if (Number.isInteger(view.pass)) {
      this.held = true;
      this.halt();
      this.clock = Math.max(0, Math.min(last, view.pass));
      const { row, column } = view;
      this.focus = row >= 0 && column >= 0 && Number.isInteger(row) && Number.isInteger(column) ? { row, column } : null;
      this.hot = this.focused;
      this.share({ pass: this.clock });
    }
    this.draw(true);
  }

  setNotice(text, earlier = false) {
    this.part.notice.textContent = text;
    this.root.toggleAttribute("data-earlier", earlier);
  }

  tell() {
    const view = this.view();
    const said = JSON.stringify(view);
    if (said === this.told) return;
    this.told = said;
    this.onView(view);
  }

  say(text) {
    this.part.live.textContent = text;
  }

  at(event) {
    const box = this.part.stage.getBoundingClientRect();
    const state = this.state();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const { geo, scroll } = state;
    return { geo, y, column: columnAt(geo, scroll, x), found: hit(geo, this.model, this.shown, scroll, x, y) };
  }

  hover(event) {
    const { found, y, geo } = this.at(event);
    this.part.stage.style.cursor = y < geo.top && !found ? "col-resize" : found ? "pointer" : "";
    const column = found ? found.column : this.focused;
    const key = found && `${found.row} ${column}`;
    if (key !== this.overKey || column !== this.hot) {
      Object.assign(this, { hot: column, over: found, overKey: key });
      this.share({ hot: column });
      this.draw();
    }
    if (found && found.row !== null) this.showTip(found, event.clientX, event.clientY);
    else this.part.tip.hidden = true;
  }

  // A drag above the cells chooses positions; without one, a press is a click.
  brushFrom(event) {
    const { geo, y, column, found } = this.at(event);
    this.pressed = found;
    if (y >= geo.top || column === null) return;
    this.brushStart = { column, x: event.clientX };
    this.part.stage.setPointerCapture(event.pointerId);
  }

  brushTo(event) {
    const { column } = this.at(event);
    if (column === null || Math.abs(event.clientX - this.brushStart.x) < 6) return;
    this.brushing = [Math.min(column, this.brushStart.column), Math.max(column, this.brushStart.column)];
    this.draw();
  }

  brushEnd(chosen, pressed = this.pressed) {
    Object.assign(this, { brushStart: null, brushing: null });
    if (chosen) {
      this.set({ brush: chosen });
      const found = Array.from(this.model.rows.keys()).find((row) => newColumns(this.model, row).some((c) => c >= chosen[0]));
      this.reveal(this.state().geo, { row: found || 0, column: chosen[0] });
    }
    if (!chosen && pressed) this.pin(pressed);
    this.pressed = null;
    this.draw();
  }

  // Below or above what is at these places of the window; what the tip says is returned.
  showTip({ row, column }, x, above, below = above) {
    const { tip } = this.part;
    const { head, lines } = describe(this.model, row, column);
    tip.replaceChildren(element("b", "", [head]), ...lines.map((line) => element("div", "", [line])));
    tip.hidden = false;
    const box = this.root.getBoundingClientRect();
    const high = tip.offsetHeight;
    tip.style.left = `${Math.max(4, Math.min(x - box.left + 14, box.width - tip.offsetWidth - 8))}px`;
    tip.style.top = `${(below + 18 + high < innerHeight ? below + 16 : above - high - 12) - box.top}px`;
    return `${head}. ${lines.join(", ")}.`;
  }

  leave() {
    Object.assign(this, { hot: this.focused, over: null, overKey: null });
    this.part.tip.hidden = true;
    this.share({ hot: this.hot });
    this.draw();
  }

  pin({ row, column, cluster }) {
    if (cluster !== undefined) {
      this.set({ cluster: this.cluster === cluster ? null : cluster });
      return;
    }
    const place = { row: row === null ? Math.max(0, this.shown - 1) : row, column };
    const same = this.focus && this.focus.column === column && this.focus.row === place.row;
    this.focus = same ? null : place;
    this.hot = this.focused;
    this.share({ hot: this.hot });
    this.tell();
    this.draw();
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.key === "Tab") return;
    event.stopPropagation();
    const { search, tip } = this.part;
    tip.hidden = true;
    const searching = event.target === search;
    if (event.key === "Escape") {
      search.value = "";
      this.root.focus();
      this.set({ find: "" });
      if (searching) return;
      Object.assign(this, FRESH);
      this.set({ brush: null, cluster: null });
      return;
    }
    if (searching) {
      if (event.key === "Enter") this.findNext();
      return;
    }
    const acts = {
      " ": () => this.toggle(), "[": () => this.step(-1), "]": () => this.step(1), Home: () => this.goTo(0),
      End: () => this.goTo(this.model.rows.length), ArrowLeft: () => this.move(0, -1), ArrowRight: () => this.move(0, 1),
      ArrowUp: () => this.move(-1, 0), ArrowDown: () => this.move(1, 0), "/": () => search.focus(),
      "+": () => this.zoomBy(1), "-": () => this.zoomBy(-1), 0: () => this.set({ zoom: 0 }), l: () => this.set({ loop: !this.loop }),
      s: () => this.part.speed.click(), a: () => this.nextGraph(),
    };
    if (!acts[event.key]) return;
    event.preventDefault();
    acts[event.key]();
  }

  matches() {
    const { places } = this.state().geo;
    if (!this.find || !this.shown) return [];
    const row = this.shown - 1;
    return [...places.keys()].filter((column) => !places[column].hidden && cell(this.model, row, column).text.toLowerCase().includes(this.find));
  }

  findNext() {
    const found = this.matches();
    if (!found.length) return;
    const now = this.focused ?? -1;
    this.focus = { row: this.shown - 1, column: found.find((column) => column > now) ?? found[0] };
    this.move(0, 0);
  }

  move(rows, columns) {
    const { geo } = this.state();
    if (!this.shown || !geo.places.length) return;
    const within = (value, end) => Math.max(0, Math.min(end - 1, value));
    const { beam } = this.model;
    const seen = [...geo.places.keys()].filter((column) => !geo.places[column].hidden && (!beam || column < this.shown));
    if (!seen.length) return;
    const [first, last] = [seen[0], seen.at(-1)];
    const from = this.focus || { row: beam ? 0 : this.shown - 1 - rows, column: first - columns };
    const column = Math.max(first, within(from.column + columns, last + 1));
    this.focus = { row: within(from.row + rows, beam ? lattice(this.model)[column].length : this.shown), column };
    Object.assign(this, { hot: this.focus.column, over: this.focus });
    this.share({ hot: this.hot });
    this.reveal(geo, this.focus);
    const { scroll, stage } = this.part;
    const box = stage.getBoundingClientRect();
    const x = box.left + geo.left + geo.places[column].x - scroll.scrollLeft;
    const y = box.top + geo.top + this.focus.row * geo.pitch - scroll.scrollTop;
    this.say(this.showTip(this.focus, x - 14, y + 6, y + geo.pitch - 14));
    this.tell();
    this.draw();
  }

  followNewest() {
    const { geo } = this.state();
    const columns = newColumns(this.model, this.shown - 1);
    const column = columns.length ? columns.at(-1) : 0;
    if (columns.length && geo.places[column]) this.reveal(geo, { row: this.shown - 1, column });
  }

  reveal(geo, { row, column }) {
    const { scroll } = this.part;
    const place = geo.places[column];
    const right = scroll.clientWidth - geo.left - geo.bars;
    if (place.x < scroll.scrollLeft + EDGE) scroll.scrollLeft = place.x - EDGE;
    if (place.right > scroll.scrollLeft + right - EDGE) scroll.scrollLeft = place.right - right + EDGE;
    const top = row * geo.pitch;
    const high = scroll.clientHeight - geo.top;
    if (top < scroll.scrollTop) scroll.scrollTop = top;
    if (top + geo.pitch > scroll.scrollTop + high) scroll.scrollTop = top + geo.pitch - high;
  }

  draw(stale = false) {
    this.stale = this.stale || stale;
    if (!this.frame) this.frame = requestAnimationFrame(() => this.drawNow());
  }

  state() {
    const { scroll } = this.part;
    const width = Math.max(240, scroll.clientWidth);
    if (this.stale || !this.geo || this.width !== width) {
      this.stale = false;
      this.width = width;
      this.lineWidth = this.part.line.clientWidth;
      this.colors = colorsOf(this.root);
      const measure = (text, bold) => {
        useFont(this.context, this.colors, 12.5, { bold });
        return this.context.measureText(text).width;
      };
      const before = this.survey && this.survey.rows;
      this.survey = survey(this.model, this.survey, measure);
      const { natural } = this.survey;
      if (this.survey.rows !== before) this.share({ natural });
      const wide = this.group ? Array.from(natural, (need, column) => Math.max(need || 0, this.peer.natural[column] || 0)) : natural;
      this.differ = this.match.includes(-1);
      this.geo = geometry(this.model, { width }, wide, this);
      writeLegend(this.part.legend, this.model, this.survey, this.graph, this.differ);
      writeWords(this.part.words, this.words.clusters || {}, this.cluster);
      this.tabled = "";
    }
    // for one frame: the view, and what was measured for it
    return {
      __proto__: this, sizes: this.words.clusters || {}, fade: Math.min(1, (performance.now() - this.born) / FADE),
      ratio: devicePixelRatio || 1, size: { width, height: Math.min(this.tallest, this.geo.height) },
      scroll: { left: scroll.scrollLeft, top: scroll.scrollTop },
    };
  }

  drawNow() {
    this.frame = 0;
    const state = this.state();
    const { part } = this;
    const { geo, size, ratio } = state;
    part.scroll.style.maxHeight = `${this.tallest}px`;
    const cover = ({ style }, width, height) => Object.assign(style, { width: `${width}px`, height: `${height}px` });
    cover(part.spread, Math.max(size.width, geo.width), geo.height);
    cover(part.stage, size.width, size.height);
    const [wide, high] = [Math.round(size.width * ratio), Math.round(size.height * ratio)];
    if (part.canvas.width !== wide || part.canvas.height !== high) {
      Object.assign(part.canvas, { width: wide, height: high });
      cover(part.canvas, size.width, size.height);
    }
    paint(this.context, state);
    drawScene(this.scene, state, this.context);
    this.writeHead();
    drawLine(part.line, this.lineWidth, this.model.rows.length, this.shown);
    this.drawControls();
    this.root.dataset.pass = this.shown;
    this.root.dataset.passes = this.model.rows.length;
    if (state.fade < 1) this.draw();
    const first = Math.max(0, geo.places.findIndex((place) => !place.hidden && place.right > state.scroll.left));
    const tabled = `${this.shown} ${first}`;
    if (this.tabled === tabled) return;
    this.tabled = tabled;
    clearTimeout(this.idle);
    this.idle = setTimeout(() => writeTable(part.table, this.model, this.shown, first), QUIET);
  }

  drawControls() {
    const { part, model } = this;
    const said = `${this.playing} ${this.speed} ${this.loop} ${this.graph} ${this.find} ${model.edges.length} ${this.shown}`;
    if (said === this.controls) return;
    this.controls = said;
    setIcon(part.play, this.playing ? "pause" : "play", this.playing ? "Pause" : "Play");
    part.speed.textContent = `${this.speed}×`;
    part.loop.ariaPressed = this.loop;
    const kind = edgeKind(model, this.graph);
    part.graph.hidden = !model.edges.length && !edges(model, model.rows.length, "order").length;
    part.graph.ariaPressed = kind !== "none";
    part.graph.title = { measured: "Arcs: measured dependencies", order: "Arcs: settling order", none: "Arcs: none" }[kind];
    part.graph.ariaLabel = part.graph.title;
    part.search.classList.toggle("ddg-none", Boolean(this.find) && !this.matches().length);
  }
}
