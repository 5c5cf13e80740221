// The panel of what is selected. A Part is a piece of it that is written anew when the lab has news.
import { at, h, isolated } from "./dom";
import { labPanel } from "./panel_lab";
import { linkPanel } from "./panel_link";
import { nodePanel } from "./panel_node";
import { qpPanel } from "./panel_qp";
import type { View } from "./view";

export interface Panel {
  title: (string | Node)[];
  body: Node[];
  update(): void; // there is a new sample, or another time
  end(): void;    // something else is shown
}

export class Panels {
  private panel: Panel | null = null;
  constructor(private readonly view: View) {
    view.on(["selection", "map"], () => this.show());
    view.on(["sample", "time", "state"], () => this.panel?.update());
    at("panel-close").addEventListener("click", () => view.select({ kind: "lab" }));
  }

  private show(): void {
    this.panel?.end();
    const s = this.view.selection, map = this.view.history.map;
    if (!map) return;
    const gone = (what: string): Panel => ({ title: [isolated(what)], body: [h("p", {}, "It is no longer part of the lab.")], update() {}, end() {} });
    if (s.kind === "node") this.panel = map.node.has(s.node) ? nodePanel(this.view, s.node) : gone(s.node);
    else if (s.kind === "link") this.panel = map.link.has(s.link) ? linkPanel(this.view, s.link) : gone(s.link);
    else if (s.kind === "qp") this.panel = qpPanel(this.view, s.node, s.qpn);
    else this.panel = labPanel(this.view);
    at("panel-title").replaceChildren(...this.panel.title);
    at("panel-close").hidden = s.kind === "lab";
    const focused = at("panel").contains(document.activeElement);
    at("panel").replaceChildren(...this.panel.body);
    if (focused) at("panel").focus(); // what had the focus is gone
    at("panel").scrollTop = 0;
    this.panel.update();
  }
}

// poll asks for something now and every so often, one request at a time, until it is ended or nobody sees the page.
export function poll<T>(ask: (signal: AbortSignal) => Promise<T>, every: number, take: (v: T) => void, fail: (e: Error) => void): () => void {
  const abort = new AbortController();
  let timer = 0;
  const round = async (): Promise<void> => {
    if (!document.hidden) {
      try { take(await ask(abort.signal)); } catch (e) { if (!abort.signal.aborted) fail(e as Error); }
    }
    if (!abort.signal.aborted) timer = window.setTimeout(round, every);
  };
  void round();
  return () => { abort.abort(); clearTimeout(timer); };
}

// tabs makes tabs; show is called for the chosen one and returns what ends it.
export function tabs(label: string, names: string[], show: (name: string, box: HTMLElement) => () => void): { element: HTMLElement; end: () => void } {
  const id = `tabs-${label.replaceAll(/\W/g, "-").toLowerCase()}`;
  const box = h("div", { role: "tabpanel", id: `${id}-panel`, tabindex: 0 });
  let end = (): void => {};
  const choose = (i: number): void => {
    buttons.forEach((b, k) => { b.setAttribute("aria-selected", String(k === i)); b.tabIndex = k === i ? 0 : -1; });
    end();
    box.replaceChildren();
    box.setAttribute("aria-label", names[i]);
    end = show(names[i], box);
  };
  const buttons = names.map((name, i) => h("button", { type: "button", role: "tab", "aria-controls": box.id, click: () => choose(i), keydown: (e: KeyboardEvent) => {
    const to = e.key === "ArrowRight" ? i + 1 : e.key === "ArrowLeft" ? i - 1 : e.key === "Home" ? 0 : e.key === "End" ? names.length - 1 : -1;
    if (to < 0 || to >= names.length) return;
    e.preventDefault(); e.stopPropagation();
    choose(to); buttons[to].focus();
  } }, name));
  const element = h("section", { class: "tabs" }, h("div", { role: "tablist", "aria-label": label }, ...buttons), box);
  choose(0);
  return { element, end: () => end() };
}
