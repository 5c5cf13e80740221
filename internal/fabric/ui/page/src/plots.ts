// The plots beside the map: of the whole lab or of what is selected, over time, with one cursor.
import uPlot from "uplot";
import { css, h } from "./dom";
import type { Frame, History, MapOf } from "./history";
import { bytes, instant, micros, percent, perSecond, rate, shorten, tick } from "./units";
import type { Selection, View } from "./view";

type Unit = (v: number | null | undefined) => string;
interface Line { label: string; of: (f: Frame) => number | null; share?: boolean; known?: WeakMap<Frame, number | null> } // share: of the time, on a scale of its own
interface Plot { title: string; unit: Unit; lines: Line[] }

const sum = (n: number, of: (i: number) => number): number => {
  let s = 0;
  for (let i = 0; i < n; i++) s += of(i);
  return s;
};
// valueOf returns a line's value, which is counted once: a sample of 1,000 nodes is a sum of thousands.
function valueOf(l: Line, f: Frame): number | null {
  l.known ??= new WeakMap();
  let v = l.known.get(f);
  if (v === undefined) l.known.set(f, v = l.of(f));
  return v;
}

const known = (v: number): number | null => Number.isNaN(v) ? null : v;

// highest returns the highest of what is known, or null.
const highest = (values: Iterable<number | null | undefined>): number | null => {
  let top: number | null = null;
  for (const v of values) if (v != null && !Number.isNaN(v) && (top == null || v > top)) top = v;
  return top;
};

// A Port is a class at an end of a link that the other end has ever paused, and how it is told of.
interface Port { link: string; end: number; of: number; label: string }

// mostPorts bounds the lines of a plot of pauses: those that were paused most, as far as is remembered.
const mostPorts = 6;

// portsOf returns the ports of what is selected that were paused.
function portsOf(s: Selection, history: History): Port[] {
  const map = history.map, found = new Map<string, Port & { sum: number }>();
  if (!map || s.kind === "lab") return [];
  const ports: [number, number][] = s.kind === "link" ? (l => l == null ? [] : [[l, 0], [l, 1]] as [number, number][])(map.link.get(s.link))
    : (n => (map.linksOf[n] ?? []).flatMap(l => [0, 1].filter(end => map.lab.links[l].nodes[end] === n).map(end => [l, end] as [number, number])))(map.node.get(s.node) ?? -1);
  for (const f of history.frames) {
    if (f.map !== map) continue;
    for (const [l, end] of ports) for (const [of, share] of f.pausesOf(l, end)) {
      const key = `${l}/${end}/${of}`, ends = map.lab.links[l].endpoints;
      const port = found.get(key) ?? { link: ends[0], end, of, sum: 0, label: `${shorten(ends[end], 20)} class ${of} by ${shorten(ends[1 - end], 20)}` };
      port.sum += share * Math.max(f.over, 1e-9);
      found.set(key, port);
    }
  }
  const most = [...found.values()].sort((a, b) => b.sum - a.sum).slice(0, mostPorts);
  return [...found.values()].filter(p => most.includes(p)).sort((a, b) => a.label < b.label ? -1 : 1);
}

// pausePlot returns the plot of pauses: of a port and class, and who has paused it.
const pausePlot = (ports: Port[]): Plot => ({
  title: "Paused by PFC", unit: percent, lines: ports.length ? ports.map(p => ({ label: p.label, of: f => { const l = f.map.link.get(p.link); return l == null ? null : f.paused(l, p.end, p.of); } }))
    : [{ label: "no port", of: () => 0 }],
});

