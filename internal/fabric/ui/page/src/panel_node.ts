// The panel of a node: its state, counters, adapter, connections, log and a terminal, and what can be done to it.
import { apply, get, preview } from "./actions";
import { facts, h, isolated, table } from "./dom";
import { poll, tabs, type Panel } from "./panel";
import type { Change, NodeDetail } from "./types";
import { bytes, count, perSecond, rate } from "./units";
import type { View } from "./view";

const acts = ["pause", "resume", "stop", "start", "restart", "kill"];

// actions are buttons for changes, with the command that the one in focus is.
export function actions(label: string, list: { name: string; change: () => Change; class?: string }[]): HTMLElement {
  const command = h("code", { class: "preview", "aria-live": "polite" });
  let asked = 0;
  const show = async (c: Change): Promise<void> => {
    const mine = ++asked;
    try { const text = await preview(c); if (mine === asked) command.textContent = text; } catch (e) { if (mine === asked) command.textContent = (e as Error).message; }
  };
  return h("div", { class: "actions", role: "group", "aria-label": label }, ...list.map(a => {
    const b = h("button", { type: "button", class: a.class, mouseenter: () => void show(a.change()), focus: () => void show(a.change()), click: async () => {
      b.disabled = true;
      await apply(a.change());
      b.disabled = false;
    } }, a.name);
    return b;
  }), command);
}

