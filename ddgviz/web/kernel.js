// Joins a picture to its Python side: the whole trace as a trait, new events as messages numbered in order.

import { mount } from "./widget.js";

export function createFeed(view, read) {
  let done = -1;
  const waiting = new Map();
  const release = () => {
    const events = [];
    let words = {};
    while (waiting.has(done + 1)) {
      done += 1;
      const item = waiting.get(done);
      waiting.delete(done);
      events.push(item.event);
      const { labels, passes } = { ...item.words };
      words = { ...words, ...item.words, labels: { ...words.labels, ...labels }, passes: { ...words.passes, ...passes } };
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
    message(content) {
      if (!content || content.k !== "rows") return;
      content.events.forEach((event, index) => {
        const seq = content.seq + index;
        if (seq > done) waiting.set(seq, { event, words: content.words });
      });
      release();
    },
  };
}

function render({ model, el }) {
  const view = mount(el, {
    onView(state) {
      model.set("view", state);
      model.save_changes();
    },
  });
  const feed = createFeed(view, () => ({
    seq: model.get("seq"), trace: JSON.parse(model.get("trace_json") || "null"), words: model.get("words"),
    running: model.get("running"), state: model.get("view"),
  }));
  const sealed = () => feed.sealed();
  const message = (content) => feed.message(content);
  const viewed = () => view.setView(model.get("view"));
  const noticed = () => view.setNotice(model.get("notice"));
  const configured = () =>
    view.configure({ group: model.get("group"), match: model.get("match"), palette: model.get("palette") });
  const places = ["change:group", "change:match", "change:palette"];
  model.on("change:seq", sealed);
  model.on("msg:custom", message);
  model.on("change:view", viewed);
  model.on("change:notice", noticed);
  places.forEach((name) => model.on(name, configured));
  configured();
  sealed();
  noticed();
  return () => {
    model.off("change:seq", sealed);
    model.off("msg:custom", message);
    model.off("change:view", viewed);
    model.off("change:notice", noticed);
    places.forEach((name) => model.off(name, configured));
    view.destroy();
  };
}

export default { render };
