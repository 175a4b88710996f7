// Two decoders on the same sentence against one clock: tokens appear when they did, the gap is told at the end.

import { element } from "./frame.js";
import { followTheme } from "./theme.js";

const LEAD = 500;
const RATES = [[1, "real time"], [0.1, "10 times slower"], [0.01, "100 times slower"]];
const milliseconds = (seconds) => `${(1000 * seconds).toFixed(seconds < 0.1 ? 1 : 0)} ms`;

function lane({ name, tokens }) {
  const words = tokens.map(({ text }) => {
    const word = element("span", "ddg-racer-word", [text]);
    word.hidden = true;
    return word;
  });
  const clock = element("span", "ddg-racer-clock");
  const bar = element("div", "ddg-racer-bar");
  const line = element("p", "ddg-racer-line", words);
  line.dir = "auto";
  const head = element("div", "ddg-racer-head", [element("b", "", [name]), clock]);
  return { words, clock, bar, box: element("section", "ddg-racer", [head, bar, line]) };
}

export function mountRace(host, { title, runners, verdict }) {
  const root = element("div", "ddgviz ddg-race");
  const lanes = runners.map(lane);
  const play = element("button", "ddg-copy", ["Start"]);
  const speed = element("select", "ddg-copy", RATES.map(([value, said]) => Object.assign(element("option", "", [said]), { value })));
  const end = element("p", "ddg-judgement");
  const total = Math.max(...runners.map(({ seconds }) => seconds));
  play.type = "button";
  speed.ariaLabel = "How fast the clock runs";
  speed.value = RATES.findLast(([value]) => total / value <= 12 || value === 1)[0];
  end.ariaLive = "polite";
  root.append(element("div", "ddg-title", [title]), ...lanes.map(({ box }) => box), element("p", "", [play, " ", speed]), end);
  host.append(root);
  const theme = followTheme(root, () => "auto", () => {});
  let frame = 0;
  const draw = (time) => {
    runners.forEach(({ tokens, seconds }, index) => {
      tokens.forEach(({ at }, position) => { lanes[index].words[position].hidden = at > time; });
      lanes[index].bar.style.width = `${(100 * Math.min(time, seconds)) / total}%`;
      lanes[index].clock.textContent = milliseconds(Math.min(time, seconds));
      lanes[index].box.classList.toggle("ddg-arrived", time >= seconds);
    });
    end.textContent = time >= total ? verdict : "";
    root.dataset.time = time;
  };
  const start = () => {
    cancelAnimationFrame(frame);
    const began = performance.now();
    const rate = Number(speed.value);
    const tick = () => {
      const time = ((performance.now() - began) / 1000) * rate;
      draw(Math.min(time, total));
      if (time < total) frame = requestAnimationFrame(tick);
    };
    tick();
  };
  play.addEventListener("click", start);
  let timer = 0;
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) draw(total);
  else timer = setTimeout(start, LEAD);
  return () => {
    clearTimeout(timer);
    cancelAnimationFrame(frame);
    theme.stop();
    root.remove();
  };
}

function render({ model, el }) {
  return mountRace(el, model.get("race"));
}

export default { render };
