// The panel of a link: what it was asked for beside what it does, its last packets, and sliders for what it is asked for.
import { get } from "./actions";
import { css, facts, h, isolated, table } from "./dom";
import { poll, tabs, type Panel } from "./panel";
import { actions } from "./panel_node";
import type { Change, Direction, LinkDetail, Quality, Row } from "./types";
import { bytes, count, inBits, inMicros, instant, micros, percent, rate } from "./units";
import type { View } from "./view";

// The stops of the sliders. What lies between is typed beside them.
const delays = ["0us", "10us", "50us", "100us", "500us", "1ms", "2ms", "5ms", "10ms", "20ms", "50ms", "100ms", "200ms"];
const settings = [
  { key: "delay", stops: delays, number: inMicros },
  { key: "jitter", stops: delays, number: inMicros },
  { key: "loss", stops: ["0%", "0.01%", "0.1%", "0.5%", "1%", "2%", "5%", "10%", "20%", "50%", "100%"], number: (v: string) => Number(v.replace("%", "")) },
  { key: "rate", stops: ["1mbit", "10mbit", "100mbit", "1gbit", "10gbit", "25gbit", "40gbit", "100gbit", "200gbit", "400gbit"], number: inBits },
];

export function linkPanel(view: View, endpoint: string): Panel {
  const map = view.history.map!, i = map.link.get(endpoint)!, link = map.lab.links[i], [a, b] = link.endpoints, path = encodeURIComponent(a);
  const state = h("p", { class: "state" }), error = h("p", { class: "bad" });
  let detail: LinkDetail | null = null, write = (): void => {};
  const stop = view.replay ? () => {} : poll(s => get<LinkDetail>(`api/link/${path}`, s), 2000, d => { detail = d; error.textContent = ""; write(); }, e => { error.textContent = e.message; });

  const update = (): void => {
    const f = view.frame, l = f?.map.link.get(endpoint);
    if (!f || l == null) return;
    const said = !f.up(l) ? "down" : f.cut(l, 0) && f.cut(l, 1) ? "cut" : f.cut(l, 0) ? `cut from ${a}` : f.cut(l, 1) ? `cut from ${b}` : "up";
    state.className = `state ${said === "up" ? "ready" : "down"}`;
    state.textContent = `${said}. ${a} sends ${rate(f.end(l, 0, "rate"))}, ${b} ${rate(f.end(l, 1, "rate"))}`;
    if (view.replay) write();
  };

  const quality = (d: Direction): Node => {
    const row = (name: string, of: (q: Quality) => string): [string, string, string] => [name, of(d.set ?? d.asked) || "–", of(d.achieved) || "–"];
    return h("div", {}, h("h3", {}, "From ", isolated(d.from)),
      table(`Asked and measured from ${d.from}`, ["Quality", "#Asked", "#Measured"], [
        row("Delay", q => micros(q.delay_us)), row("Jitter", q => micros(q.jitter_us)), row("Loss", q => percent(q.loss)), row("Rate", q => rate(q.rate_gbps == null ? null : q.rate_gbps * 1e9)),
      ]),
      facts([["Packets", count(d.packets)], ["Bytes", bytes(d.bytes)], ["Lost as asked", count(d.dropped)], ["Lost otherwise", count(d.lost) + (d.lost ? ` (${Object.entries(d.lost_by).filter(([, v]) => v).map(([k, v]) => `${k} ${v}`).join(", ")})` : "")],
        ["Marked", count(d.marked)], ["Longest queue", bytes(d.queue_peak)]], true),
      bars(d.delays ?? []));
  };

  const t = tabs(`Link ${i}`, view.replay ? ["Settings"] : ["Measured", "Change", "Packets"], (tab, box) => {
    if (tab === "Measured") {
      write = () => { if (!box.contains(document.activeElement) || box === document.activeElement) box.replaceChildren(...detail ? [h("p", { class: "dim" }, `Engine ${detail.engine}`), ...detail.directions.map(quality)] : []); };
      write();
    } else if (tab === "Settings") {
      write = () => {
        const f = view.frame, l = f?.map.link.get(endpoint);
        box.replaceChildren(facts([0, 1].map(e => [`From ${link.endpoints[e]}`, (f && l != null && f.set(l, e).join(" ")) || "–"] as [string, string])));
      };
      write();
    } else if (tab === "Change") {
      write = () => {};
      box.append(form(view, i, [a, b]));
    } else {
      write = () => {};
      const list = h("div", {}), said = h("p", { class: "dim" }, "…");
      box.append(h("p", { class: "row" }, h("a", { href: `api/capture/${path}?seconds=60`, download: "" }, "Download the next minute as a capture")), said, list);
      return poll(s => get<{ rows: Row[] | null }>(`api/packets/${path}?n=200`, s), 1000, ({ rows }) => {
        said.textContent = rows?.length ? `The last ${rows.length} packets, the newest first.` : "No packet has passed since the capture began.";
        if (list.contains(document.activeElement)) return;
        list.replaceChildren(rows?.length ? table("Packets", ["Time", "From", "Fate", "Opcode", "#PSN", "#QP", "#Bytes", "#Delay", "Decode"], rows.slice().reverse().map(r => [
          instant(r.at).endsWith(" s") ? `${r.at.toFixed(6)} s` : instant(r.at), isolated(r.from), fate(r), r.opcode ?? "–", r.psn != null ? String(r.psn) : "–", r.qp != null ? String(r.qp) : "–", String(r.size), micros(r.delay) || "–", r.text])) : "");
      }, e => { said.textContent = e.message; });
    }
    return () => { write = () => {}; };
  });
  return {
    title: [isolated(a), " – ", isolated(b)],
    body: [state, error, ...view.replay ? [] : [actions("Change the link", [
      { name: "Cut", class: "danger", change: () => ({ act: "cut", endpoint: a }) }, { name: "Heal", change: () => ({ act: "heal", endpoint: a }) }, { name: "Reset", change: () => ({ act: "reset", endpoint: a }) },
    ])], t.element],
    update, end: () => { stop(); t.end(); },
  };
}

