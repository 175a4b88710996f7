// The page that stands alone: draws its own trace or one that the address brings, and keeps the reader's view in the address.

import { copyButton } from "./copy.js";
import { element } from "./frame.js";
import { mount } from "./widget.js";

const MOST = 20_000_000;

const parameters = () => new URLSearchParams(location.hash.slice(1));

function asked() {
  const view = {};
  for (const [key, value] of parameters()) {
    try {
      if (key !== "trace") view[key] = JSON.parse(value);
    } catch {
      continue;
    }
  }
  return view;
}

// Text that address.py has packed: deflated, and its bytes as letters that an address may hold.
async function unpackText(packed) {
  const bytes = Uint8Array.from(atob(packed.replaceAll("-", "+").replaceAll("_", "/")), (letter) => letter.charCodeAt(0));
  const parts = [];
  let size = 0;
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw")).getReader();
  for (let part = await stream.read(); !part.done; part = await stream.read()) {
    parts.push(part.value);
    size += part.value.length;
    if (size > MOST) throw new Error("it is too large");
  }
  return new Blob(parts).text();
}

// Refuses, before anything is drawn, what is no trace of this form: a link may bring anything.
function check({ pictures }) {
  const whole = (list, most) => Array.isArray(list) && list.length <= most;
  const strings = (list) => whole(list, 10_000) && list.every((text) => typeof text === "string");
  const fits = ({ trace, words }) =>
    typeof words?.title === "string" &&
    (!words.source || (strings(words.source.parts) && whole(words.source.of, 10_000) && words.source.said instanceof Object)) &&
    whole(trace?.hypotheses, 1_000) &&
    trace.hypotheses.every((hypothesis) => whole(hypothesis.tokens, 10_000)) &&
    whole(trace.iterations, 10_000) &&
    trace.iterations.every(
      ({ slots, tokens, drafts, status, origins }) =>
        whole(slots, 10_000) &&
        slots.every((slot) => Number.isInteger(slot) && Math.abs(slot) < 10_000) &&
        [tokens, drafts, status, origins].every((list) => whole(list, 10_000) && list.length === slots.length),
    );
  if (!whole(pictures, 2) || !pictures.length || !pictures.every(fits)) throw new Error("it is no trace of this form");
}

function drawAll(host, { pictures, verdict }, view, onView) {
  host.replaceChildren(element("p", "ddg-judgement", [verdict || ""]));
  return pictures.map(({ trace, words, match = [] }, index) => {
    const place = element("div", pictures.length < 2 ? "" : index ? "ddg-lower" : "ddg-upper");
    if (pictures.length > 1) host.append(element("p", "ddg-judgement", [element("b", "", ["AB"[index]])]));
    host.append(place);
    const picture = mount(place, { onView: index ? undefined : onView });
    if (pictures.length > 1) picture.configure({ group: "pair", match, twin: String(index) });
    picture.load(trace, { words, view });
    return picture;
  });
}

function tools(link) {
  const address = () => location.href.split("#")[0] + `#${new URLSearchParams({ ...Object.fromEntries(parameters()), trace: link })}`;
  const frame = () => `<iframe src="${address()}" title="Decoding, pass by pass" width="100%" height="640" style="border:0"></iframe>`;
  document.getElementById("tools").replaceChildren(copyButton("Copy link", address), copyButton("Copy line to embed", frame));
}

async function open() {
  const host = document.getElementById("picture");
  const own = JSON.parse(document.getElementById("trace").textContent);
  let later = 0;
  const onView = (view) => {
    const told = Object.entries(view).map(([key, value]) => [key, JSON.stringify(value)]);
    const brought = parameters().get("trace");
    clearTimeout(later);
    // The whole address, because "#" alone means the outer page's where this one is written into an iframe.
    const here = location.href.split("#")[0];
    later = setTimeout(() => history.replaceState(null, "", `${here}#${new URLSearchParams(brought ? [...told, ["trace", brought]] : told)}`), 100);
  };
  let shown = [];
  const draw = (data) => {
    shown.forEach((picture) => picture.destroy());
    shown = drawAll(host, data, asked(), onView);
    if (data.link) tools(data.link);
  };
  let drawn = null;
  const follow = async () => {
    const packed = parameters().get("trace");
    if (packed === drawn && shown.length) {
      shown.forEach((picture) => picture.setView(asked()));
      return;
    }
    drawn = packed;
    try {
      const brought = packed ? { ...JSON.parse(await unpackText(packed)), link: packed } : own;
      if (packed) check(brought);
      draw(brought);
      // The whole, so that what cannot be drawn fails here and not in a later frame.
      for (const picture of packed ? shown : []) {
        const { clock } = picture;
        cancelAnimationFrame(picture.frame);
        picture.clock = picture.total;
        picture.drawNow();
        picture.clock = clock;
        picture.draw(true);
      }
    } catch (error) {
      draw(own);
      shown[0].setNotice(`The address holds no picture that can be drawn: ${error.message}. It may have been cut; copy it again.`);
    }
  };
  await follow();
  addEventListener("hashchange", follow);
}

open();
