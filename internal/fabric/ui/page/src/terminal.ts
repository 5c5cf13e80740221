// A terminal in a node. It is loaded when it is asked for.
import { FitAddon } from "@xterm/addon-fit";
import { Terminal } from "@xterm/xterm";
import { css } from "./dom";

// xterm puts its styles into style elements, which the page's Content-Security-Policy refuses. Style sheets that a
// script makes are allowed: an element that passes its text on to one stands for each.
function withSheets<T>(make: () => T): T {
  const create = document.createElement;
  document.createElement = function (this: Document, tag: string, options?: ElementCreationOptions) {
    if (tag !== "style") return create.call(this, tag, options);
    const e = create.call(this, "template"), sheet = new CSSStyleSheet();
    document.adoptedStyleSheets.push(sheet);
    Object.defineProperty(e, "textContent", { set: (text: string) => sheet.replaceSync(text), get: () => "" });
    const remove = e.remove.bind(e);
    e.remove = () => { document.adoptedStyleSheets = document.adoptedStyleSheets.filter(s => s !== sheet); remove(); };
    return e;
  } as typeof document.createElement;
  try { return make(); } finally { document.createElement = create; }
}

// open shows a terminal of a node in a box and returns what ends it.
export function open(node: string, box: HTMLElement): () => void {
  const socket = new WebSocket(new URL(`api/terminal/${encodeURIComponent(node)}`, location.href.replace(/^http/, "ws")));
  socket.binaryType = "arraybuffer";
  const fit = new FitAddon();
  const terminal = withSheets(() => {
    const t = new Terminal({
      fontFamily: css("--mono"), fontSize: 13, cursorBlink: false, screenReaderMode: true, scrollback: 5000, minimumContrastRatio: 4.5,
      theme: { background: css("--terminal"), foreground: css("--terminal-text"), cursor: css("--terminal-text"), cursorAccent: css("--terminal") },
    });
    t.loadAddon(fit);
    t.open(box);
    return t;
  });
  const send = (data: string): void => { if (socket.readyState === WebSocket.OPEN) socket.send(new TextEncoder().encode(data)); };
  const size = (): void => {
    withSheets(() => fit.fit());
    if (socket.readyState === WebSocket.OPEN) socket.send(JSON.stringify({ rows: terminal.rows, columns: terminal.cols }));
  };
  terminal.onData(send);
  // Ctrl-Shift-Escape leaves the terminal: all other keys are the node's.
  terminal.attachCustomKeyEventHandler(e => {
    if (e.key !== "Escape" || !e.shiftKey || !e.ctrlKey) return true;
    box.closest("section")?.querySelector<HTMLElement>("[role=tab][aria-selected=true]")?.focus();
    return false;
  });
  socket.onopen = () => { size(); terminal.focus(); };
  socket.onmessage = m => terminal.write(new Uint8Array(m.data as ArrayBuffer));
  socket.onclose = e => terminal.write(`\r\n\x1b[2m${e.reason || "The terminal has ended."}\x1b[0m\r\n`);
  const watch = new ResizeObserver(size);
  watch.observe(box);
  return () => { watch.disconnect(); socket.close(); terminal.dispose(); };
}
