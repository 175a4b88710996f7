// A guided walk through a picture: each step says something and moves the view to where it can be seen.

import { element } from "./frame.js";
import { mount } from "./widget.js";

export function mountTour(host, { trace, words, steps }) {
  const said = element("p", "ddg-step");
  const place = element("span", "ddg-count");
  const [back, next] = ["Back", "Next"].map((name) => Object.assign(element("button", "ddg-copy", [name]), { type: "button" }));
  const box = element("div");
  said.ariaLive = "polite";
  host.append(element("div", "ddg-tour", [said, back, next, place]), box);
  const picture = mount(box);
  picture.load(trace, { words, view: steps[0].view });
  let at = 0;
  const go = (to) => {
    at = Math.max(0, Math.min(steps.length - 1, to));
    said.textContent = steps[at].text;
    place.textContent = `${at + 1} of ${steps.length}`;
    back.disabled = at === 0;
    next.disabled = at === steps.length - 1;
    picture.setView(steps[at].view);
  };
  back.addEventListener("click", () => go(at - 1));
  next.addEventListener("click", () => go(at + 1));
  go(0);
  return () => picture.destroy();
}

function render({ model, el }) {
  return mountTour(el, model.get("tour"));
}

export default { render };
