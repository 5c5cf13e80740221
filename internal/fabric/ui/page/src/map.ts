// The map: nodes where the server puts them, joined by links. A link has two halves, each of the colour of what the node
// at its end sends; its width grows with the rate. Nodes of a group are drawn as one where they would be too small.
import cytoscape from "cytoscape";
import { at, css } from "./dom";
import type { Frame } from "./history";
import { scales, stepOf, steps, type Measure } from "./scale";
import type { Lab } from "./types";
import { percent, shorten } from "./units";
import type { Selection, View } from "./view";

const collapsed = 15;    // pixels between neighbours below which groups are drawn as one
const shapes: Record<string, string> = { host: "ellipse", switch: "round-rectangle", router: "hexagon", external: "triangle" };

export class LabMap {
  measure: Measure = "load";
  flows = false;
  private cy: cytoscape.Core;
  private lab: Lab | null = null;
  private linkKey: string[] = [];   // how links are drawn, to change those alone that differ
  private nodeKey: string[] = [];
  private spacing = 64;              // between neighbours, at zoom 1
  private groups: Group[] = [];
  private bounds = { x0: 0, x1: 1, y0: 0, y1: 1 };
  private place: { x: number; y: number }[] = [];
  // What is drawn of groups that are open, or of those that are closed: the other is not made before it is needed.
  private parts: { open: cytoscape.CollectionReturnValue | null; closed: cytoscape.CollectionReturnValue | null } = { open: null, closed: null };
  private groupOf: number[] = [];
  private bundles = new Map<string, number[]>(); // links between groups
  private bundleKey = new Map<string, string>();
  private closed: boolean | null = null; // null: nothing is drawn
  private mapOf: unknown = null;    // that is drawn

  constructor(private readonly view: View, private readonly box: HTMLElement) {
    this.cy = cytoscape({
      container: box, elements: [], layout: { name: "preset" }, style: this.style(),
      minZoom: 0.02, maxZoom: 4, autoungrabify: true, boxSelectionEnabled: false, selectionType: "single",
      textureOnViewport: true, pixelRatio: "auto",
    } as cytoscape.CytoscapeOptions);
    this.cy.on("tap", e => {
      if (e.target === this.cy) this.view.select({ kind: "lab" });
      else this.tapped(e.target as cytoscape.SingularElementReturnValue);
    });
    this.cy.on("zoom", () => this.fold());
    this.cy.on("mouseover", "node, edge", () => { this.box.classList.add("over"); });
    this.cy.on("mouseout", "node, edge", () => { this.box.classList.remove("over"); });
    new ResizeObserver(() => { this.cy.resize(); if (!this.touched) this.fit(); }).observe(box);
    this.cy.on("dragpan scrollzoom pinchzoom", () => { this.touched = true; });
    view.on(["map", "sample", "time"], () => this.update());
    view.on(["selection"], () => this.mark());
    view.on(["theme"], () => this.recolour());
  }
  private touched = false; // the reader has moved the map

  // count is how much is drawn. Tests ask for it.
  get count(): { nodes: number; links: number; groups: number; closed: boolean } {
    return { nodes: this.cy.nodes(".node").length, links: this.cy.edges().length, groups: this.groups.length, closed: !!this.closed };
  }

  // label is what is written beside a link.
  label(endpoint: string): string { return this.element({ kind: "link", link: endpoint })?.data("label") ?? ""; }

  fit(): void {
    const w = this.box.clientWidth, h = this.box.clientHeight, pad = Math.min(44, w / 12), b = this.bounds;
    const zoom = Math.min(1.6, Math.max(0.02, Math.min((w - 2 * pad) / (b.x1 - b.x0), (h - 2 * pad) / (b.y1 - b.y0))));
    this.fold(zoom); // before elements are drawn in vain
    this.cy.viewport({ zoom, pan: { x: (w - zoom * (b.x0 + b.x1)) / 2, y: (h - zoom * (b.y0 + b.y1)) / 2 } });
    this.touched = false;
  }

  zoom(by: number): void {
    this.touched = true;
    this.cy.zoom({ level: this.cy.zoom() * by, renderedPosition: { x: this.box.clientWidth / 2, y: this.box.clientHeight / 2 } });
  }

  // show centres what is selected, large enough to be read.
  show(s: Selection): void {
    this.touched = true;
    this.cy.zoom(Math.max(this.cy.zoom(), 0.8));
    this.fold();
    const e = this.element(s);
    if (!e || e.empty()) return;
    this.cy.center(e);
  }

