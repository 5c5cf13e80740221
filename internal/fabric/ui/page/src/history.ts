// A History has the samples of a run, packed: a lab of a thousand nodes has a hundred kilobytes a second, which as
// objects would be ten times as much.
import type { Lab, Sample, WorkloadSample } from "./types";

// The numbers of a node and of a direction, in their order. What is not known is NaN.
export const nodeFields = ["out", "in", "packets", "resent", "errors", "cnps", "paused", "qps", "conns"] as const;
export const endFields = ["rate", "packets", "dropped", "lost", "marked", "load", "queue", "delay"] as const;
type NodeField = (typeof nodeFields)[number];
type EndField = (typeof endFields)[number];
// The numbers of a queue pair, behind its node and its number.
export const pairFields = ["rate", "target", "window", "cnps", "resent"] as const;
type PairField = (typeof pairFields)[number];
const NF = nodeFields.length, PF = pairFields.length + 2, EF = endFields.length;
const nodeAt = Object.fromEntries(nodeFields.map((f, i) => [f, i])) as Record<NodeField, number>;
const endAt = Object.fromEntries(endFields.map((f, i) => [f, i])) as Record<EndField, number>;

// Remembered samples of a lab that goes on: 15 minutes at one a second.
const most = 900;

// A MapOf finds the nodes and links of a map by name.
export class MapOf {
  readonly node = new Map<string, number>();
  readonly link = new Map<string, number>(); // by either endpoint
  readonly linksOf: number[][];
  constructor(readonly lab: Lab) {
    lab.nodes.forEach((n, i) => this.node.set(n.name, i));
    this.linksOf = lab.nodes.map(() => []);
    lab.links.forEach((l, i) => {
      for (const e of l.endpoints) this.link.set(e, i);
      this.linksOf[l.nodes[0]].push(i);
      if (l.nodes[1] !== l.nodes[0]) this.linksOf[l.nodes[1]].push(i);
    });
  }
}

export class Frame {
  readonly at: number;
  readonly over: number;
  readonly state: string;
  readonly workloads: WorkloadSample[];
  private readonly nodes: Float32Array;
  private readonly ends: Float32Array;
  private readonly states: string[];
  private readonly healths: string[];
  private readonly flags: Uint8Array; // of a link: 1 it is up, 2 and 4 its ends are cut
  private readonly sets: (string[] | null)[];
  private readonly pairs: Float32Array; // a queue pair's number has 24 bits, as many as are exact
  private readonly peers: string[];
  private readonly pauses: Float32Array; // the direction, the class, the share of the time

  constructor(readonly map: MapOf, s: Sample, before: Frame | undefined) {
    this.at = s.at; this.over = s.over; this.state = s.state; this.workloads = s.workloads ?? [];
    const nodes = s.nodes ?? [], links = s.links ?? [];
    this.nodes = new Float32Array(map.lab.nodes.length * NF);
    this.states = map.lab.nodes.map((_, i) => nodes[i]?.state ?? "");
    this.healths = map.lab.nodes.map((_, i) => nodes[i]?.health ?? "");
    nodes.forEach((n, i) => nodeFields.forEach((f, k) => { this.nodes[i * NF + k] = n[f] ?? 0; }));
    const pairs = nodes.flatMap((n, i) => (n.pairs ?? []).map(p => [i, p] as const));
    this.pairs = new Float32Array(pairs.length * PF);
    this.peers = pairs.map(([i, p], k) => {
      this.pairs.set([i, p.qp, ...pairFields.map(f => p[f] ?? 0)], k * PF);
      const was = before?.peers[k]; // equal texts are one
      return was === p.peer ? was ?? "" : p.peer ?? "";
    });
    this.pauses = new Float32Array(links.flatMap((l, i) => l.ends.flatMap((d, end) => (d.pauses ?? []).flatMap(p => [2 * i + end, p.class, p.share]))));
    this.ends = new Float32Array(map.lab.links.length * 2 * EF);
    this.flags = new Uint8Array(map.lab.links.length);
    this.sets = [];
    links.forEach((l, i) => {
      this.flags[i] = (l.up ? 1 : 0) | (l.ends[0].cut ? 2 : 0) | (l.ends[1].cut ? 4 : 0);
      l.ends.forEach((d, end) => {
        endFields.forEach((f, k) => { this.ends[(2 * i + end) * EF + k] = d[f] ?? (k < endAt.load ? 0 : NaN); });
        // Settings seldom change: equal ones are the same list.
        const was = before?.map === map ? before.sets[2 * i + end] : undefined, now = d.set ?? null;
        this.sets.push(was && now && was.join() === now.join() ? was : now);
      });
    });
  }

