// The stream of what a lab does. A page that nobody sees closes it, and takes it up again when it is seen.
import type { LabEvent, Sample } from "./types";
import type { View } from "./view";

export function follow(view: View): void {
  let open: EventSource[] = [];
  const listen = (run: number): void => {
    const source = new EventSource(run ? `api/stream?run=${run}` : "api/stream"), history = view.runs[run];
    open.push(source);
    source.addEventListener("open", () => { view.connected = true; view.say("state"); });
    source.addEventListener("error", () => { if (run === 0 && !view.ended) { view.connected = false; view.say("state"); } });
    source.addEventListener("map", m => {
      if (history.setMap((m as MessageEvent<string>).data)) view.say("map");
      if (run === 0 && (history.map!.lab.runs ?? 1) > 1 && open.length === 1) listen(1);
    });
    source.addEventListener("sample", m => { if (history.add(JSON.parse((m as MessageEvent<string>).data) as Sample)) view.say("sample"); });
    source.addEventListener("event", m => view.happened(JSON.parse((m as MessageEvent<string>).data) as LabEvent, run));
    source.addEventListener("ended", m => {
      source.close();
      if (run !== 0) return;
      view.ended = (JSON.parse((m as MessageEvent<string>).data) as { reason: string }).reason;
      view.happened({ seconds: view.end, kind: "warning", text: `ended: ${view.ended}` }, run);
      view.say("state");
    });
  };
  const update = (): void => {
    if (document.hidden) {
      for (const s of open) s.close();
      open = [];
    } else if (open.length === 0 && !view.ended) listen(0);
  };
  document.addEventListener("visibilitychange", update);
  update();
}