const fate = (r: Row): Node => {
  const text = (r.fate === "dropped" ? `✕ ${r.cause ?? "dropped"}` : r.fate) + (r.done?.length ? ` ${r.done.join(", ")}` : "");
  return h("span", { class: r.fate === "dropped" ? "bad" : r.done?.length ? "warn" : "" }, text || "–");
};

// form has a slider and a field for each setting, and the command that they are.
function form(view: View, i: number, ends: [string, string]): HTMLElement {
  const f = view.frame;
  const direction = h("select", { id: "direction" }, h("option", { value: "" }, "both directions"), ...ends.map(e => h("option", { value: e.slice(0, e.indexOf(":")) }, `from ${e}`)));
  const was: Record<string, string> = {}, fields: Record<string, HTMLInputElement> = {};
  const change = (): Change => ({ act: "set", endpoint: ends[0], ...direction.value ? { from: direction.value } : {},
    settings: settings.map(s => [s.key, fields[s.key].value.trim()]).filter(([k, v]) => v !== "" && v !== was[k]).map(([k, v]) => `${k}=${v}`) });
  const buttons = actions("Apply settings", [{ name: "Apply", class: "primary", change }]);
  const show = (): void => { if (change().settings!.length) buttons.querySelector("button")!.dispatchEvent(new Event("mouseenter")); };
  const rows = settings.map(s => {
    const now = f && f.map === view.history.map ? f.set(i, 0).find(t => t.startsWith(s.key + "="))?.slice(s.key.length + 1) ?? "" : "";
    was[s.key] = now;
    const near = (v: string): number => {
      const n = s.number(v);
      let best = s.key === "rate" ? s.stops.length - 1 : 0;
      s.stops.forEach((stop, k) => { if (Math.abs(s.number(stop) - n) < Math.abs(s.number(s.stops[best]) - n)) best = k; });
      return best;
    };
    const field = h("input", { type: "text", size: 8, value: now, "aria-label": `${s.key}, exactly`, placeholder: "none", input: () => { slider.value = String(near(field.value)); slider.setAttribute("aria-valuetext", field.value || "none"); }, change: show });
    const slider = h("input", { type: "range", min: 0, max: s.stops.length - 1, step: 1, id: `set-${s.key}`, "aria-valuetext": now || "none", input: () => {
      field.value = s.stops[Number(slider.value)];
      slider.setAttribute("aria-valuetext", field.value);
    }, change: show });
    slider.value = String(near(now));
    fields[s.key] = field;
    return h("div", { class: "setting" }, h("label", { for: slider.id }, s.key), slider, field);
  });
  direction.addEventListener("change", show);
  return h("form", { class: "settings", submit: (e: Event) => { e.preventDefault(); buttons.querySelector("button")!.click(); } },
    h("div", { class: "setting" }, h("label", { for: "direction" }, "of"), direction), ...rows, buttons);
}

// bars draws the histogram of delay, and has it in words.
function bars(delays: { from_us: number; packets: number }[]): Node {
  const shown = delays.filter(d => d.packets > 0);
  if (shown.length === 0) return h("p", { class: "dim" }, "No delays measured.");
  const canvas = h("canvas", { width: 800, height: 180, role: "img", class: "bars",
    "aria-label": `Histogram of delay: ${shown.slice(0, 24).map(d => `${micros(d.from_us) || "0"} ${d.packets}`).join(", ")}` });
  const ctx = canvas.getContext("2d")!, top = Math.max(...shown.map(d => d.packets)), w = canvas.width / shown.length;
  ctx.fillStyle = css("--s0");
  shown.forEach((d, i) => { const high = Math.max(2, d.packets / top * (canvas.height - 36)); ctx.fillRect(i * w + 1, canvas.height - 32 - high, Math.max(1, w - 2), high); });
  ctx.fillStyle = css("--dim");
  ctx.font = "22px system-ui, sans-serif";
  ctx.textAlign = "left"; ctx.fillText(micros(shown[0].from_us) || "0", 0, canvas.height - 6);
  ctx.textAlign = "right"; ctx.fillText(micros(shown[shown.length - 1].from_us), canvas.width, canvas.height - 6);
  return canvas;
}
