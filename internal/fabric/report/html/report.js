// Draws the plots of a report with uPlot, from the data that the page has for each lab. Nothing else
// in the page needs it.
(() => {
"use strict";

const palette = 8;
const dashes = [[], [7, 4], [2, 3], [9, 3, 2, 3], [4, 2], [12, 4], [2, 2, 6, 2], [1, 4]];
const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const colour = i => css("--s" + i % palette);

// Units, as in the report's tables.
const scaled = ladder => v => {
  if (v == null || !isFinite(v)) return "";
  if (v === 0) return "0";
  let unit = ladder[0];
  for (const u of ladder) if (Math.abs(v) >= u[1] * 0.9995) unit = u;
  return +(v / unit[1]).toPrecision(3) + " " + unit[0];
};
const rate = scaled([["b/s", 1e-9], ["kb/s", 1e-6], ["Mb/s", 1e-3], ["Gb/s", 1], ["Tb/s", 1e3]]);
const time = scaled([["us", 1], ["ms", 1e3], ["s", 1e6]]);
const size = scaled([["B", 1], ["KiB", 1024], ["MiB", 2 ** 20], ["GiB", 2 ** 30]]);
const percent = v => v == null ? "" : +(100 * v).toPrecision(3) + " %";
const perSecond = v => v == null ? "" : +v.toPrecision(3) + "/s";
const instant = v => v == null ? "" : v > 0 && v < 0.1 ? +(1e3 * v).toPrecision(3) + " ms" : +v.toFixed(v < 100 ? 2 : 1) + " s";
const share = v => v == null ? "" : v <= 0 ? "0 %" : +(100 * (1 - 10 ** -v)).toFixed(Math.max(0, Math.ceil(v) - 1)) + " %";

// alone are the samples that have no neighbours, so that no line shows them. What is undefined belongs to
// other series; null is a gap.
const alone = (u, i) => {
  const column = u.data[i], found = [];
  let before = null;
  column.forEach((v, k) => {
    if (v === undefined) return;
    if (v != null) {
      let next = k + 1;
      while (next < column.length && column[next] === undefined) next++;
      if (before == null && column[next] == null) found.push(k);
    }
    before = v;
  });
  return found;
};

// A series of a plot: its column, and how it is drawn.
const line = (label, i, value, more) => Object.assign({
  label, value: (u, v) => value(v), stroke: () => colour(i), width: 2, dash: dashes[Math.floor(i / palette) ? 1 + i % 7 : i % dashes.length],
  points: { show: true, size: 5, fill: () => colour(i), filter: alone }, spanGaps: false,
}, more);

// What each kind of plot shows: its columns, series and scales.
const kinds = {
  throughput: d => overTime(d, w => w.gbps, rate),
  rate: d => overTime(d, w => w.rate, perSecond),
  latency: d => {
    const with_ = d.workloads.map((w, i) => [w, i]).filter(([w]) => w.p50 && w.p50.some(v => v != null));
    const bands = [];
    const series = with_.flatMap(([w, i], n) => {
      bands.push({ series: [2 * n + 2, 2 * n + 1], fill: () => colour(i) + "2e" });
      return [
        line(w.name + " p50", i, time),
        line(w.name + " p99", i, time, { width: 1, dash: [2, 3] }),
      ];
    });
    return { data: uPlot.join(with_.map(([w]) => [w.at, w.p50, w.p99])), series, bands, x: instant, y: time, log: true, events: d.events, choose: true, sync: true };
  },
  queues: d => ofSeries(d, d.series.queues.map((q, i) => [[q.is, line(q.name, i, size)]]), { y: size }),
  pauses: d => ofSeries(d, d.series.pauses.map((p, i) => [[p.is, line(p.name, i, percent, { paths: () => null, points: { show: false } })]]),
    { y: () => "", strips: d.series.period, choose: false }),
  "qp-rate": d => ofSending(d, sending(d).rates.map((r, i) => [[r.is, line(r.name, i, rate)],
    ...(r.target ? [[r.target, line(r.name + " target", i, rate, { width: 1, dash: [2, 3] })]] : [])]), { y: rate }),
  losses: d => ofSending(d, sending(d).losses.map((l, i) => [[l.is, line(l.name, i, perSecond)]]), { y: perSecond }),
  resent: d => ofSending(d, sending(d).resent.map((r, i) => [[r.is, line(r.name, i, perSecond)]]), { y: perSecond }),
  cdf: d => {
    const with_ = d.workloads.map((w, i) => [w, i]).filter(([w]) => w.us);
    // Of equal latencies the last fraction counts: a scale's values ascend.
    const tables = with_.map(([w]) => {
      const us = [], nines = [];
      w.us.forEach((v, k) => {
        if (us.length && v <= us[us.length - 1]) nines[nines.length - 1] = w.nines[k];
        else { us.push(v); nines.push(w.nines[k]); }
      });
      return [us, nines];
    });
    return { data: uPlot.join(tables), series: with_.map(([w, i]) => line(w.name, i, share)), x: time, y: share, xlog: 10, nines: true };
  },
  "sweep-throughput": (d, w) => ({ data: [w.steps.size, w.steps.gbps], series: [line("throughput", 0, rate, { points: { show: true, size: 5, filter: null } })], x: size, y: rate, xlog: 2, choose: true }),
  "sweep-latency": (d, w) => ({ data: [w.steps.size, w.steps.p50, w.steps.p99],
    series: [line("p50", 0, time, { points: { show: true, size: 5, filter: null } }), line("p99", 1, time, { points: { show: true, size: 5, filter: null } })], x: size, y: time, xlog: 2, log: true, choose: true }),
};

const overTime = (d, column, unit) => {
  const with_ = d.workloads.map((w, i) => [w, i]).filter(([w]) => column(w));
  return { data: uPlot.join(with_.map(([w]) => [w.at, column(w)])), series: with_.map(([w, i]) => line(w.name, i, unit)), x: instant, y: unit, events: d.events, choose: true, sync: true };
};

// sending is what has rates, losses and what was sent again: in labs they have a period of their own.
const sending = d => d.series.watched || d.series;
const ofSending = (d, groups, more) => ofSeries(d, groups, more, sending(d).at);

// ofSeries is columns, each with its series, at the times of a lab's queues, or at others.
const ofSeries = (d, groups, more, at) => {
  const columns = groups.flat();
  return Object.assign({ data: [at || d.series.at, ...columns.map(c => c[0])], series: columns.map(c => c[1]), x: instant, events: d.events, choose: true, sync: true }, more);
};

// strips draws a strip for each series, one below the other: a bar for each period, as high as the share.
const strips = period => ({ hooks: { draw: u => {
  const { ctx, bbox } = u, ratio = uPlot.pxRatio;
  const shown = u.series.map((s, i) => i).filter(i => i && u.series[i].show), row = bbox.height / shown.length;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  shown.forEach((i, n) => {
    const foot = Math.round(bbox.top + row * (n + 1));
    ctx.fillStyle = u.series[i].stroke(u, i);
    u.data[i].forEach((share, k) => {
      if (!share) return;
      const from = Math.floor(u.valToPos(u.data[0][k] - period, "x", true)), to = Math.ceil(u.valToPos(u.data[0][k], "x", true));
      const high = Math.max(ratio, Math.round(share * row * 0.9));
      ctx.fillRect(from, foot - high, Math.max(to - from, ratio), high);
    });
    ctx.fillStyle = css("--edge");
    ctx.fillRect(bbox.left, foot - ratio, bbox.width, ratio);
  });
  ctx.restore();
} } });

// marks draws a line at each event, with the number that it has in the table below, and says what it is
// when the pointer is near.
const marks = (events, said, rows) => {
  const near = u => {
    let best = -1, least = 8;
    events.forEach((e, i) => {
      const away = Math.abs(u.valToPos(e.at, "x") - u.cursor.left);
      if (away < least) { least = away; best = i; }
    });
    return best;
  };
  let lit = -1;
  return { hooks: {
    draw: u => {
      const { ctx, bbox } = u, ratio = uPlot.pxRatio;
      ctx.save();
      ctx.strokeStyle = ctx.fillStyle = css("--mark");
      ctx.lineWidth = ratio;
      ctx.setLineDash([3 * ratio, 3 * ratio]);
      ctx.font = 10 * ratio + "px system-ui, sans-serif";
      ctx.textAlign = "center";
      let free = -Infinity;
      events.forEach((e, i) => {
        const x = Math.round(u.valToPos(e.at, "x", true));
        if (x < bbox.left || x > bbox.left + bbox.width) return;
        ctx.beginPath();
        ctx.moveTo(x, bbox.top);
        ctx.lineTo(x, bbox.top + bbox.height);
        ctx.stroke();
        const words = String(i + 1), half = ctx.measureText(words).width / 2 + 2 * ratio;
        if (x - half > free) {
          ctx.fillText(words, x, bbox.top - 4 * ratio);
          free = x + half;
        }
      });
      ctx.restore();
    },
    setCursor: u => {
      const i = u.cursor.left >= 0 ? near(u) : -1;
      if (i === lit) return;
      if (rows[lit]) rows[lit].classList.remove("lit");
      lit = i;
      if (rows[i]) rows[i].classList.add("lit");
      said.textContent = i < 0 ? "" : (i + 1) + ": at " + events[i].at.toFixed(3) + " s, " + events[i].text;
    },
  } };
};

// whole is the range of the time axis: when all data are shown, all events are, too.
const whole = (u, low, high, events) => {
  const at = u.data[0];
  if (low !== at[0] || high !== at[at.length - 1]) return [low, high]; // the reader has chosen
  return [Math.min(0, low), Math.max(high, ...events.map(e => e.at))];
};

const draw = figure => {
  const chart = figure.querySelector(".chart"), said = figure.querySelector(".said");
  const lab = figure.dataset.of, data = JSON.parse(document.getElementById(lab + "-data").textContent);
  const what = kinds[figure.dataset.plot](data, data.workloads[figure.dataset.workload]);
  const log = figure.dataset.log === undefined ? !!what.log : figure.dataset.log === "true";
  const width = Math.max(240, Math.floor(chart.clientWidth)), height = width < 500 ? 230 : 280;
  const axis = more => Object.assign({ stroke: () => css("--dim"), font: "12px system-ui, sans-serif",
    grid: { stroke: () => css("--edge"), width: 1 }, ticks: { stroke: () => css("--edge"), width: 1 } }, more);
  const lines = { stroke: () => css("--edge"), width: 1, filter: (u, splits) => splits.map(v => Number.isInteger(Math.log10(v)) ? v : null) };
  const decades = { grid: lines, ticks: lines };
  const label = unit => (u, splits) => splits.map(v => v == null ? "" : unit(v));
  const nines = [0, 1, 2, 3, 4, 5, 6];
  const options = {
    width, height, series: [{ label: figure.dataset.plot.startsWith("sweep") ? "size" : what.nines ? "latency" : "time", value: (u, v) => what.x(v) }, ...what.series],
    padding: [18, 26, 0, 4],
    scales: {
      x: what.xlog ? { time: false, distr: 3, log: what.xlog } : { time: false, range: (u, low, high) => whole(u, low, high, what.events || []) },
      y: what.strips ? { range: () => [0, 1] } : what.nines ? { range: (u, low, high) => [0, Math.max(high, 1) * 1.03] }
        : log ? { distr: 3 } : { range: (u, low, high) => [0, high > 0 ? high * 1.08 : 1] },
    },
    axes: [
      axis({ values: label(what.x), space: what.xlog === 10 ? 30 : 65, ...(what.xlog === 10 ? decades : {}) }),
      axis({ values: label(what.y), size: 74, ...(log ? decades : {}), space: 34, ...(what.nines ? { splits: u => nines.filter(n => n <= u.scales.y.max) } : {}) }),
    ],
    bands: what.bands || [],
    cursor: { points: { size: 7 }, ...(what.sync ? { sync: { key: lab, setSeries: false } } : {}) },
    legend: { live: width >= 420, markers: { width: 3, stroke: (u, i) => i ? u.series[i].stroke(u, i) : "transparent", fill: () => "transparent",
      dash: (u, i) => { const d = (i && u.series[i].dash) || []; return d.length === 0 ? "solid" : d[0] > 3 ? "dashed" : "dotted"; } } },
    plugins: [...(what.strips ? [strips(what.strips)] : []),
      ...(what.events ? [marks(what.events, said, document.querySelectorAll("#" + lab + " tr[data-event]"))] : [])],
  };
  chart.replaceChildren();
  // What is 0 has no place on a logarithmic scale.
  const columns = log ? what.data.map((c, i) => i ? c.map(v => v > 0 ? v : v === undefined ? v : null) : c) : what.data;
  const plot = new uPlot(options, columns, chart);
  chart.plot = plot;
  plot.root.setAttribute("aria-hidden", "true"); // the figure has a label in words
  if (what.choose && !figure.querySelector("button")) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "log scale";
    button.setAttribute("aria-pressed", String(log));
    button.onclick = () => {
      figure.dataset.log = String(button.getAttribute("aria-pressed") !== "true");
      button.setAttribute("aria-pressed", figure.dataset.log);
      draw(figure);
    };
    figure.querySelector("figcaption").append(button);
  }
  figure.dataset.drawn = String(width);
};

const figures = [...document.querySelectorAll("figure[data-plot]")];
const visible = f => !f.closest("details:not([open])");
const update = force => figures.forEach(f => {
  const width = Math.max(240, Math.floor(f.querySelector(".chart").clientWidth));
  if (visible(f) && (force || f.dataset.drawn !== String(width))) draw(f);
});

// A figure is drawn when its lab is opened, and again when its width or the colours change.
new ResizeObserver(() => update(false)).observe(document.body);
document.querySelectorAll("details").forEach(d => d.addEventListener("toggle", () => update(false)));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => update(true));

// On paper everything is open, and light.
let folded = [];
addEventListener("beforeprint", () => {
  folded = [...document.querySelectorAll("details:not([open])")];
  folded.forEach(d => { d.open = true; });
  document.documentElement.classList.add("paper");
  update(true);
});
addEventListener("afterprint", () => {
  folded.forEach(d => { d.open = false; });
  document.documentElement.classList.remove("paper");
  update(true);
});

// A link to something in a lab that is folded opens it.
const reveal = () => {
  const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target) return;
  for (let e = target; e; e = e.parentElement) if (e.tagName === "DETAILS") e.open = true;
  target.scrollIntoView({ block: target.tagName === "TR" ? "center" : "start" });
};
addEventListener("hashchange", reveal);
update(true);
reveal();
})();