  setMeasure(m: Measure): void { this.measure = m; this.linkKey = []; this.bundleKey.clear(); this.update(); }
  setFlows(on: boolean): void { this.flows = on; this.mark(); }

  private tapped(e: cytoscape.SingularElementReturnValue): void {
    const id = e.id(), i = Number(id.slice(1)), lab = this.lab!;
    if (id[0] === "n") this.view.select({ kind: "node", node: lab.nodes[i].name });
    else if (id[0] === "l") this.view.select({ kind: "link", link: lab.links[i].endpoints[0] });
    else if (e.isNode() && this.closed) { // a group opens
      this.touched = true;
      const g = this.groups[i].box, w = this.box.clientWidth, h = this.box.clientHeight;
      const zoom = Math.max(1.3 * collapsed / this.spacing, Math.min(1.2, w / (g.w + 120), h / (g.h + 120)));
      this.fold(zoom);
      this.cy.viewport({ zoom, pan: { x: w / 2 - zoom * g.x, y: h / 2 - zoom * g.y } });
    }
  }

  private element(s: Selection): cytoscape.CollectionReturnValue | null {
    const map = this.view.history.map;
    if (!map || s.kind === "lab") return null;
    const i = s.kind === "link" ? map.link.get(s.link) : map.node.get(s.node);
    return i == null ? null : this.cy.$id((s.kind === "link" ? "l" : "n") + i) as unknown as cytoscape.CollectionReturnValue;
  }

  private update(): void {
    const map = this.view.history.map;
    if (!map) return;
    if (this.mapOf !== map) { this.mapOf = map; this.build(map.lab); }
    const frame = this.view.frame;
    if (frame && frame.map === map) this.paint(frame);
  }

  private build(lab: Lab): void {
    this.lab = lab; this.bundles.clear(); this.closed = null;
    this.spacing = Math.min(170, Math.max(64, 240 / Math.sqrt(lab.nodes.length)));
    const scale = this.spacing / neighbour(lab);
    this.place = lab.nodes.map(n => ({ x: n.x * scale, y: n.y * scale }));
    const box = (members: number[]) => {
      const xs = members.map(m => this.place[m].x), ys = members.map(m => this.place[m].y);
      return { x0: Math.min(...xs), x1: Math.max(...xs), y0: Math.min(...ys), y1: Math.max(...ys) };
    };
    this.bounds = box(lab.nodes.map((_, i) => i));
    this.bounds.x1 += 1; this.bounds.y1 += 24; // a label is below its node
    const byGroup = new Map<string, number[]>();
    lab.nodes.forEach((n, i) => { if (n.group) byGroup.set(n.group, [...byGroup.get(n.group) ?? [], i]); });
    this.groups = [...byGroup].filter(([, m]) => m.length > 1).map(([name, members]) => {
      const b = box(members);
      return { name, members, box: { x: (b.x0 + b.x1) / 2, y: (b.y0 + b.y1) / 2 + 5, w: b.x1 - b.x0 + 46, h: b.y1 - b.y0 + 58 } };
    });
    this.groupOf = lab.nodes.map(() => -1);
    this.groups.forEach((g, i) => g.members.forEach(m => { this.groupOf[m] = i; }));
    lab.links.forEach((l, i) => {
      const [a, b] = l.nodes.map(n => this.groupOf[n] < 0 ? `n${n}` : `g${this.groupOf[n]}`);
      if (a !== b && (a[0] === "g" || b[0] === "g")) {
        const key = a < b ? `${a}-${b}` : `${b}-${a}`;
        this.bundles.set(key, [...this.bundles.get(key) ?? [], i]);
      }
    });
    const grouped = (i: number): boolean => this.groupOf[i] >= 0;
    this.cy.elements().remove();
    this.parts = { open: null, closed: null };
    this.cy.add([...this.nodes(i => !grouped(i)), ...this.links(l => !l.nodes.some(grouped))]);
    this.fit();
    this.box.setAttribute("aria-label", `Map of ${lab.nodes.length} nodes and ${lab.links.length} links. The lists of nodes and links have the same in words.`);
  }

  private nodes(which: (i: number) => boolean): cytoscape.ElementDefinition[] {
    return this.lab!.nodes.flatMap((n, i) => which(i) ? [{ group: "nodes" as const, classes: `node ${n.kind in shapes ? n.kind : "host"}`, data: { id: `n${i}`, label: shorten(n.name, 28) }, position: { ...this.place[i] } }] : []);
  }

