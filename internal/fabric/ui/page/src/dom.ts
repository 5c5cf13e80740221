// Elements of the page. Text is always a text node: whatever a lab says is shown as it is written.

type Child = Node | string | number | null | undefined | false;
type Props = Record<string, unknown>;

// h makes an element. A function is a listener, true is an attribute without a value; null and false are none.
export function h<K extends keyof HTMLElementTagNameMap>(tag: K, props: Props = {}, ...children: Child[]): HTMLElementTagNameMap[K] {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value == null || value === false) continue;
    if (typeof value === "function") e.addEventListener(name, value as EventListener);
    else e.setAttribute(name, value === true ? "" : String(value));
  }
  e.append(...children.filter((c): c is Node | string | number => c != null && c !== false).map(c => typeof c === "number" ? String(c) : c));
  return e;
}

// at returns the element of the page with an id.
export function at<E extends HTMLElement = HTMLElement>(id: string): E {
  const e = document.getElementById(id);
  if (!e) throw new Error(`the page has no #${id}`);
  return e as E;
}

// table makes a table. Columns that begin with "#" are numbers; a cell is a text or an element.
export function table(label: string, columns: string[], rows: (string | Node)[][]): HTMLElement {
  const numeric = columns.map(c => c.startsWith("#"));
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label },
    h("table", {},
      h("thead", {}, h("tr", {}, ...columns.map((c, i) => h("th", { scope: "col", class: numeric[i] ? "number" : null }, numeric[i] ? c.slice(1) : c)))),
      h("tbody", {}, ...rows.map(row => h("tr", {}, ...row.map((cell, i) => h(i ? "td" : "th", { scope: i ? null : "row", class: numeric[i] ? "number" : null }, cell)))))));
}

// facts makes a list of names with values, without those that have none; in two columns where there is room.
export function facts(list: [string, string | Node | null | undefined][], two = false): HTMLElement {
  return h("dl", { class: two ? "facts two" : "facts" }, ...list.filter(([, v]) => v != null && v !== "").flatMap(([k, v]) => [h("dt", {}, k), h("dd", {}, v)]));
}

// isolated is a name in a sentence: its direction of writing does not change that of what stands around it.
export const isolated = (name: string): HTMLElement => h("bdi", {}, name);

// css returns the value of a variable of the style.
export const css = (name: string): string => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