// plotsOf returns the plots of what is selected.
function plotsOf(s: Selection, map: MapOf | null, ports: Port[]): Plot[] {
  if (s.kind === "link") {
    const link = map?.lab.links[map.link.get(s.link) ?? -1], ends = link ? link.nodes.map(n => shorten(map!.lab.nodes[n].name, 16)) : ["", ""];
    const i = (f: Frame) => f.map.link.get(s.link);
    const both = (unit: Unit, title: string, of: (f: Frame, link: number, end: number) => number): Plot => ({
      title, unit, lines: [0, 1].map(end => ({ label: `from ${ends[end]}`, of: f => { const l = i(f); return l == null ? null : known(of(f, l, end)); } })),
    });
    return [
      both(rate, "Throughput on the wire", (f, l, e) => f.end(l, e, "rate")),
      both(micros, "Delay, one way", (f, l, e) => f.end(l, e, "delay")),
      both(bytes, "Queue", (f, l, e) => f.end(l, e, "queue")),
      { title: "Packets lost", unit: perSecond, lines: [
        { label: "as asked", of: f => { const l = i(f); return l == null ? null : f.end(l, 0, "dropped") + f.end(l, 1, "dropped"); } },
        { label: "otherwise", of: f => { const l = i(f); return l == null ? null : f.end(l, 0, "lost") + f.end(l, 1, "lost"); } }] },
      both(perSecond, "Packets", (f, l, e) => f.end(l, e, "packets")),
      both(perSecond, "Packets marked", (f, l, e) => f.end(l, e, "marked")),
      pausePlot(ports),
    ];
  }
  if (s.kind === "qp") {
    const of = (field: Parameters<Frame["pair"]>[2], zero: number | null) => (f: Frame) => { const n = f.map.node.get(s.node); return n == null ? null : f.pair(n, s.qpn, field) || zero; };
    return [
      { title: "Rate allowed", unit: rate, lines: [{ label: "now", of: of("rate", null) }, { label: "recovers to", of: of("target", null) }] },
      { title: "Window", unit: bytes, lines: [{ label: "may be in flight", of: of("window", null) }] },
      { title: "CNPs of the queue pair", unit: perSecond, lines: [{ label: "that it was sent", of: of("cnps", 0) }] },
      { title: "Packets sent again", unit: perSecond, lines: [{ label: "by the queue pair", of: of("resent", 0) }] },
      pausePlot(ports),
      { title: "Throughput of the node", unit: rate, lines: (["out", "in"] as const).map(d => ({ label: d === "out" ? "sent" : "received", of: f => { const n = f.map.node.get(s.node); return n == null ? null : f.node(n, d); } })) },
    ];
  }
  const name = s.kind === "lab" ? null : s.node;
  const over = (f: Frame, of: (i: number) => number): number | null => {
    if (name == null) return sum(f.map.lab.nodes.length, of);
    const i = f.map.node.get(name);
    return i == null ? null : of(i);
  };
  const links = (f: Frame): number[] => name == null ? f.map.lab.links.map((_, i) => i) : f.map.linksOf[f.map.node.get(name) ?? -1] ?? [];
  const latency = (which: "p50" | "p99") => (f: Frame) => {
    const own = name == null ? f.workloads : f.workloads.filter(w => f.map.lab.nodes[w.node]?.name === name);
    return highest(own.map(w => w[which]));
  };
  const lost = (field: "dropped" | "lost" | "marked") => (f: Frame) => { const l = links(f); return sum(l.length, k => f.end(l[k], 0, field) + f.end(l[k], 1, field)); };
  const allowed = (field: "rate" | "target") => (f: Frame) => {
    const i = name == null ? undefined : f.map.node.get(name);
    return i == null ? null : f.pairsOf(i).reduce((sum, p) => sum + p.is(field), 0) || null;
  };
  const ofNode: Plot[] = name == null ? [] : [
    { title: "Rates allowed, of all queue pairs", unit: rate, lines: [{ label: "now", of: allowed("rate") }, { label: "recover to", of: allowed("target") }] },
    pausePlot(ports),
  ];
  return [
    { title: "Throughput", unit: rate, lines: name == null ? [{ label: "RDMA packets sent", of: f => over(f, i => f.node(i, "out")) }]
      : [{ label: "sent", of: f => over(f, i => f.node(i, "out")) }, { label: "received", of: f => over(f, i => f.node(i, "in")) }] },
    { title: "Latency", unit: micros, lines: [{ label: "p50", of: latency("p50") }, { label: "p99", of: latency("p99") }] },
    { title: "Longest queue", unit: bytes, lines: [{ label: "bytes", of: f => highest(links(f).flatMap(l => [f.end(l, 0, "queue"), f.end(l, 1, "queue")])) }] },
    { title: "Packets lost", unit: perSecond, lines: [{ label: "as asked", of: lost("dropped") }, { label: "otherwise", of: lost("lost") }] },
    { title: "Resent, errors", unit: perSecond, lines: [{ label: "sent again", of: f => over(f, i => f.node(i, "resent")) }, { label: "errors", of: f => over(f, i => f.node(i, "errors")) }] },
    { title: "Congestion", unit: perSecond, lines: [{ label: "CNPs", of: f => over(f, i => f.node(i, "cnps")) }, { label: "marked", of: lost("marked") },
      { label: "paused", share: true, of: f => name == null ? highest(f.map.lab.nodes.map((_, i) => f.node(i, "paused"))) : over(f, i => f.node(i, "paused")) }] },
    ...ofNode,
  ];
}