export function nodePanel(view: View, name: string): Panel {
  const map = view.history.map!, i = map.node.get(name)!, node = map.lab.nodes[i], path = encodeURIComponent(name);
  const state = h("p", { class: "state" }), now = h("div", {});
  let detail: NodeDetail | null = null, write = (): void => {};
  const error = h("p", { class: "bad" });
  const live = !view.replay && node.kind !== "external";
  const stop = live ? poll(s => get<NodeDetail>(`api/node/${path}`, s), 2000, d => { detail = d; error.textContent = ""; update(); write(); }, e => { error.textContent = e.message; }) : () => {};

  let list = (): void => {};
  const update = (): void => {
    list();
    const f = view.frame, k = f?.map.node.get(name);
    const said = (f && k != null && f.nodeState(k)) || "not known", health = f && k != null ? f.health(k) : "";
    const reason = view.at == null && detail?.node.reason ? `: ${detail.node.reason}` : "";
    state.className = `state ${said}`;
    state.textContent = said + reason + (health ? `, ${health}` : "");
    now.replaceChildren(f && k != null && node.kind === "host" ? facts([
      ["Sent", rate(f.node(k, "out"))], ["Received", rate(f.node(k, "in"))], ["Packets", perSecond(f.node(k, "packets"))], ["Sent again", perSecond(f.node(k, "resent"))],
      ["CNPs", perSecond(f.node(k, "cnps"))], ["Errors", perSecond(f.node(k, "errors"))], ["Queue pairs", count(f.node(k, "qps"))], ["Connections", count(f.node(k, "conns"))],
    ], true) : "");
  };

  const links = h("ul", { class: "links" }, ...map.linksOf[i].slice(0, 64).map(l => {
    const [a, b] = map.lab.links[l].endpoints;
    return h("li", {}, h("button", { type: "button", class: "link", click: () => view.select({ kind: "link", link: a }) }, isolated(`${a} – ${b}`)));
  }));

  const numbers = (label: string, of: Record<string, number> | null): Node => table(label, [label, "#Value"],
    Object.entries(of ?? {}).filter(([, v]) => v).sort().map(([k, v]) => [k, count(v)]));
  const fill = (box: HTMLElement, make: (d: NodeDetail) => Node[]): (() => void) => {
    write = () => { if (!box.contains(document.activeElement) || box === document.activeElement) box.replaceChildren(...detail ? make(detail) : [h("p", { class: "dim" }, "…")]); };
    write();
    return () => { write = () => {}; };
  };
  const t = tabs(`Node ${i}`, live ? ["Links", "Queue pairs", "Connections", "Counters", "Adapter", "Log", "Terminal"] : ["Links", "Queue pairs"], (tab, box) => {
    switch (tab) {
      case "Connections": return fill(box, d => [d.connections?.length ? table("Connections", ["Local", "Remote", "State", "#QPN", "Process"], d.connections.map(c => {
        const qpn = c.qpn;
        return [c.local || "–", c.remote ?? c.type, [c.transport, c.state].filter(Boolean).join(" "),
          qpn ? h("button", { type: "button", class: "link", "aria-label": `Sequence of queue pair ${qpn}`, click: () => view.select({ kind: "qp", node: name, qpn }) }, String(qpn)) : "–",
          c.process ? `${c.process} (${c.pid})` : c.mode];
      })) : h("p", { class: "dim" }, "No connections.")]);
      case "Queue pairs": {
        list = () => {
          if (box.contains(document.activeElement) && box !== document.activeElement) return; // what has the focus stays
          const f = view.frame, k = f?.map.node.get(name), pairs = f && k != null ? f.pairsOf(k) : [];
          box.replaceChildren(pairs.length ? table("Queue pairs", ["#QPN", "Peer", "#Allowed", "#In flight", "#Sent again"], pairs.map(p => [
            h("button", { type: "button", class: "link", "aria-label": `Queue pair ${p.qp}`, click: () => view.select({ kind: "qp", node: name, qpn: p.qp }) }, String(p.qp)), p.peer,
            p.is("rate") ? rate(p.is("rate")) : "any", p.is("window") ? bytes(p.is("window")) : "any", perSecond(p.is("resent")),
          ])) : h("p", { class: "dim" }, "No queue pair of the node's workloads is connected, as far as is known of this time."));
        };
        list();
        return () => { list = () => {}; };
      }
      case "Counters": return fill(box, d => [numbers("Counter", d.node.counters), numbers("Transport", d.node.transport)]);
      case "Adapter": return fill(box, d => d.adapter ? [
        table("Addresses", ["Address", "Interface", "#MTU", "#Payload"], (d.adapter.addresses ?? []).map(a => [a.address, a.interface, String(a.mtu), bytes(a.roce_frame_size)])),
        table("In use", ["In use", "#Now"], Object.entries(d.adapter.in_use).filter(([, v]) => typeof v === "number").map(([k, v]) => [k, count(v)])),
        table("Limits", ["Limit", "#Value"], Object.entries(d.adapter.info).filter(([, v]) => typeof v === "number" || typeof v === "string").map(([k, v]) => [k, typeof v === "number" ? count(v) : String(v)]))]
        : [h("p", { class: "dim" }, "The node has no adapter.")]);
      case "Log": return fill(box, d => [h("pre", { class: "log", tabindex: 0, "aria-label": `Log of the node` }, (d.log ?? []).join("\n") || "The log is empty.")]);
      case "Terminal": {
        const place = h("div", { class: "shell" });
        box.append(place, h("p", { class: "dim" }, "Ctrl-Shift-Escape leaves the terminal."));
        let end = (): void => {}, over = false;
        void import("./terminal").then(m => { if (!over) end = m.open(name, place); });
        return () => { over = true; end(); };
      }
      default: {
        const about = h("div", {});
        box.append(about, links);
        write = () => {
          const n = detail?.node, u = n?.usage, l = n?.limits;
          about.replaceChildren(facts([
            ["Kind", node.kind], ["Group", node.group], ["Addresses", n?.addresses?.join(", ")], ["Restarts", n?.restarts ? count(n.restarts) : null],
            ["Memory", u?.memory != null ? bytes(u.memory) + (l?.memory ? ` of ${bytes(l.memory)}` : "") : null], ["Processors", l?.cpu != null ? String(l.cpu) : null],
          ]));
        };
        write();
        return () => { write = () => {}; };
      }
    }
  });

  const others = map.lab.nodes.filter(n => n.kind === "host" && n.name !== name);
  const to = h("select", { "aria-label": "The node that the workload sends to" }, ...others.slice(0, 2000).map(n => h("option", { value: n.name }, n.name)));
  const test = h("select", {}, ...["write-bw", "read-bw", "send-bw", "write-lat", "read-lat", "send-lat"].map(t => h("option", {}, t)));
  const size = h("input", { type: "text", size: 7, value: "64KiB" }), duration = h("input", { type: "text", size: 5, value: "10s" });
  const perf = live && node.kind === "host" && others.length ? h("details", { class: "more" }, h("summary", {}, "Start a workload"),
    h("div", { class: "row" }, h("label", {}, "to ", to), h("label", {}, "test ", test), h("label", {}, "size ", size), h("label", {}, "for ", duration)),
    actions("Start a workload", [{ name: "Start", class: "primary", change: () => ({ act: "perf", node: name, to: to.value, settings: [`test=${test.value}`, `size=${size.value.trim()}`, `duration=${duration.value.trim()}`] }) }])) : "";
  return {
    title: [isolated(name)],
    body: [state, error, now, ...live ? [actions("Change the node", acts.map(act => ({ name: act[0].toUpperCase() + act.slice(1), class: act === "kill" || act === "stop" ? "danger" : undefined, change: () => ({ act, node: name }) })))] : [],
      ...perf ? [perf] : [], t.element],
    update, end: () => { stop(); t.end(); },
  };
}
