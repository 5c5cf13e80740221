// What is shown: the histories, what is selected, and the time. It is the one owner of all three; others listen.
import { Frame, History } from "./history";
import type { LabEvent } from "./types";

export type Selection =
  | { kind: "lab" }
  | { kind: "node"; node: string }
  | { kind: "link"; link: string } // its first endpoint
  | { kind: "qp"; node: string; qpn: number };

// Kinds of events that tell of what goes on, and change nothing. They have no mark on plots.
const quiet = new Set(["workload-progress", "lab-waiting", "routes-converged", "spanning-tree", "capture-started", "capture-done", "captured", "events-lost"]);

const most = 5000; // events that are kept

export interface Happening { key: string; at: number; kind: string; text: string; node?: string; link?: string; run: number; progress: boolean; marked: boolean }

export type Topic = "map" | "sample" | "time" | "selection" | "event" | "theme" | "state";

export class View {
  readonly runs = [new History(), new History()]; // the second only of a replay of two
  readonly events: Happening[] = [];
  selection: Selection = { kind: "lab" };
  at: number | null = null; // null: the newest
  ended = "";
  connected = false;
  private readonly known = new Set<string>(); // the events that are kept
  private forgotten = -Infinity;              // the time of the newest that is not
  private readonly listeners = new Map<Topic, (() => void)[]>();
  private readonly due = new Set<Topic>();

  get history(): History { return this.runs[0]; }
  get replay(): boolean { return !!this.history.map?.lab.replay; }
  get frame(): Frame | undefined { return this.at == null ? this.history.last : this.history.before(this.at); }
  get now(): number { return this.at ?? this.history.last?.at ?? 0; }
  get end(): number { return Math.max(0, ...this.runs.map(r => r.last?.at ?? 0)); }
  get start(): number { return Math.min(...this.runs.filter(r => r.first).map(r => r.first!.at), this.end); }

  on(topics: Topic[], listener: () => void): void {
    for (const t of topics) this.listeners.set(t, [...this.listeners.get(t) ?? [], listener]);
  }

  // say tells listeners before the next picture, once each, however much has changed.
  say(topic: Topic): void {
    if (this.due.size === 0) requestAnimationFrame(() => {
      const told = new Set([...this.due].flatMap(t => this.listeners.get(t) ?? []));
      this.due.clear();
      for (const l of told) l();
    });
    this.due.add(topic);
  }

  select(s: Selection): void {
    if (JSON.stringify(s) === JSON.stringify(this.selection)) return;
    this.selection = s;
    this.say("selection");
  }

  go(at: number | null): void {
    this.at = at == null ? null : Math.min(Math.max(at, this.start), this.end);
    this.say("time");
  }

  happened(e: LabEvent, run: number): void {
    const at = e.seconds ?? e.at_seconds ?? 0, key = `${run}|${at}|${e.kind}|${e.text}`;
    if (at < this.forgotten || this.known.has(key)) return;
    this.known.add(key);
    const h = { key, at, kind: e.kind, text: e.text, node: e.node, link: e.link, run, progress: e.kind === "workload-progress", marked: !quiet.has(e.kind) };
    let i = this.events.length;
    while (i > 0 && this.events[i - 1].at > at) i--;
    this.events.splice(i, 0, h);
    if (this.events.length > most) {
      const oldest = this.events.shift()!;
      this.known.delete(oldest.key);
      this.forgotten = oldest.at;
    }
    this.say("event");
  }
}
