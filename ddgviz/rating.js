// Two outputs side by side and a score for each; Python says what is shown and keeps what is given.

const QUESTION = "How much of the source’s meaning does each output keep?";
const HINT = "Tab moves on, arrows change a score, Enter saves";
const SLOW = 400;

function made(tag, name, text = "", attributes = {}) {
  const element = document.createElement(tag);
  element.className = name;
  element.textContent = text;
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

// The text in parts; those that differ from the other output are marked.
function write(place, segments) {
  place.replaceChildren(...segments.map(([text, differs]) => (differs ? made("mark", "", text) : text)));
}

// An output with its score, which is null until the rater gives one.
function createSide(name, changed) {
  const text = made("p", "ddg-text", "", { dir: "auto" });
  const slider = made("input", "ddg-slider", "", { type: "range", min: 0, max: 100, "aria-label": `${name} score` });
  const number = made("input", "ddg-number", "", {
    type: "text", inputmode: "numeric", maxlength: 3, placeholder: "–", "aria-label": `${name} score as a number`,
  });
  const side = { box: made("section", "ddg-side", "", { "aria-label": `${name} output` }), slider, number, value: null };
  const take = (value) => {
    side.value = value;
    slider.value = value ?? 50;
    slider.style.setProperty("--at", value ?? 0);
    slider.classList.toggle("ddg-unset", value === null);
    slider.setAttribute("aria-valuetext", value === null ? "not rated" : String(value));
    number.removeAttribute("aria-invalid");
    changed();
  };
  side.show = (segments, value) => {
    write(text, segments);
    number.value = value ?? "";
    take(value);
  };
  const slide = () => {
    number.value = slider.value;
    take(Number(slider.value));
  };
  slider.addEventListener("input", slide);
  slider.addEventListener("click", slide);
  number.addEventListener("focus", () => number.select());
  number.addEventListener("input", () => {
    const typed = number.value.trim();
    const valid = /^\d+$/.test(typed) && Number(typed) <= 100;
    take(valid ? Number(typed) : null);
    if (typed && !valid) number.setAttribute("aria-invalid", "true");
  });
  const scale = made("div", "ddg-scale");
  scale.append(made("span", "", "0 none of it"), made("span", "", "100 all of it"));
  const score = made("div", "ddg-score");
  score.append(slider, number, scale);
  side.box.append(made("div", "ddg-label", name), text, score);
  return side;
}

function createPage(root) {
  const part = {
    question: made("div", "ddg-question", QUESTION), count: made("div", "ddg-count", "", { role: "status" }),
    bar: made("div", "ddg-bar", "", { role: "progressbar", "aria-label": "Rated", "aria-valuemin": 0 }),
    source: made("p", "ddg-text ddg-source", "", { dir: "auto" }), reference: made("p", "ddg-text", "", { dir: "auto" }),
    comment: made("input", "ddg-comment", "", { placeholder: "Comment (optional)", "aria-label": "Comment", dir: "auto" }),
    back: made("button", "", "Back", { type: "button" }), hint: made("div", "ddg-hint", HINT, { role: "status" }),
    save: made("button", "ddg-save", "Save and next", { type: "button" }), fold: made("details", "ddg-reference"),
    notice: made("div", "ddg-notice", "", { role: "alert" }), work: made("div", "ddg-work"), done: made("div", "ddg-done"),
  };
  const [head, foot] = [made("div", "ddg-head"), made("div", "ddg-foot")];
  part.sides = made("div", "ddg-sides");
  head.append(part.question, part.count);
  part.fold.append(made("summary", "", "Reference"), part.reference);
  part.work.append(made("div", "ddg-label", "Source"), part.source, part.fold, part.sides, part.comment);
  part.done.append(
    made("p", "ddg-text", "Every pair is rated. Thank you."), made("p", "", "Back leads to earlier pairs. In Python, with the systems named:"),
    made("code", "", "study.table()"), made("code", "", 'study.export("ratings.csv")'),
  );
  foot.append(part.back, part.hint, part.save);
  root.append(head, part.bar, part.notice, part.work, part.done, foot);
  return part;
}

function render({ model, el }) {
  const root = made("div", "ddg-rating", "", { role: "group", "aria-label": "Rating of two outputs" });
  const part = createPage(root);
  const drafts = new Map();
  const now = { place: 0, sent: null, slow: 0 };
  const changed = () => root.classList.toggle("ddg-ready", ready());
  const left = createSide("Left", () => changed());
  const right = createSide("Right", () => changed());
  const sides = [left, right];
  part.sides.append(left.box, right.box);

  function ready() {
    return !now.sent && sides.every(({ value }) => value !== null);
  }

  function ask(message) {
    now.sent = message;
    changed();
    now.slow = setTimeout(() => { part.hint.textContent = "The kernel has not answered yet. Scores stay here until it does."; }, SLOW);
    model.send(message);
  }

  function save() {
    const missing = sides.find(({ value }) => value === null);
    if (now.sent || part.work.hidden) return;
    if (missing) {
      part.hint.textContent = missing.number.value ? "A score is a whole number from 0 to 100" : "Give both outputs a score first";
      (missing.number.value ? missing.number : missing.slider).focus();
      return;
    }
    ask({ k: "save", place: now.place, left: left.value, right: right.value, comment: part.comment.value });
  }

  function back() {
    if (now.sent || now.place === 0) return;
    if (!part.work.hidden) drafts.set(now.place, { scores: sides.map(({ value }) => value), comment: part.comment.value });
    ask({ k: "open", place: now.place - 1 });
  }

  function load() {
    const page = model.get("page");
    const { sent } = now;
    clearTimeout(now.slow);
    now.sent = null;
    part.notice.textContent = page.notice;
    part.hint.textContent = HINT;
    changed();
    if (page.notice) return;
    if (sent && sent.k === "save") drafts.delete(sent.place);
    now.place = page.place;
    const done = page.place === page.total;
    part.work.hidden = part.hint.hidden = part.save.hidden = done;
    part.done.hidden = !done;
    part.question.textContent = done ? "Done" : QUESTION;
    part.count.textContent = `${Math.min(page.place + 1, page.total)} of ${page.total}`;
    part.bar.style.setProperty("--at", page.rated / page.total);
    part.bar.setAttribute("aria-valuemax", page.total);
    part.bar.setAttribute("aria-valuenow", page.rated);
    part.back.disabled = page.place === 0;
    if (!done) fill(page);
    if (sent) (done ? part.back : left.slider).focus({ preventScroll: true });
    if (sent) root.scrollIntoView({ block: "nearest" });
  }

  function fill(page) {
    const { scores, comment } = drafts.get(page.place) || page;
    part.source.textContent = page.source;
    part.reference.textContent = page.reference;
    part.fold.hidden = !page.reference;
    part.fold.open = false;
    part.comment.value = comment;
    sides.forEach((side, index) => side.show(page[["left", "right"][index]], scores ? scores[index] : null));
    if (page.scores) part.hint.textContent = "Rated before: saving replaces the scores";
  }

  root.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.key === "Escape") return;
    event.stopPropagation();
    if (event.key !== "Enter" || event.isComposing || event.target.closest("button, summary")) return;
    event.preventDefault();
    save();
  });
  root.addEventListener("keypress", (event) => event.stopPropagation());
  part.save.addEventListener("click", save);
  part.back.addEventListener("click", back);
  model.on("change:page", load);
  load();
  el.append(root);
  return () => {
    clearTimeout(now.slow);
    model.off("change:page", load);
    root.remove();
  };
}

export default { render };