  private links(which: (l: Lab["links"][number]) => boolean): cytoscape.ElementDefinition[] {
    const c = palette()[0];
    return this.lab!.links.flatMap((l, i) => which(l) ? [{ group: "edges" as const, classes: "link", data: { id: `l${i}`, source: `n${l.nodes[0]}`, target: `n${l.nodes[1]}`, c, d: c, w: 1.5, label: "" } }] : []);
  }

  private groupNodes(closed: boolean, zoom: number): cytoscape.ElementDefinition[] {
    return this.groups.map((g, i) => ({ group: "nodes" as const, classes: closed ? "group closed" : "group", position: { x: g.box.x, y: g.box.y },
      data: { id: closed ? `g${i}` : `o${i}`, label: `${shorten(g.name, 28)} (${g.members.length})`, w: g.box.w, h: g.box.h, size: Math.min(11 / zoom, g.box.w / 9) } }));
  }

  // fold draws groups as one, or opens them, by how far apart nodes are on the screen.
  private fold(zoom = this.cy.zoom()): void {
    const lab = this.lab, closed = this.groups.length > 1 && zoom * this.spacing < collapsed;
    if (!lab || closed === this.closed) return;
    this.closed = closed;
    this.linkKey = []; this.nodeKey = []; this.bundleKey.clear();
    const grouped = (i: number): boolean => this.groupOf[i] >= 0, c = palette()[0];
    this.cy.batch(() => {
      (closed ? this.parts.open : this.parts.closed)?.remove();
      const was = closed ? this.parts.closed : this.parts.open;
      if (was) was.restore();
      else if (closed) this.parts.closed = this.cy.add([...this.groupNodes(true, zoom), ...[...this.bundles].map(([key, links]) => {
        const [source, target] = key.split("-");
        return { group: "edges" as const, classes: "bundle", data: { id: `b${key}`, source, target, c, d: c, w: Math.min(8, 1.5 + Math.log2(links.length)), label: "" } };
      })]);
      else this.parts.open = this.cy.add([...this.groupNodes(false, zoom), ...this.nodes(grouped), ...this.links(l => l.nodes.some(grouped))]);
      this.cy.elements(".node, .link").toggleClass("far", closed);
    });
    const frame = this.view.frame;
    if (frame && frame.map === this.mapOf) this.paint(frame);
    this.mark();
  }

  private paint(f: Frame): void {
    const lab = this.lab!, measure = this.measure, colours = palette();
    this.cy.batch(() => {
      lab.nodes.forEach((n, i) => {
        const state = f.nodeState(i), health = f.health(i);
        const key = n.kind === "external" || !state ? "ready" : state === "ready" && health === "unhealthy" ? "unhealthy" : state;
        if (this.nodeKey[i] === key) return;
        this.nodeKey[i] = key;
        const e = this.cy.$id(`n${i}`);
        if (e.empty()) return;
        e.removeClass("ready paused down starting unresponsive unhealthy");
        e.addClass(key);
        e.data("label", (signs[key] ?? "") + shorten(n.name, 28));
      });
      const looks = lab.links.map((_, i) => this.look(f, [i]));
      this.thin(looks);
      lab.links.forEach((_, i) => {
        const look = looks[i];
        if (this.linkKey[i] === look.key) return;
        this.linkKey[i] = look.key;
        const e = this.cy.$id(`l${i}`);
        if (e.nonempty()) this.draw(e, look, colours, true);
      });
      if (this.closed) for (const [key, links] of this.bundles) {
        const look = this.look(f, links);
        if (this.bundleKey.get(key) === look.key) continue;
        this.bundleKey.set(key, look.key);
        this.draw(this.cy.$id(`b${key}`), look, colours, false);
      }
    });
    this.box.dataset.measure = measure;
  }