  node(i: number, f: NodeField): number { return this.nodes[i * NF + nodeAt[f]]; }
  end(link: number, end: number, f: EndField): number { return this.ends[(2 * link + end) * EF + endAt[f]]; }
  nodeState(i: number): string { return this.states[i]; }
  health(i: number): string { return this.healths[i]; }
  up(link: number): boolean { return (this.flags[link] & 1) !== 0; }
  cut(link: number, end: number): boolean { return (this.flags[link] & (2 << end)) !== 0; }
  set(link: number, end: number): string[] { return this.sets[2 * link + end] ?? []; }
  // pairsOf returns the queue pairs of a node.
  pairsOf(node: number): { qp: number; peer: string; is: (f: PairField) => number }[] {
    const found = [];
    for (let k = 0; k < this.peers.length; k++) if (this.pairs[k * PF] === node) found.push({ qp: this.pairs[k * PF + 1], peer: this.peers[k], is: (f: PairField) => this.pairs[k * PF + 2 + pairFields.indexOf(f)] });
    return found;
  }
  pair(node: number, qp: number, f: PairField): number | null {
    for (let at = 0; at < this.pairs.length; at += PF) if (this.pairs[at] === node && this.pairs[at + 1] === qp) return this.pairs[at + 2 + pairFields.indexOf(f)];
    return null;
  }
  // pausesOf returns the classes that an end of a link was ever kept from sending, each with the share of the time.
  pausesOf(link: number, end: number): [number, number][] {
    const direction = 2 * link + end, found: [number, number][] = [];
    let low = 0, high = this.pauses.length / 3; // they are in the order of directions
    while (low < high) {
      const mid = (low + high) >> 1;
      if (this.pauses[3 * mid] < direction) low = mid + 1; else high = mid;
    }
    for (let at = 3 * low; this.pauses[at] === direction; at += 3) found.push([this.pauses[at + 1], this.pauses[at + 2]]);
    return found;
  }
  paused(link: number, end: number, of: number): number { return this.pausesOf(link, end).find(([c]) => c === of)?.[1] ?? 0; }
  // loss is the share of the packets of a direction that did not arrive.
  loss(link: number, end: number): number {
    const gone = this.end(link, end, "dropped") + this.end(link, end, "lost");
    return gone > 0 ? Math.min(1, gone / Math.max(this.end(link, end, "packets"), gone)) : 0;
  }
}

export class History {
  readonly frames: Frame[] = [];
  map: MapOf | null = null;
  private text = "";

  // setMap returns whether the map is another than before.
  setMap(text: string): boolean {
    if (text === this.text) return false;
    this.text = text;
    this.map = new MapOf(JSON.parse(text) as Lab);
    return true;
  }

  // add returns whether the sample is new: a stream that is taken up again begins with what is known.
  add(s: Sample): boolean {
    const last = this.frames[this.frames.length - 1];
    if (!this.map || last && s.at <= last.at) return false;
    this.frames.push(new Frame(this.map, s, last));
    if (!this.map.lab.replay && this.frames.length > most) this.frames.shift();
    return true;
  }

  get last(): Frame | undefined { return this.frames[this.frames.length - 1]; }
  get first(): Frame | undefined { return this.frames[0]; }

  // before returns the last frame up to a time, or the first.
  before(at: number): Frame | undefined {
    let low = 0, high = this.frames.length;
    while (low < high) {
      const mid = (low + high) >> 1;
      if (this.frames[mid].at <= at + 1e-6) low = mid + 1; else high = mid;
    }
    return this.frames[Math.max(0, low - 1)];
  }
}