// The steps of an axis of bytes.
const powers = Array.from({ length: 45 }, (_, i) => 2 ** i);

const colours = ["--s0", "--s1", "--s2"], dashes = [[], [6, 4], [2, 3]];
// dashOf tells lines apart that have the same colour.
const dashOf = (i: number): number[] => dashes[(i + Math.floor(i / 3)) % 3];

export class Plots {
  windowSize = 120; // seconds; 0: all
  private drawn: { plot: uPlot; what: Plot; words: HTMLElement; values: HTMLElement[] }[] = [];
  private zoomed: [number, number] | null = null;
  private readonly sizes = new ResizeObserver(() => this.resize());
  private ports: Port[] = []; // of the plot of pauses
  private cursorMoves = false; // the pointer is over a plot

  constructor(private readonly view: View, private readonly box: HTMLElement) {
    view.on(["map", "selection", "theme"], () => this.build());
    view.on(["sample", "time"], () => this.update());
    view.on(["event"], () => this.drawn.forEach(d => d.plot.redraw(false)));
  }

  setWindow(seconds: number): void { this.windowSize = seconds; this.zoomed = null; this.update(); }

  // data are what a plot shows: the times, and a column for each line. Tests ask for them.
  data(title: string): uPlot.AlignedData | undefined { return this.drawn.find(d => d.what.title === title)?.plot.data; }

  private build(): void {
    for (const d of this.drawn) d.plot.destroy();
    this.drawn = [];
    if (!this.view.history.map) return;
    this.ports = portsOf(this.view.selection, this.view.history);
    const figures = plotsOf(this.view.selection, this.view.history.map, this.ports).map(what => {
      const chart = h("div", { class: "chart", "aria-hidden": "true" });
      const values = what.lines.map(() => h("b", {}));
      const words = h("p", { class: "sr" });
      const keys = h("ul", { class: "keys" }, ...what.lines.map((l, i) => h("li", { class: `k${i % 3} d${Math.floor(i / 3)}` }, h("i", {}), `${l.label} `, values[i])));
      const figure = h("figure", { "data-plot": what.title }, h("figcaption", {}, h("span", {}, what.title), keys), chart, words);
      return { figure, chart, what, words, values };
    });
    this.sizes.disconnect();
    this.box.replaceChildren(...figures.map(f => f.figure));
    for (const f of figures) this.drawn.push({ plot: this.draw(f.what, f.chart), what: f.what, words: f.words, values: f.values });
    for (const f of figures) this.sizes.observe(f.chart);
    this.update();
  }

  private draw(what: Plot, chart: HTMLElement): uPlot {
    const axis = { stroke: () => css("--dim"), font: "11px Inter, system-ui, sans-serif", grid: { stroke: () => css("--grid"), width: 1 }, ticks: { show: false } };
    const lines = this.view.runs.filter(r => r.map).flatMap((_, run) => what.lines.map((l, i) => ({
      label: l.label, scale: l.share ? "share" : "y", stroke: () => css(colours[i % 3]), width: run ? 1.25 : 1.75, alpha: run ? 0.75 : 1, dash: run ? [3, 3] : dashOf(i), points: { show: u => u.data[0].length < 3, size: 4 }, spanGaps: false,
    } as uPlot.Series)));
    const plot = new uPlot({
      ...sizeOf(chart), padding: [6, 8, 0, 0], legend: { show: false }, series: [{}, ...lines],
      scales: { x: { time: false }, y: { range: (_u, _low, high) => [0, high > 0 ? high * 1.12 : 1] }, share: { range: [0, 1.05] } },
      axes: [{ ...axis, size: 22, gap: 3, space: 60, values: (_u, v) => v.map(tick) },
        { ...axis, size: 62, gap: 4, space: 28, values: (u, v) => v.map(n => n === 0 || !empty(u) ? what.unit(n) : ""), ...(what.unit === bytes ? { incrs: powers } : {}) }],
      cursor: { sync: { key: "time", setSeries: false }, y: false, points: { size: 6 }, drag: { x: true, y: false, setScale: false } },
      hooks: {
        setSelect: [u => {
          if (u.select.width < 6) return;
          this.zoomed = [u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x")];
          u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
          this.update();
        }],
        setCursor: [u => { if (u.cursor.left != null && u.cursor.left >= 0) this.values(u.posToVal(u.cursor.left, "x")); else if (this.cursorMoves) this.values(this.view.now); this.cursorMoves = (u.cursor.left ?? -1) >= 0; }],
        draw: [u => this.marks(u)],
      },
    }, this.columns(what), chart);
    plot.over.addEventListener("dblclick", () => { this.zoomed = null; this.update(); });
    plot.over.addEventListener("click", () => {
      if (plot.cursor.left != null && plot.cursor.left >= 0 && plot.select.width < 6) this.view.go(plot.posToVal(plot.cursor.left, "x"));
    });
    return plot;
  }

  // marks draws a line for each event, and a thicker one at the time that is shown.
  private marks(u: uPlot): void {
    const { ctx, bbox } = u, ratio = devicePixelRatio;
    ctx.save();
    ctx.beginPath(); ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height); ctx.clip();
    const line = (at: number, colour: string, width: number, dash: number[]): void => {
      const x = Math.round(u.valToPos(at, "x", true)) + 0.5;
      if (x < bbox.left || x > bbox.left + bbox.width) return;
      ctx.strokeStyle = colour; ctx.lineWidth = width * ratio; ctx.setLineDash(dash.map(d => d * ratio));
      ctx.beginPath(); ctx.moveTo(x, bbox.top); ctx.lineTo(x, bbox.top + bbox.height); ctx.stroke();
    };
    if (empty(u)) {
      ctx.fillStyle = css("--dim"); ctx.font = `${12 * ratio}px Inter, system-ui, sans-serif`; ctx.textAlign = "center";
      ctx.fillText("none", bbox.left + bbox.width / 2, bbox.top + bbox.height / 2);
    }
    const mark = css("--mark");
    for (const e of this.view.events.filter(e => e.marked).slice(-200)) line(e.at, mark, 1, [2, 3]);
    if (this.view.at != null) line(this.view.at, css("--accent"), 2, []);
    ctx.restore();
  }

