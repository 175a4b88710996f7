// Pictures of one group on a page share the token under the cursor and the pass; no kernel is asked.

const CHANNEL = "ddgviz-cursor";

export function link(hear) {
  const id = Math.random();
  const listen = ({ detail }) => {
    if (detail.id !== id) hear(detail);
  };
  document.addEventListener(CHANNEL, listen);
  return {
    id,
    say: (detail) => document.dispatchEvent(new CustomEvent(CHANNEL, { detail: { ...detail, id } })),
    stop: () => document.removeEventListener(CHANNEL, listen),
  };
}
