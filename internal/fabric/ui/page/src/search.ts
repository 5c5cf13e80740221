// The search for nodes and links: a field with a list below it (the combobox of WAI-ARIA).
import { at, h } from "./dom";
import type { Selection, View } from "./view";

const shown = 12;

export function search(view: View, show: (s: Selection) => void): void {
  const field = at<HTMLInputElement>("search"), list = at("found");
  let found: { text: string; what: string; select: Selection }[] = [], chosen = 0;
  const close = (): void => { list.hidden = true; field.setAttribute("aria-expanded", "false"); field.removeAttribute("aria-activedescendant"); };
  const mark = (): void => {
    [...list.children].forEach((c, i) => c.setAttribute("aria-selected", String(i === chosen)));
    if (found.length) field.setAttribute("aria-activedescendant", `found-${chosen}`);
    list.children[chosen]?.scrollIntoView({ block: "nearest" });
  };
  const take = (i: number): void => {
    if (!found[i]) return;
    view.select(found[i].select);
    show(found[i].select);
    field.value = "";
    close();
    at("panel").focus();
  };
  const look = (): void => {
    const word = field.value.trim().toLowerCase(), lab = view.history.map?.lab;
    found = [];
    if (lab) {
      const rank = (name: string): number => { const n = name.toLowerCase(); return n === word ? 0 : n.startsWith(word) ? 1 : n.includes(word) ? 2 : 3; };
      const nodes = lab.nodes.map(n => ({ text: n.name, what: n.kind, r: Math.min(rank(n.name), n.group ? rank(n.group) + 0.5 : 3), select: { kind: "node", node: n.name } as Selection }));
      const links = lab.links.map(l => ({ text: `${l.endpoints[0]} – ${l.endpoints[1]}`, what: "link", r: Math.min(...l.endpoints.map(rank)) + 0.2, select: { kind: "link", link: l.endpoints[0] } as Selection }));
      found = [...nodes, ...links].filter(x => x.r < 3).sort((a, b) => a.r - b.r).slice(0, shown);
    }
    chosen = 0;
    list.replaceChildren(...found.map((f, i) => h("li", { role: "option", id: `found-${i}`, "aria-selected": false, mousedown: (e: Event) => { e.preventDefault(); take(i); } }, h("bdi", {}, f.text), h("small", {}, f.what))));
    if (!found.length) list.replaceChildren(h("li", { role: "option", "aria-selected": false, "aria-disabled": true, class: "dim" }, "Nothing has this name."));
    list.hidden = false;
    field.setAttribute("aria-expanded", "true");
    mark();
  };
  field.addEventListener("input", look);
  field.addEventListener("focus", look);
  field.addEventListener("blur", close);
  field.addEventListener("keydown", e => {
    if (e.key === "ArrowDown" || e.key === "ArrowUp") {
      if (list.hidden) look();
      chosen = (chosen + (e.key === "ArrowDown" ? 1 : found.length - 1)) % Math.max(1, found.length);
      mark();
      e.preventDefault();
    } else if (e.key === "Enter") { take(chosen); e.preventDefault(); }
    else if (e.key === "Escape") { field.value = ""; close(); field.blur(); e.stopPropagation(); }
  });
}
