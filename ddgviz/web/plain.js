// Text as text: a line that says something, and a fold with code and a button that copies it.

import { copyButton } from "./copy.js";

function made(tag, name, text = "") {
  const element = document.createElement(tag);
  element.className = name;
  element.textContent = text;
  return element;
}

function fold(text) {
  const body = made("details", "ddg-code");
  const button = copyButton("Copy", () => text.textContent);
  const block = made("div", "ddg-block");
  block.append(button, text);
  body.append(made("summary", "", "Python for this view"), block);
  for (const name of ["keydown", "keypress"]) body.addEventListener(name, (event) => event.stopPropagation());
  return body;
}

function render({ model, el }) {
  const code = model.get("kind") === "code";
  const text = made(code ? "pre" : "div", code ? "" : `ddg-say ddg-${model.get("kind")}`);
  if (!code) text.setAttribute("aria-live", "polite");
  const write = () => {
    text.textContent = model.get("value");
    el.hidden = !code && !text.textContent;
  };
  model.on("change:value", write);
  write();
  el.append(code ? fold(text) : text);
  return () => model.off("change:value", write);
}

export default { render };