  private columns(what: Plot): uPlot.AlignedData {
    const of = (h: History): uPlot.AlignedData => {
      const frames = h.frames.filter(f => f.over > 0 || h.frames.length < 3);
      return [frames.map(f => f.at), ...what.lines.map(l => frames.map(f => valueOf(l, f)))] as uPlot.AlignedData;
    };
    const runs = this.view.runs.filter(r => r.map);
    return runs.length < 2 ? of(runs[0]) : uPlot.join(runs.map(of));
  }

  private update(): void {
    const { start, end } = this.view, follows = this.view.at == null;
    let x: [number, number] = this.zoomed ?? (this.view.replay || this.windowSize === 0 ? [start, Math.max(end, start + 1)] : [Math.max(start, end - this.windowSize), Math.max(end, start + 10)]);
    if (!this.zoomed && !follows && !this.view.replay && this.windowSize && this.view.at! < x[0]) x = [this.view.at! - this.windowSize / 2, this.view.at! + this.windowSize / 2];
    if (x[0] < start && !this.zoomed) x = [start, Math.max(x[1], start + 10)];
    if (portsOf(this.view.selection, this.view.history).map(p => p.label).join() !== this.ports.map(p => p.label).join()) return this.build(); // another was paused
    for (const d of this.drawn) {
      const data = this.columns(d.what);
      if (data.length !== d.plot.series.length) return this.build(); // a second run has come
      d.plot.batch(() => { d.plot.setData(data, false); d.plot.setScale("x", { min: x[0], max: x[1] }); });
    }
    this.values(this.view.now);
  }

  // values writes what each line is at a time.
  private values(at: number): void {
    const f = this.view.history.before(at);
    for (const d of this.drawn) {
      const said = d.what.lines.map((l, i) => {
        const text = f ? (l.share ? percent : d.what.unit)(valueOf(l, f)) || "–" : "–";
        if (d.values[i].textContent !== text) d.values[i].textContent = text;
        return `${l.label} ${text}`;
      });
      d.words.textContent = f ? `${d.what.title} at ${instant(f.at)}: ${said.join(", ")}` : "";
    }
  }

  // point moves the cursor of all plots to a time.
  point(at: number): void {
    const u = this.drawn[0]?.plot;
    if (u) u.setCursor({ left: u.valToPos(at, "x"), top: 10 });
  }

  private resize(): void {
    for (const d of this.drawn) {
      const size = sizeOf(d.plot.root.parentElement!);
      if (size.width !== d.plot.width || size.height !== d.plot.height) d.plot.setSize(size);
    }
  }
}

// empty reports whether there is nothing but zeros to be seen.
const empty = (u: uPlot): boolean => u.data.slice(1).every(c => !c.some(v => v));

const sizeOf = (chart: HTMLElement): { width: number; height: number } => ({ width: Math.max(160, chart.clientWidth), height: Math.max(90, chart.clientHeight) });
