// How full, lossy or slow a link is, in seven steps. Colours of neighbouring steps differ in lightness, too, so that
// they are told apart by whoever sees no colours; the upper steps are written beside the link, as well.
import type { Frame } from "./history";
import { bytes, percent } from "./units";

export type Measure = "load" | "loss" | "queue";

interface Scale { title: string; bounds: number[]; show: (v: number) => string; value: (f: Frame, link: number, end: number) => number }

// The first step is nothing at all, the next up to the first bound, and so on.
export const scales: Record<Measure, Scale> = {
  load: { title: "Load", bounds: [0.25, 0.5, 0.75, 0.9, 0.98], show: percent, value: (f, l, e) => {
    const load = f.end(l, e, "load");
    return Number.isNaN(load) ? (f.end(l, e, "rate") > 0 ? 0.01 : 0) : load;
  } },
  loss: { title: "Packets lost", bounds: [0.001, 0.01, 0.05, 0.1, 0.3], show: percent, value: (f, l, e) => f.loss(l, e) },
  queue: { title: "Queue", bounds: [16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20], show: bytes, value: (f, l, e) => f.end(l, e, "queue") || 0 },
};

export const steps = 7;

export function stepOf(measure: Measure, v: number): number {
  if (!(v > 0)) return 0;
  const bounds = scales[measure].bounds;
  let i = 0;
  while (i < bounds.length && v > bounds[i]) i++;
  return i + 1;
}
