// The page: what is on it is wired together here. View has what is shown; LabMap, Plots, Panels and the lists show it.
import { undo } from "./actions";
import { at } from "./dom";
import { events } from "./events";
import { LabMap, legend } from "./map";
import { Panels, tabs } from "./panel";
import { Plots } from "./plots";
import type { Measure } from "./scale";
import { search } from "./search";
import { follow } from "./stream";
import { instant } from "./units";
import { View } from "./view";

const view = new View();
const map = new LabMap(view, at("map"));
const plots = new Plots(view, at("plots"));
new Panels(view);
events(view, t => plots.point(t));
search(view, s => map.show(s));

// Time: a slider over all that is remembered, and whether the page follows the newest or, of a replay, plays.
const time = at<HTMLInputElement>("time"), play = at<HTMLButtonElement>("play");
let playing = 0; // the id of the next picture of a replay that plays
const stopPlaying = (): void => { cancelAnimationFrame(playing); playing = 0; };
const startPlaying = (): void => {
  if (view.now >= view.end) view.go(view.start);
  let before = performance.now();
  const step = (now: number): void => {
    view.go(view.now + (now - before) / 1000);
    before = now;
    playing = view.now >= view.end ? 0 : requestAnimationFrame(step);
    if (!playing) view.say("time");
  };
  playing = requestAnimationFrame(step);
};
const toggle = (): void => {
  if (view.replay) {
    if (playing) stopPlaying(); else startPlaying();
    view.say("time");
  } else view.go(view.at == null ? view.now : null);
};
play.addEventListener("click", toggle);
time.addEventListener("input", () => { stopPlaying(); view.go(Number(time.value)); });
view.on(["sample", "time", "map", "state"], () => {
  time.min = String(view.start);
  time.max = String(view.end);
  time.value = String(view.now);
  time.setAttribute("aria-valuetext", instant(view.now));
  at("now").textContent = instant(view.now) || "0.0 s";
  const runs = view.replay ? playing !== 0 : view.at == null;
  play.textContent = view.replay ? (runs ? "❚❚ Stop" : "▶ Play") : runs ? "❚❚ Hold" : "▶ Follow";
  play.setAttribute("aria-pressed", String(runs));
  play.classList.toggle("primary", !runs);
});
view.on(["map"], () => {
  const lab = view.history.map!.lab;
  document.title = `${lab.lab} – ndklab`;
  at("lab").textContent = lab.lab;
  at("size").textContent = `${lab.nodes.length} nodes, ${lab.links.length} ${lab.links.length === 1 ? "link" : "links"}, seed ${lab.seed}`;
  if (lab.replay && view.at == null) view.go(view.start);
  at("undo").hidden = !!lab.replay;
  at("window").hidden = !!lab.replay;
});
view.on(["state", "map", "sample"], () => {
  const lab = view.history.map?.lab, f = view.frame;
  const [word, kind] = view.ended ? [`ended: ${view.ended}`, "over"] : !view.connected ? ["not connected", "bad"] : lab?.replay ? ["replay", "over"] : [f?.state || "live", "good"];
  const state = at("state");
  if (state.textContent !== word) { state.textContent = word; state.title = word; }
  state.className = `chip ${kind}`;
});
at("second").hidden = true;
view.on(["sample"], () => { at("second").hidden = !view.runs[1].map; });

// What is drawn, and how.
const measure = at<HTMLSelectElement>("measure");
const setMeasure = (m: Measure): void => { measure.value = m; map.setMeasure(m); legend(m); };
measure.addEventListener("change", () => setMeasure(measure.value as Measure));
legend("load");
const flows = at<HTMLButtonElement>("flows");
const toggleFlows = (): void => { map.setFlows(!map.flows); flows.setAttribute("aria-pressed", String(map.flows)); };
flows.addEventListener("click", toggleFlows);
at("fit").addEventListener("click", () => map.fit());
at("in").addEventListener("click", () => map.zoom(1.4));
at("out").addEventListener("click", () => map.zoom(1 / 1.4));
at<HTMLSelectElement>("window").addEventListener("change", e => plots.setWindow(Number((e.target as HTMLSelectElement).value)));

// Light or dark: as the system has it, unless the button says otherwise. It is remembered for as long as the page is open.
const system = matchMedia("(prefers-color-scheme: dark)");
let dark = system.matches;
const setTheme = (d: boolean): void => {
  dark = d;
  document.documentElement.dataset.theme = d ? "dark" : "light";
  at("theme").textContent = d ? "☀" : "☾";
  at("theme").setAttribute("aria-label", d ? "Light colours" : "Dark colours");
  view.say("theme");
};
setTheme(dark);
system.addEventListener("change", e => setTheme(e.matches));
at("theme").addEventListener("click", () => setTheme(!dark));

at("undo").addEventListener("click", () => void undo());
const help = at<HTMLDialogElement>("help");
at("help-open").addEventListener("click", () => help.showModal());
at("help-close").addEventListener("click", () => help.close());

// Events and commands share a place.
const boxes = { Events: at("events-box"), Commands: at("commands-box") }, lower = at("lower");
const happened = tabs("What happened", Object.keys(boxes), name => {
  for (const [n, b] of Object.entries(boxes)) b.hidden = n !== name;
  return () => {};
});
lower.prepend(happened.element);

// Keys. A field, a list of choices and a terminal have their own.
const neighbours = (by: number): void => {
  const nodes = view.history.map?.lab.nodes ?? [];
  if (!nodes.length) return;
  const s = view.selection, i = s.kind === "node" || s.kind === "qp" ? view.history.map!.node.get(s.node) ?? -1 : -1;
  view.select({ kind: "node", node: nodes[(i + by + nodes.length) % nodes.length].name });
  map.show(view.selection);
};
const measures: Measure[] = ["load", "loss", "queue"];
const keys: Record<string, () => void> = {
  "/": () => at("search").focus(), f: () => map.fit(), "+": () => map.zoom(1.4), "=": () => map.zoom(1.4), "-": () => map.zoom(1 / 1.4),
  " ": toggle, ArrowLeft: () => { stopPlaying(); view.go(view.now - 1); }, ArrowRight: () => { stopPlaying(); view.go(view.now + 1); },
  Home: () => view.go(view.start), End: () => view.go(view.replay ? view.end : null),
  n: () => neighbours(1), p: () => neighbours(-1), w: toggleFlows, c: () => setMeasure(measures[(measures.indexOf(map.measure) + 1) % 3]),
  t: () => setTheme(!dark), "?": () => help.showModal(), Escape: () => view.select({ kind: "lab" }),
};
document.addEventListener("keydown", e => {
  const target = e.target as HTMLElement;
  if ((e.ctrlKey || e.metaKey) && e.key.toLowerCase() === "z" && !target.matches("input[type=text], input[type=search], textarea")) {
    e.preventDefault();
    void undo();
    return;
  }
  if (e.ctrlKey || e.metaKey || e.altKey || help.open || target.closest(".shell")) return;
  // What is typed, or moves a slider or from tab to tab, is for what has the focus.
  if (target.matches("input:not([type=range]):not([type=checkbox]), select, textarea")) return;
  if (e.key === " " && target.matches("button, summary, a, input")) return;
  if (/^(Arrow|Home$|End$)/.test(e.key) && target.matches("[role=tab], input")) return;
  const act = keys[e.key];
  if (act) { e.preventDefault(); act(); }
});

follow(view);

// For the tests of the page, which ask it what it shows.
Object.assign(window, { ndklab: { view, map, plots } });
