// The time-sequence diagram of a QP, as tcptrace draws those of TCP: PSN over time. Data are vertical strokes, those sent
// again are thick and crossed, lost ones end in a cross, and a line shows up to where all is acknowledged.
import uPlot from "uplot";
import { css, h, table } from "./dom";
import type { Point, Sequence } from "./types";
import { instant } from "./units";

const names: Record<string, string> = { data: "data", resent: "sent again", ack: "acknowledged", nak: "NAK", rnr: "receiver not ready", selective: "selective acknowledgement", response: "response of READ", cnp: "CNP" };
const colour: Record<string, string> = { data: "--s0", resent: "--s1", ack: "--s2", nak: "--bad", rnr: "--warn", selective: "--s2", response: "--s2", cnp: "--mark" };

export class Diagram {
  readonly element = h("div", { class: "sequence" });
  private plot: uPlot | null = null;
  private points: Point[] = [];
  private readonly chart = h("div", { class: "chart tall", "aria-hidden": "true" });
  private readonly words = h("p", { class: "dim" });
  private readonly list = h("div", {});
  private readonly said = h("p", { class: "dim one" });

  constructor() {
    this.element.append(
      h("ul", { class: "keys marks" }, ...[["data", "┃ data"], ["resent", "╋ sent again"], ["lost", "✕ lost"], ["ack", "┗ acknowledged up to"], ["nak", "◆ NAK, RNR"], ["cnp", "▼ CNP"]].map(([k, t]) => h("li", { class: `q-${k}` }, t))),
      this.chart, this.said, this.words, this.list);
  }

  destroy(): void { this.plot?.destroy(); this.plot = null; }

  set(s: Sequence): void {
    this.points = s.points ?? [];
    const p = this.points, n = (kind: string) => p.filter(x => x.kind === kind).length, lost = p.filter(x => x.lost).length;
    this.words.textContent = p.length === 0 ? "No packet of this queue pair has passed since the capture began."
      : `${p.length} packets: ${n("data")} of data, ${n("resent")} sent again, ${lost} lost, ${n("ack")} acknowledgements, ${n("nak") + n("rnr")} NAKs. PSNs ascend over 2\u00b2\u2074.`;
    this.list.replaceChildren(p.length ? h("details", {}, h("summary", {}, "The packets in words"), table("Packets of the queue pair", ["Time", "Kind", "#PSN", "Text"],
      p.slice(-200).reverse().map(x => [instant(x.at), names[x.kind] + (x.lost ? `, lost: ${x.lost}` : ""), String(x.psn), x.text]))) : "");
    if (p.length === 0) return;
    const acked = p.filter(x => x.acked != null), data: uPlot.AlignedData = [p.map(x => x.at), p.map(x => x.to ?? x.psn), p.map(() => null) as (number | null)[]];
    let up: number | null = null;
    p.forEach((x, i) => { if (x.acked != null) up = x.acked; (data[2] as (number | null)[])[i] = up; });
    if (!acked.length) (data[2] as (number | null)[]).fill(null);
    if (this.plot) { this.plot.setData(data); return; }
    const axis = { stroke: () => css("--dim"), font: "11px Inter, system-ui, sans-serif", grid: { stroke: () => css("--grid"), width: 1 }, ticks: { show: false } };
    this.plot = new uPlot({
      width: Math.max(200, this.chart.clientWidth), height: 300, padding: [8, 8, 0, 0], legend: { show: false },
      scales: { x: { time: false } },
      axes: [{ ...axis, size: 24, values: (_u, v) => v.map(t => `${+t.toFixed(6)} s`), space: 80 }, { ...axis, size: 66, values: (_u, v) => v.map(String) }],
      series: [{}, { paths: () => null, points: { show: false } }, { stroke: () => css("--s2"), width: 1.5, points: { show: false }, spanGaps: true, paths: uPlot.paths.stepped!({ align: 1 }) }],
      cursor: { drag: { x: true, y: true, uni: 20 }, points: { show: false } },
      hooks: { draw: [u => this.strokes(u)], setCursor: [u => this.near(u)] },
    }, data, this.chart);
    new ResizeObserver(() => this.plot?.setSize({ width: Math.max(200, this.chart.clientWidth), height: 300 })).observe(this.chart);
  }

  // near says which packet is at the pointer.
  private near(u: uPlot): void {
    const { left, top } = u.cursor;
    if (left == null || top == null || left < 0) return;
    let best: Point | null = null, least = 400;
    for (const p of this.points) {
      const d = (u.valToPos(p.at, "x") - left) ** 2 + (u.valToPos(p.psn, "y") - top) ** 2;
      if (d < least) { least = d; best = p; }
    }
    this.said.textContent = best ? `${best.at.toFixed(6)} s  ${names[best.kind]}  ${best.opcode ?? ""}  ${best.text}${best.lost ? `  lost: ${best.lost}` : ""}` : "";
  }

  private strokes(u: uPlot): void {
    const { ctx, bbox } = u, r = devicePixelRatio;
    ctx.save();
    ctx.beginPath(); ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height); ctx.clip();
    for (const p of this.points) {
      const x = u.valToPos(p.at, "x", true), y = u.valToPos(p.psn, "y", true), top = p.to != null ? u.valToPos(p.to + 1, "y", true) : u.valToPos(p.psn + 1, "y", true);
      if (x < bbox.left - 8 * r || x > bbox.left + bbox.width + 8 * r) continue;
      ctx.strokeStyle = ctx.fillStyle = css(p.lost ? "--bad" : colour[p.kind] ?? "--dim");
      ctx.lineWidth = (p.kind === "resent" ? 2.5 : 1.5) * r;
      ctx.beginPath();
      if (p.kind === "data" || p.kind === "resent" || p.kind === "response") {
        ctx.moveTo(x, y); ctx.lineTo(x, Math.min(top, y - 3 * r));
        if (p.kind === "resent") { ctx.moveTo(x - 4 * r, (y + top) / 2); ctx.lineTo(x + 4 * r, (y + top) / 2); }
        ctx.stroke();
      } else if (p.kind === "cnp") { ctx.moveTo(x - 4 * r, y - 4 * r); ctx.lineTo(x + 4 * r, y - 4 * r); ctx.lineTo(x, y + 3 * r); ctx.fill(); }
      else if (p.kind === "nak" || p.kind === "rnr") { ctx.moveTo(x, y - 5 * r); ctx.lineTo(x + 5 * r, y); ctx.lineTo(x, y + 5 * r); ctx.lineTo(x - 5 * r, y); ctx.fill(); }
      else if (p.kind === "selective") { ctx.moveTo(x - 3 * r, y); ctx.lineTo(x + 3 * r, y); ctx.moveTo(x - 3 * r, top); ctx.lineTo(x + 3 * r, top); ctx.stroke(); }
      if (p.lost) {
        ctx.lineWidth = 2 * r; ctx.beginPath();
        ctx.moveTo(x - 4 * r, y - 4 * r); ctx.lineTo(x + 4 * r, y + 4 * r); ctx.moveTo(x - 4 * r, y + 4 * r); ctx.lineTo(x + 4 * r, y - 4 * r); ctx.stroke();
      }
    }
    ctx.restore();
  }
}
