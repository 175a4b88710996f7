// Light or dark, and the reader's wish for less motion.

export function followTheme(root, chosen, changed) {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const apply = () => {
    const said = document.body.getAttribute("data-jp-theme-light");
    const theme = said === null ? (dark.matches ? "dark" : "light") : said === "true" ? "light" : "dark";
    const palette = chosen();
    root.setAttribute("data-theme", palette === "auto" ? theme : palette);
    root.toggleAttribute("data-own", palette !== "auto");
    changed();
  };
  const observer = new MutationObserver(apply);
  observer.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light", "data-jp-theme-name"] });
  dark.addEventListener("change", apply);
  apply();
  const stop = () => {
    observer.disconnect();
    dark.removeEventListener("change", apply);
  };
  return { apply, stop };
}

export function colorsOf(root) {
  const style = getComputedStyle(root);
  const read = (name) => style.getPropertyValue(`--ddg-${name}`).trim();
  return {
    ink: read("ink"), muted: read("muted"), settled: read("settled"), accent: read("accent"),
    paper: style.backgroundColor, font: style.fontFamily,
  };
}

export const calm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;
