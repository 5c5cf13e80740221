// The list of events, the newest first. One that is chosen moves the page to its time.
import { at, h } from "./dom";
import { instant } from "./units";
import type { Happening, View } from "./view";

const shown = 300;
const signs: Record<string, string> = { "node-down": "✕", "node-paused": "❚❚", "node-resumed": "▶", "node-up": "●", "link-changed": "↔", "qp-error": "!", deadlock: "!", warning: "!", "link-overrun": "!", "lab-ready": "●" };

export function events(view: View, point: (at: number) => void): void {
  const list = at("events"), progress = at<HTMLInputElement>("progress"), rows = new Map<Happening, HTMLElement>();
  const row = (e: Happening): HTMLElement => h("li", {}, h("button", { type: "button", title: e.kind, mouseenter: () => point(e.at), focus: () => point(e.at), click: () => {
    view.go(e.at);
    if (e.node && view.history.map?.node.has(e.node)) view.select({ kind: "node", node: e.node });
    else if (e.link && view.history.map?.link.has(e.link)) view.select({ kind: "link", link: e.link });
  } }, h("time", {}, instant(e.at)), h("span", { class: `sign ${["!", "✕"].includes(signs[e.kind]) ? "bad" : ""}`, "aria-hidden": "true" }, signs[e.kind] ?? "·"),
  h("span", { dir: "auto" }, (e.run ? "second run: " : "") + (e.text || e.kind))));
  let last: Happening | undefined;
  const update = (): void => {
    const newest = view.events.filter(e => !e.progress || progress.checked).slice(-shown).reverse();
    for (const [e, r] of rows) if (!newest.includes(e)) { r.remove(); rows.delete(e); }
    newest.forEach((e, i) => {
      let r = rows.get(e);
      if (!r) { r = row(e); rows.set(e, r); }
      if (list.children[i] !== r) list.insertBefore(r, list.children[i] ?? null);
    });
    at("no-events").hidden = newest.length > 0;
    // What is new is said, but for what was there when the page was opened.
    if (last && newest[0] !== last) at("said").textContent = newest[0].text;
    last = newest[0];
  };
  view.on(["event"], update);
  progress.addEventListener("change", update);
  view.on(["time"], () => { for (const [e, r] of rows) r.classList.toggle("at", view.at != null && Math.abs(e.at - view.at) < 1e-6); });
}