  // look is how a link is drawn, or several that are drawn as one: the worst of each step.
  private look(f: Frame, links: number[]): Look {
    const scale = scales[this.measure];
    const step = [0, 0];
    let top = 0, rate = 0, loss = 0, down = 0, cut = 0;
    for (const l of links) {
      const one = f.cut(l, 0) && f.cut(l, 1) ? 3 : f.cut(l, 0) ? 1 : f.cut(l, 1) ? 2 : 0;
      if (!f.up(l)) down++; else if (one) cut |= one;
      for (let e = 0; e < 2; e++) {
        const v = scale.value(f, l, e);
        step[e] = Math.max(step[e], stepOf(this.measure, v));
        top = Math.max(top, v);
        rate = Math.max(rate, f.end(l, e, "rate"));
        loss = Math.max(loss, f.loss(l, e));
      }
    }
    let label = "";
    if (down === links.length) label = "✕ down";
    else if (cut === 3) label = "✕ cut";
    else if (cut) label = cut === 1 ? "✕ cut →" : "← cut ✕";
    else if (Math.max(...step) >= 5) label = scale.show(top);
    else if (loss > 0.01 && this.measure === "load") label = `loss ${percent(loss)}`;
    const broken = down === links.length || cut > 0;
    const width = rate > 0 ? Math.min(6, Math.max(1.5, 1.5 + 1.1 * Math.round(2 * Math.log10(rate / 1e7)) / 2)) : 1.5;
    return { get key() { return `${this.step}|${this.broken}|${this.label}|${this.width}`; }, step, broken, label, width, weight: Math.max(...step) + loss };
  }

  // thin leaves of the labels of loads and losses the worst that have room. Those of links that are cut stay.
  private thin(looks: Look[]): void {
    const lab = this.lab!, taken: { x: number; y: number }[] = [];
    const order = looks.map((look, i) => ({ look, i })).filter(({ look }) => look.label && !look.broken).sort((a, b) => b.look.weight - a.look.weight || a.i - b.i);
    for (const { look, i } of order) {
      const [a, b] = lab.links[i].nodes.map(n => this.place[n]), x = (a.x + b.x) / 2, y = (a.y + b.y) / 2;
      if (taken.length >= 16 || taken.some(t => Math.abs(t.x - x) < 1.2 * this.spacing && Math.abs(t.y - y) < 0.4 * this.spacing)) look.label = "";
      else taken.push({ x, y });
    }
  }

  private draw(e: cytoscape.CollectionReturnValue, l: Look, colours: string[], sized: boolean): void {
    const [a, b] = l.step.map(s => colours[s]);
    e.data(sized ? { c: a, d: `${a} ${a} ${b} ${b}`, label: l.label, w: this.closed ? 3 * l.width : l.width } : { c: colours[Math.max(...l.step)], label: l.label });
    e.toggleClass("two", a !== b && sized);
    e.toggleClass("broken", l.broken);
  }

  // mark draws what is selected, and the flows through it or, if they are asked for, all.
  private mark(): void {
    const lab = this.lab, s = this.view.selection, map = this.view.history.map;
    if (!lab || !map) return;
    const node = s.kind === "node" || s.kind === "qp" ? map.node.get(s.node) : undefined;
    const link = s.kind === "link" ? map.link.get(s.link) : undefined;
    this.cy.batch(() => {
      this.cy.elements(".selected").removeClass("selected");
      this.cy.edges(".forth, .back").removeClass("forth back");
      this.element(s)?.addClass("selected");
      for (const f of lab.flows ?? []) {
        const through = node != null ? f.from === node || f.to === node : link != null ? (f.hops ?? []).some(h => h.link === link) : this.flows;
        if (through && (this.flows || node != null || link != null)) for (const h of f.hops ?? []) this.cy.$id(`l${h.link}`).addClass(h.end === 0 ? "forth" : "back");
      }
    });
  }

  private recolour(): void {
    this.linkKey = []; this.bundleKey.clear();
    this.cy.style(this.style());
    this.update();
  }

