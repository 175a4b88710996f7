// The picture on a page: holds the state, draws on the next frame, and listens to reader and kernel.

import { createFrame, drawLine, element, passAt, setIcon, writeHead, writeLegend, writeTable } from "./frame.js";
import { geometry, hit, survey } from "./layout.js";
import { append, caption, emptyModel, fromTrace, newColumns, passName, visible } from "./model.js";
import { font, paint } from "./paint.js";
import { createScene, describe, drawMarks, drawScene } from "./scene.js";
import { calm, colorsOf, followTheme } from "./theme.js";

const TALLEST = 760;
const PACE = 333;
const WHOLE_RUN = 8000;
const QUIET = 250;
const EDGE = 40;

export function mount(host, options = {}) {
  const root = element("div", "ddgviz");
  root.tabIndex = 0;
  root.setAttribute("role", "group");
  root.setAttribute("aria-label", "Decoding, pass by pass. Space plays, brackets step, arrows move between tokens.");
  host.append(root);
  const view = new View(root, options.onView || (() => {}));
  view.start();
  return view;
}

class View {
  constructor(root, onView) {
    Object.assign(this, { root, onView, model: emptyModel(), subtitle: "", shown: 0, playing: false, stale: true });
    Object.assign(this, { hot: null, focus: null, focused: false, frame: 0, timer: 0, geo: null, told: "" });
    this.part = createFrame(root);
    this.scene = createScene();
    this.part.stage.append(this.scene.svg);
    this.context = this.part.canvas.getContext("2d");
    this.stops = new AbortController();
  }

  start() {
    const on = (target, name, handler) => target.addEventListener(name, handler, { signal: this.stops.signal });
    const { play, back, on: forward, line, scroll, stage } = this.part;
    on(play, "click", () => this.toggle());
    on(back, "click", () => this.step(-1));
    on(forward, "click", () => this.step(1));
    on(line, "pointerdown", (event) => {
      line.setPointerCapture(event.pointerId);
      this.goTo(passAt(line, this.model.rows.length, event.clientX));
    });
    on(line, "pointermove", (event) => {
      if (event.buttons) this.goTo(passAt(line, this.model.rows.length, event.clientX));
    });
    on(scroll, "scroll", () => this.draw());
    on(stage, "pointermove", (event) => this.hover(event));
    on(stage, "pointerleave", () => this.leave());
    on(stage, "click", (event) => this.pin(event));
    on(this.root, "keydown", (event) => this.key(event));
    on(this.root, "focus", () => this.setFocused(true));
    on(this.root, "blur", () => this.setFocused(false));
    this.resize = new ResizeObserver(() => this.draw(true));
    this.resize.observe(this.root);
    this.forget = followTheme(this.root, () => this.draw(true));
  }

  destroy() {
    this.stops.abort();
    this.resize.disconnect();
    this.forget();
    clearTimeout(this.timer);
    clearTimeout(this.idle);
    cancelAnimationFrame(this.frame);
    this.root.remove();
  }

  load(trace, { subtitle = "", running = false, view = {} } = {}) {
    if (!running) Object.assign(this, { shown: 0, focus: null, hot: null, held: false });
    this.model = fromTrace(trace, running);
    this.subtitle = subtitle;
    this.shown = Math.min(this.shown, this.model.rows.length);
    if (Number.isInteger(view.pass)) this.setView(view);
    else if (!this.playing) this.follow();
    this.draw(true);
  }

  receive(events, subtitle) {
    if (subtitle) this.subtitle = subtitle;
    for (const event of events) {
      const fresh = event.event === "start";
      this.model = append(this.model, event);
      if (fresh) Object.assign(this, { shown: 0, focus: null, hot: null, held: false });
    }
    this.follow();
    this.draw(true);
  }

  follow() {
    if (this.held) return;
    if (calm()) this.shown = this.model.rows.length;
    else this.setPlaying(this.model.rows.length > 0);
  }

  setPlaying(playing) {
    if (playing && !this.timer) this.timer = setTimeout(() => this.tick(), Math.min(PACE, 120));
    if (!playing) {
      clearTimeout(this.timer);
      this.timer = 0;
    }
    this.playing = playing;
    this.draw();
  }

  tick() {
    this.timer = 0;
    const total = this.model.rows.length;
    if (this.shown < total) {
      this.shown += 1;
      this.followNewest();
    }
    if (this.shown >= total) {
      this.setPlaying(false);
      if (this.model.finished) this.tell();
    } else {
      this.timer = setTimeout(() => this.tick(), Math.max(60, Math.min(PACE, WHOLE_RUN / total)));
    }
    this.draw();
  }

  toggle() {
    this.held = this.playing;
    if (!this.playing && this.shown >= this.model.rows.length) this.shown = 0;
    this.setPlaying(!this.playing && this.model.rows.length > 0);
    this.tell();
  }

  goTo(pass) {
    this.held = true;
    this.setPlaying(false);
    this.shown = Math.max(0, Math.min(this.model.rows.length, pass));
    if (this.focus && this.shown > 0) this.focus = { ...this.focus, row: this.shown - 1 };
    this.tell();
    this.draw();
  }

  step(by) {
    this.goTo(this.shown + by);
    if (this.shown < 1) return;
    this.followNewest();
    this.say(`${passName(this.model, this.shown - 1)} ${caption(this.model, this.shown - 1)}`);
  }

  setView(view) {
    if (JSON.stringify(view) === this.told || !Number.isInteger(view.pass)) return;
    this.told = JSON.stringify(view);
    this.held = true;
    clearTimeout(this.timer);
    Object.assign(this, { timer: 0, playing: false });
    this.shown = Math.max(0, Math.min(this.model.rows.length, view.pass));
    this.focus = Number.isInteger(view.row) ? { row: view.row, column: view.column } : null;
    this.hot = this.focus ? this.focus.column : null;
    this.draw();
  }

