// What the page does to a lab. Each action has a command that does the same: it is shown before, and kept in a log after.
import { at, h } from "./dom";
import type { Change, Changed } from "./types";

async function answer<T>(response: Response): Promise<T> {
  const text = await response.text();
  let body: unknown;
  try { body = JSON.parse(text); } catch { throw new Error(text.trim() || `the server answers ${response.status}`); }
  if (!response.ok) throw new Error((body as { error?: string }).error ?? `the server answers ${response.status}`);
  return body as T;
}

export const get = async <T>(path: string, signal?: AbortSignal): Promise<T> => answer<T>(await fetch(path, { signal }));
const post = async <T>(path: string, body?: unknown): Promise<T> =>
  answer<T>(await fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: body === undefined ? undefined : JSON.stringify(body) }));

// preview returns the command that a change is.
export const preview = async (c: Change): Promise<string> => (await post<Changed>("api/change?dry=1", c)).command;

let undoable = 0;

// apply changes the lab, and returns whether it did.
export async function apply(c: Change): Promise<boolean> {
  try {
    const done = await post<Changed>("api/change", c);
    if (done.undo?.length) undoable++;
    log(done.command, done.text, true);
    return true;
  } catch (e) {
    log(`${c.act} ${c.endpoint ?? c.node ?? ""}`.trim(), (e as Error).message, false);
    return false;
  } finally {
    at<HTMLButtonElement>("undo").disabled = undoable === 0;
  }
}

export async function undo(): Promise<void> {
  if (undoable === 0) return;
  try {
    const done = await post<Changed>("api/undo");
    undoable--;
    log(done.command, done.text || "undone", true);
  } catch (e) {
    undoable = 0;
    log("undo", (e as Error).message, false);
  } finally {
    at<HTMLButtonElement>("undo").disabled = undoable === 0;
  }
}

function log(command: string, text: string, good: boolean): void {
  const list = at("commands"), code = h("code", {}, command);
  const copy = h("button", { type: "button", class: "quiet", click: async () => {
    if (navigator.clipboard) await navigator.clipboard.writeText(command);
    else getSelection()?.selectAllChildren(code); // a page of another machine without encryption may not
    copy.textContent = navigator.clipboard ? "Copied" : "Selected";
  } }, "Copy");
  copy.setAttribute("aria-label", `Copy the command ${command}`);
  list.prepend(h("li", { class: good ? "good" : "bad" }, h("div", {}, code, good ? copy : null), text ? h("p", {}, (good ? "" : "✕ ") + text) : null));
  while (list.children.length > 200) list.lastElementChild!.remove();
  at("no-commands").hidden = true;
  at("said").textContent = good ? `Done: ${command}. ${text}` : `Failed: ${text}`;
  at("last").replaceChildren(h("code", {}, command), " ", good ? text : `✕ ${text}`);
}
