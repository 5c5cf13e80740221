// The panel of the whole lab: workloads, and lists of nodes and links that say in words what the map draws.
import { h, isolated, table } from "./dom";
import type { Panel } from "./panel";
import { bytes, micros, percent, perSecond, rate } from "./units";
import { tabs } from "./panel";
import type { View } from "./view";

const rows = 200; // at most, of those that matter most

export function labPanel(view: View): Panel {
  let write = (): void => {};
  const choose = (text: string, select: () => void): HTMLElement => h("button", { type: "button", class: "link", click: select }, isolated(text));
  // A list is written again only where no one is in it: the focus would be lost.
  const list = (box: HTMLElement, make: () => Node): (() => void) => {
    write = () => { if (!box.contains(document.activeElement) || box === document.activeElement) box.replaceChildren(make()); };
    write();
    return () => { write = () => {}; };
  };
  const t = tabs("The lab", ["Workloads", "Nodes", "Links"], (name, box) => {
    if (name === "Workloads") return list(box, () => {
      const f = view.frame;
      if (!f || f.workloads.length === 0) return h("p", { class: "dim" }, "No workload runs. Start one from a node's panel, or by ", h("code", {}, "ndklab perf"), ".");
      return table("Workloads", ["Workload", "From", "#Rate", "#p50", "#p99", "#Errors"], f.workloads.slice(0, rows).map(w => {
        const node = f.map.lab.nodes[w.node]?.name ?? "";
        return [isolated(w.name), choose(node, () => view.select({ kind: "node", node })), rate(w.rate ?? 0), micros(w.p50) || "–", micros(w.p99) || "–", perSecond(w.errors ?? 0)];
      }));
    });
    if (name === "Nodes") return list(box, () => {
      const f = view.frame, lab = view.history.map!.lab;
      const order = lab.nodes.map((n, i) => ({ n, i, state: f?.nodeState(i) ?? "", out: f?.node(i, "out") ?? 0 }))
        .sort((a, b) => Number(b.state !== "ready" && b.state !== "") - Number(a.state !== "ready" && a.state !== "") || b.out - a.out);
      return table("Nodes", ["Node", "Kind", "State", "#Sent", "#Received", "#Sent again"], order.slice(0, rows).map(({ n, i, state, out }) =>
        [choose(n.name, () => view.select({ kind: "node", node: n.name })), n.kind, state || "–", rate(out), rate(f?.node(i, "in") ?? 0), perSecond(f?.node(i, "resent") ?? 0)]));
    });
    return list(box, () => {
      const f = view.frame, lab = view.history.map!.lab;
      const order = lab.links.map((l, i) => ({ l, i, bad: f ? (f.up(i) ? 0 : 4) + (f.cut(i, 0) || f.cut(i, 1) ? 2 : 0) + Math.max(f.loss(i, 0), f.loss(i, 1)) : 0, load: f ? Math.max(f.end(i, 0, "rate"), f.end(i, 1, "rate")) : 0 }))
        .sort((a, b) => b.bad - a.bad || b.load - a.load);
      return table("Links", ["Link", "State", "#Rate", "#Load", "#Loss", "#Queue"], order.slice(0, rows).map(({ l, i, load }) => {
        const state = !f ? "–" : !f.up(i) ? "down" : f.cut(i, 0) && f.cut(i, 1) ? "cut" : f.cut(i, 0) || f.cut(i, 1) ? "cut one way" : "up";
        return [choose(`${l.endpoints[0]} – ${l.endpoints[1]}`, () => view.select({ kind: "link", link: l.endpoints[0] })), state, rate(load),
          f ? percent(Math.max(f.end(i, 0, "load") || 0, f.end(i, 1, "load") || 0)) : "", f ? percent(Math.max(f.loss(i, 0), f.loss(i, 1))) : "", f ? bytes(Math.max(f.end(i, 0, "queue") || 0, f.end(i, 1, "queue") || 0)) : ""];
      }));
    });
  });
  return { title: ["The lab"], body: [t.element], update: () => write(), end: t.end };
}