  setNotice(text) {
    this.part.notice.textContent = visible(text);
  }

  tell() {
    const view = { pass: this.shown, ...(this.focus || {}) };
    const said = JSON.stringify(view);
    if (said === this.told) return;
    this.told = said;
    this.onView(view);
  }

  say(text) {
    this.part.live.textContent = text;
  }

  hover(event) {
    const box = this.part.stage.getBoundingClientRect();
    const state = this.state();
    const found = hit(state.geo, this.model, this.shown, state.scroll, event.clientX - box.left, event.clientY - box.top);
    const column = found ? found.column : null;
    if (column !== this.hot) {
      this.hot = column;
      this.draw();
    }
    if (found && found.row !== null) this.showTip(found, event.clientX, event.clientY);
    else this.part.tip.hidden = true;
    return found;
  }

  showTip(place, clientX, clientY) {
    const { tip } = this.part;
    const { head, lines } = describe(this.model, place.row, place.column);
    const bold = element("b");
    bold.textContent = head;
    const rest = lines.map((line) => {
      const made = element("div");
      made.textContent = line;
      return made;
    });
    tip.replaceChildren(bold, ...rest);
    tip.hidden = false;
    const box = this.root.getBoundingClientRect();
    const x = Math.min(clientX - box.left + 14, box.width - tip.offsetWidth - 8);
    const below = clientY + 18 + tip.offsetHeight < innerHeight;
    tip.style.left = `${Math.max(4, x)}px`;
    tip.style.top = `${clientY - box.top + (below ? 16 : -tip.offsetHeight - 12)}px`;
  }

  leave() {
    this.hot = this.focus && this.focused ? this.focus.column : null;
    this.part.tip.hidden = true;
    this.draw();
  }

  pin(event) {
    const found = this.hover(event);
    if (!found || found.row === null) return;
    this.focus = found;
    this.tell();
    this.draw();
  }

  setFocused(focused) {
    this.focused = focused;
    if (!focused) this.hot = null;
    this.draw();
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.key === "Tab") return;
    if (event.key === "Escape") {
      this.part.tip.hidden = true;
      return;
    }
    event.stopPropagation();
    const acts = {
      " ": () => this.toggle(), "[": () => this.step(-1), "]": () => this.step(1), Home: () => this.goTo(0),
      End: () => this.goTo(this.model.rows.length), ArrowLeft: () => this.move(0, -1), ArrowRight: () => this.move(0, 1),
      ArrowUp: () => this.move(-1, 0), ArrowDown: () => this.move(1, 0),
    };
    if (!acts[event.key]) return;
    event.preventDefault();
    acts[event.key]();
  }

  move(rows, columns) {
    const { geo } = this.state();
    if (!this.shown || !geo.places.length) return;
    const within = (value, end) => Math.max(0, Math.min(end - 1, value));
    const from = this.focus || { row: this.shown - 1 - rows, column: -columns };
    this.focus = { row: within(from.row + rows, this.shown), column: within(from.column + columns, geo.places.length) };
    this.hot = this.focus.column;
    this.reveal(geo, this.focus);
    const { head, lines } = describe(this.model, this.focus.row, this.focus.column);
    this.say(`${head}. ${lines.join(", ")}.`);
    this.tell();
    this.draw();
  }

  followNewest() {
    const { geo } = this.state();
    const columns = newColumns(this.model, this.shown - 1);
    const column = columns.length ? columns[columns.length - 1] : 0;
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
      this.colors = colorsOf(this.root);
      const measure = (text, bold) => {
        this.context.font = font(this.colors, 12.5, { bold });
        return this.context.measureText(text).width;
      };
      this.survey = survey(this.model, this.survey, measure);
      this.geo = geometry(this.model, { width }, this.survey.natural);
      writeLegend(this.part.legend, this.model, this.survey);
      this.tabled = -1;
    }
    return {
      model: this.model, geo: this.geo, colors: this.colors, shown: this.shown, hot: this.hot, focus: this.focus,
      focused: this.focused, ratio: devicePixelRatio || 1, size: { width, height: Math.min(TALLEST, this.geo.height) },
      scroll: { left: scroll.scrollLeft, top: scroll.scrollTop },
    };
  }

  drawNow() {
    this.frame = 0;
    const state = this.state();
    const { part } = this;
    const { geo, size, ratio } = state;
    part.spread.style.width = `${Math.max(size.width, geo.width)}px`;
    part.spread.style.height = `${geo.height}px`;
    part.stage.style.width = `${size.width}px`;
    part.stage.style.height = `${size.height}px`;
    const [wide, high] = [Math.round(size.width * ratio), Math.round(size.height * ratio)];
    if (part.canvas.width !== wide || part.canvas.height !== high) {
      Object.assign(part.canvas, { width: wide, height: high });
      part.canvas.style.width = `${size.width}px`;
      part.canvas.style.height = `${size.height}px`;
    }
    paint(this.context, state);
    drawScene(this.scene, state, this.context);
    drawMarks(this.scene, state);
    writeHead(part, this.model, this.subtitle, this.shown);
    drawLine(part.line, this.model.rows.length, this.shown);
    setIcon(part.play, this.playing ? "pause" : "play", this.playing ? "Pause" : "Play");
    this.root.dataset.pass = this.shown;
    this.root.dataset.passes = this.model.rows.length;
    if (this.tabled === this.shown) return;
    this.tabled = this.shown;
    clearTimeout(this.idle);
    this.idle = setTimeout(() => writeTable(part.table, this.model, this.shown), QUIET);
  }
}
