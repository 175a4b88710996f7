// Joins a picture to its Python side: the whole trace as a trait, new events as messages numbered in order.

import { reader, unpack } from "./packing.js";
import { mount } from "./widget.js";

const KEPT_WORDS = ["labels", "passes", "shares"];

export function createFeed(view, read) {
  let done = -1;
  const waiting = new Map();
  const release = () => {
    const events = [];
    const words = {};
    while (waiting.has(done + 1)) {
      done += 1;
      const item = waiting.get(done);
      waiting.delete(done);
      events.push(item.event);
      for (const [key, told] of Object.entries(item.words || {})) {
        words[key] = KEPT_WORDS.includes(key) ? { ...words[key], ...told } : told;
      }
    }
    if (events.length) view.receive(events, words);
  };
  return {
    sealed() {
      const { seq, trace, words, running, state } = read();
      if (seq <= done) return;
      done = seq;
      for (const key of waiting.keys()) if (key <= seq) waiting.delete(key);
      view.load(trace, { words, running, view: state });
      release();
    },
    message(content, buffers = []) {
      if (!content || content.k !== "rows") return;
      const take = buffers.length && reader(buffers[0]);
      content.events.forEach((item, index) => {
        const seq = content.seq + index;
        const event = item.event === "iteration" ? { event: item.event, ...unpack(item, take) } : item;
        if (seq > done) waiting.set(seq, { event, words: content.words });
      });
      release();
    },
  };
}

// The trace of a trait: its passes packed apart.
function wholeTrace(model) {
  const trace = JSON.parse(model.get("trace_json") || "null");
  const take = reader(model.get("rows"));
  return trace && { ...trace, iterations: trace.iterations.map((row) => unpack(row, take)) };
}

function render({ model, el }) {
  const view = mount(el, {
    onView(state) {
      model.set("view", state);
      model.save_changes();
    },
  });
  const feed = createFeed(view, () => ({
    seq: model.get("seq"), trace: wholeTrace(model), words: model.get("words"),
    running: model.get("running"), state: model.get("view"),
  }));
  const configured = () =>
    view.configure({ group: model.get("group"), match: model.get("match"), palette: model.get("palette"), twin: model.get("name") });
  const noticed = () => view.setNotice(model.get("notice"), model.get("earlier"));
  const hooks = {
    "change:seq": () => feed.sealed(), "msg:custom": (content, buffers) => feed.message(content, buffers),
    "change:view": () => view.setView(model.get("view")), "change:notice change:earlier": noticed,
    "change:group change:match change:palette": configured,
  };
  const each = (act) => Object.entries(hooks).forEach(([names, hook]) => names.split(" ").forEach((name) => model[act](name, hook)));
  each("on");
  configured();
  feed.sealed();
  noticed();
  return () => {
    each("off");
    view.destroy();
  };
}

export default { render };
