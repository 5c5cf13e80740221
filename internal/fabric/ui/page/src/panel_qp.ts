// The panel of a queue pair: its time-sequence diagram, for as long as it is shown.
import { get } from "./actions";
import { facts, h, isolated } from "./dom";
import { bytes, perSecond, rate } from "./units";
import { poll, type Panel } from "./panel";
import { Diagram } from "./sequence";
import type { Sequence } from "./types";
import type { View } from "./view";

export function qpPanel(view: View, node: string, qpn: number): Panel {
  const diagram = new Diagram(), error = h("p", { class: "bad" }), about = h("div", {}), now = h("div", {});
  // A run that is over has no packets to draw.
  const stop = view.replay ? () => {} : poll(s => get<Sequence>(`api/sequence/${encodeURIComponent(node)}/${qpn}`, s), 1000, s => {
    error.textContent = "";
    about.replaceChildren(facts([["Requester", `${s.from.address} queue pair ${s.from.qpn}`], ["Responder", `${s.to.address} queue pair ${s.to.qpn}`]]));
    diagram.set(s);
  }, e => { error.textContent = e.message; });
  const update = (): void => {
    const f = view.frame, i = f?.map.node.get(node), pair = f && i != null ? f.pairsOf(i).find(p => p.qp === qpn) : undefined;
    now.replaceChildren(pair ? facts([
      ["Peer", pair.peer], ["Rate allowed", pair.is("rate") ? rate(pair.is("rate")) : "any"], ["Recovers to", pair.is("target") ? rate(pair.is("target")) : null],
      ["May be in flight", pair.is("window") ? bytes(pair.is("window")) : "any number"], ["CNPs", perSecond(pair.is("cnps"))], ["Sent again", perSecond(pair.is("resent"))],
    ], true) : h("p", { class: "dim" }, "Nothing is known of its rate at this time: it is not connected, or it is of a program."));
  };
  return {
    title: [`Queue pair ${qpn} of `, isolated(node)],
    body: [h("p", {}, h("button", { type: "button", class: "link", click: () => view.select({ kind: "node", node }) }, "Node ", isolated(node))), now, ...view.replay ? [] : [about, error, diagram.element]],
    update, end: () => { stop(); diagram.destroy(); },
  };
}
