// Numbers as people read them.

const scaled = (ladder: [string, number][]) => (v: number | null | undefined): string => {
  if (v == null || !isFinite(v)) return "";
  if (v === 0) return "0";
  let unit = ladder[0];
  for (const u of ladder) if (Math.abs(v) >= u[1] * 0.9995) unit = u;
  return `${+(v / unit[1]).toPrecision(3)} ${unit[0]}`;
};

export const rate = scaled([["b/s", 1], ["kb/s", 1e3], ["Mb/s", 1e6], ["Gb/s", 1e9], ["Tb/s", 1e12]]);
export const micros = scaled([["ns", 1e-3], ["µs", 1], ["ms", 1e3], ["s", 1e6]]);
export const bytes = scaled([["B", 1], ["KiB", 1024], ["MiB", 2 ** 20], ["GiB", 2 ** 30], ["TiB", 2 ** 40]]);
export const perSecond = scaled([["/s", 1], ["k/s", 1e3], ["M/s", 1e6]]);
export const count = (v: number | null | undefined): string => v == null || !isFinite(v) ? "" : v.toLocaleString("en").replaceAll(",", "\u202f");
export const percent = (v: number | null | undefined): string => v == null || !isFinite(v) ? "" : `${+(100 * v).toPrecision(3)} %`;

// instant is a time of the lab: "83.2 s", "4:07.5".
export const instant = (v: number | null | undefined): string => {
  if (v == null || !isFinite(v)) return "";
  if (v < 100) return `${v.toFixed(1)} s`;
  const m = Math.floor(v / 60);
  return `${m}:${(v - 60 * m).toFixed(1).padStart(4, "0")}`;
};

// tick is a time beside an axis: "50 s", "1:40".
export const tick = (v: number): string => v < 100 ? `${+v.toFixed(3)} s` : `${Math.floor(v / 60)}:${String(+(v % 60).toFixed(2)).padStart(2, "0")}`;

// inMicros reads a duration of a setting, such as "1.5ms".
const durations: Record<string, number> = { ns: 1e-3, us: 1, ms: 1e3, s: 1e6, m: 6e7 };
export const inMicros = (text: string): number => {
  const m = /^([\d.]+)(ns|us|ms|s|m)$/.exec(text);
  return m ? Number(m[1]) * durations[m[2]] : NaN;
};
const multiples: Record<string, number> = { bit: 1, kbit: 1e3, mbit: 1e6, gbit: 1e9, tbit: 1e12 };
export const inBits = (text: string): number => {
  const m = /^([\d.]+)(bit|kbit|mbit|gbit|tbit)$/.exec(text);
  return m ? Number(m[1]) * multiples[m[2]] : NaN;
};

// shorten cuts a name that is too long for a drawing.
export const shorten = (name: string, most: number): string => name.length > most ? `${name.slice(0, most - 1)}…` : name;
