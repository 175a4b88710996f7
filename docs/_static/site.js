// Puts pictures into iframes as high as they are, in the page's theme, and has plotly draw the charts.

const frames = [...document.querySelectorAll(".playing-picture iframe")];

const dress = ({ contentDocument: page }) => {
  const theme = document.documentElement.dataset.theme === "dark" ? "dark" : "light";
  page.documentElement.style.colorScheme = theme;
  page.body.setAttribute("data-jp-theme-light", String(theme === "light"));
};

const fit = (frame) => {
  const { body } = frame.contentDocument;
  const measure = () => { frame.style.height = `${Math.ceil(body.getBoundingClientRect().height)}px`; };
  new frame.contentWindow.ResizeObserver(measure).observe(body);
};

for (const frame of frames) {
  frame.addEventListener("load", () => {
    dress(frame);
    fit(frame);
  });
  frame.srcdoc = window.picturePage.join(frame.nextElementSibling.textContent);
}
new MutationObserver(() => frames.forEach(dress)).observe(document.documentElement, { attributeFilter: ["data-theme"] });

// Code in a table may break behind its signs, not inside its words.
for (const part of document.querySelectorAll(".bd-article td code .pre")) {
  const words = part.textContent.split(/(?<=[=:,(/_])(?=.)/);
  part.replaceChildren(...words.flatMap((word, index) => (index ? [document.createElement("wbr"), word] : [word])));
}

for (const place of document.querySelectorAll(".playing-chart")) {
  const { data, layout } = JSON.parse(place.querySelector("script").textContent);
  const narrow = place.clientWidth < 560;
  window.Plotly.newPlot(place.appendChild(document.createElement("div")), data, { ...layout, width: undefined, autosize: true }, {
    responsive: true, displaylogo: false, displayModeBar: narrow ? false : "hover",
  });
}
