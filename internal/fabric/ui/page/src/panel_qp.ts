// The panel of a queue pair: its time-sequence diagram, for as long as it is shown.
import { get } from "./actions";
import { facts, h, isolated } from "./dom";
import { poll, type Panel } from "./panel";
import { Diagram } from "./sequence";
import type { Sequence } from "./types";
import type { View } from "./view";

export function qpPanel(view: View, node: string, qpn: number): Panel {
  const diagram = new Diagram(), error = h("p", { class: "bad" }), about = h("div", {});
  const stop = poll(s => get<Sequence>(`api/sequence/${encodeURIComponent(node)}/${qpn}`, s), 1000, s => {
    error.textContent = "";
    about.replaceChildren(facts([["Requester", `${s.from.address} queue pair ${s.from.qpn}`], ["Responder", `${s.to.address} queue pair ${s.to.qpn}`]]));
    diagram.set(s);
  }, e => { error.textContent = e.message; });
  return {
    title: [`Queue pair ${qpn} of `, isolated(node)],
    body: [h("p", {}, h("button", { type: "button", class: "link", click: () => view.select({ kind: "node", node }) }, "Node ", isolated(node))), about, error, diagram.element],
    update() {}, end: () => { stop(); diagram.destroy(); },
  };
}