  private style(): cytoscape.StylesheetJson {
    const [text, dim, surface, edge, accent, warn, bad, quiet] = ["--text", "--dim", "--map", "--edge", "--accent", "--warn", "--bad", "--quiet"].map(css);
    const font = "Inter, system-ui, -apple-system, Segoe UI, Roboto, Noto Sans, DejaVu Sans, sans-serif";
    return [
      { selector: "node.node", style: { width: 20, height: 20, "background-color": quiet, "border-width": 2, "border-color": dim, label: "data(label)", "font-family": font, "font-size": 13,
        color: text, "text-valign": "bottom", "text-margin-y": 4, "min-zoomed-font-size": 7, "text-outline-color": surface, "text-outline-width": 2, "z-index": 10, "text-max-width": "120px", "text-wrap": "ellipsis" } },
      ...Object.entries(shapes).map(([kind, shape]) => ({ selector: `node.${kind}`, style: { shape } })),
      { selector: "node.switch", style: { width: 26, height: 26 } },
      { selector: "node.router", style: { width: 30, height: 27 } },
      { selector: "node.external", style: { width: 26, height: 24 } },
      { selector: "node.paused, node.starting, node.unresponsive, node.unhealthy", style: { "border-color": warn, "border-style": "dashed", color: warn, "background-opacity": 0.5 } },
      { selector: "node.down", style: { "border-color": bad, "border-style": "dotted", color: bad, "background-opacity": 0 } },
      { selector: "node.group", style: { shape: "round-rectangle", width: "data(w)", height: "data(h)", "background-color": quiet, "background-opacity": 0.28, "border-width": 1, "border-color": edge,
        label: "data(label)", "font-family": font, "font-size": 12, color: dim, "text-valign": "top", "text-halign": "center", "text-margin-y": -4, "min-zoomed-font-size": 7, "z-index": 0, events: "no" } },
      { selector: "node.group.closed", style: { "background-opacity": 1, "background-color": quiet, "border-color": dim, "border-width": 4, width: "data(w)", height: "data(h)", "font-size": "data(size)", color: text, "z-index": 10, events: "yes", "text-outline-color": surface, "text-outline-width": 6 } },
      { selector: "node.far", style: { width: 80, height: 72, "border-width": 6, "font-size": 56, "text-outline-width": 8, "text-max-width": "600px" } },
      { selector: "edge", style: { "curve-style": "straight", "line-color": "data(c)", width: "data(w)", label: "data(label)", "font-family": font, "font-size": 13, color: text, "text-background-color": surface,
        "text-background-opacity": 0.9, "text-background-padding": "2px", "text-background-shape": "roundrectangle", "min-zoomed-font-size": 7, "line-cap": "round" } },
      { selector: "edge.link", style: { "curve-style": "bezier", "control-point-step-size": 24 } },
      { selector: "edge.two", style: { "line-fill": "linear-gradient", "line-gradient-stop-colors": "data(d)", "line-gradient-stop-positions": "0 50 50 100" } },
      { selector: "edge.bundle", style: { "curve-style": "straight", width: (e: cytoscape.EdgeSingular) => 4 * (e.data("w") as number), "font-size": 40, "text-background-padding": "6px" } },
      { selector: "edge.broken", style: { "line-style": "dashed", "line-dash-pattern": [5, 6], "line-color": bad, "line-fill": "solid", color: bad, "line-cap": "butt", width: 2 } },
      { selector: "edge.forth, edge.back", style: { "underlay-color": accent, "underlay-opacity": 0.25, "underlay-padding": 5, "arrow-scale": 1.3 } },
      { selector: "edge.forth", style: { "mid-target-arrow-shape": "triangle", "mid-target-arrow-color": accent } },
      { selector: "edge.back", style: { "mid-source-arrow-shape": "triangle", "mid-source-arrow-color": accent } },
      { selector: ".selected", style: { "underlay-color": accent, "underlay-opacity": 0.45, "underlay-padding": 7 } },
      { selector: "node.selected", style: { "border-color": accent, "border-width": 3, "font-weight": "bold", "min-zoomed-font-size": 0 } },
    ] as unknown as cytoscape.StylesheetJson;
  }
}

interface Group { name: string; members: number[]; box: { x: number; y: number; w: number; h: number } }
interface Look { readonly key: string; weight: number; step: number[]; broken: boolean; label: string; width: number }

const signs: Record<string, string> = { paused: "❚❚ ", down: "✕ ", starting: "… ", unresponsive: "? ", unhealthy: "! " };

export const palette = (): string[] => Array.from({ length: steps }, (_, i) => css(`--l${i}`));

// neighbour is how far apart nodes are: the distance to the nearest that a tenth of the nodes fall below.
function neighbour(lab: Lab): number {
  const near = lab.nodes.map((a, i) => {
    let best = Infinity;
    lab.nodes.forEach((b, j) => { if (i !== j) best = Math.min(best, (a.x - b.x) ** 2 + (a.y - b.y) ** 2); });
    return Math.sqrt(best);
  }).filter(d => d > 0 && isFinite(d)).sort((a, b) => a - b);
  return near[Math.floor(near.length / 10)] ?? 64;
}

// legend writes what shapes, colours and strokes of the map mean.
export function legend(measure: Measure): void {
  const box = at("legend"), s = scales[measure];
  const words = ["none", ...s.bounds.map(b => `≤ ${s.show(b)}`), `> ${s.show(s.bounds[s.bounds.length - 1])}`];
  at("legend-title").textContent = s.title;
  box.replaceChildren(...words.map((w, i) => {
    const item = document.createElement("li"), key = document.createElement("i");
    key.className = `step l${i}`;
    item.append(key, w);
    return item;
  }));
}
