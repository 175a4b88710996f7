// Puts text on the clipboard, on pages too that may not use the clipboard's own interface.

export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    if (!done) throw new Error("the browser does not let this page copy");
  }
}

export function copyButton(said, text) {
  const button = document.createElement("button");
  Object.assign(button, { type: "button", className: "ddg-copy", textContent: said });
  button.addEventListener("click", async () => {
    button.textContent = await copy(text()).then(() => "Copied", () => "Select the text to copy it");
    setTimeout(() => { button.textContent = said; }, 1500);
  });
  return button;
}
