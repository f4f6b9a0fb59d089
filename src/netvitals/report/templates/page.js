"use strict";
(() => {
const DATA = JSON.parse(document.getElementById("data").textContent);
const dark = () => document.documentElement.dataset.theme === "dark";
const LINES = {
  light: ["#0e7c7b", "#d1603d", "#3f6fb5", "#a87f1f", "#8a4f9e", "#4c9a52", "#c4457a", "#6d7a88"],
  dark: ["#4cc3b5", "#f08a67", "#7fabef", "#e0b750", "#c48fd8", "#86cf8a", "#f083ae", "#a9b5c2"],
};
const hue = (i) => { const set = LINES[dark() ? "dark" : "light"]; return set[i % set.length]; };
const MOST = LINES.light.length;
const RAMPS = {
  light: ["#f1f4ee", "#c4e2d6", "#7cc3b6", "#3596a0", "#1f628c", "#22356b"],
  dark: ["#16212c", "#1b4058", "#1e6f7e", "#40a392", "#98d39e", "#f3f4bd"],
};
const SPLITS = {
  light: ["#8f2d1f", "#d5694a", "#f2c3ad", "#f4f3ee", "#b5d3e6", "#4a8fc0", "#1d4b86"],
  dark: ["#ffb59a", "#d9694a", "#6e3a30", "#1b232c", "#274a68", "#4a93c9", "#b4dcf7"],
};
const make = (tag, options = {}, ...children) => {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(options)) {
    if (key === "text") node.textContent = value;
    else if (key === "style") Object.assign(node.style, value);
    else if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
};
const SVG = document.querySelector("svg").namespaceURI;
const svg = (tag, options = {}) => {
  const node = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(options)) key === "text" ? node.textContent = value : node.setAttribute(key, value);
  return node;
};
const floats = (text) => {
  const raw = atob(text), bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return new Float32Array(bytes.buffer);
};
const number = (x) => {
  if (Number.isNaN(x)) return "no number";
  if (!Number.isFinite(x)) return x > 0 ? "∞" : "−∞";
  const size = Math.abs(x);
  if (x === 0) return "0";
  const text = size >= 1e5 || size < 1e-3 ? x.toExponential(2).replace("e+", "e") : String(Number(x.toPrecision(4)));
  return text.replace(/-/g, "−");
};
const count = (n) => n.toLocaleString("en");

/* ---- colour ---- */
const rgb = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
const ramp = (stops) => {
  const colours = stops.map(rgb);
  return (t) => {
    const at = Math.min(Math.max(t, 0), 1) * (colours.length - 1), i = Math.min(Math.floor(at), colours.length - 2), f = at - i;
    return colours[i].map((c, k) => Math.round(c + f * (colours[i + 1][k] - c)));
  };
};
/* domain of one metric: sequential, logarithmic, or split at zero; clipped at its 1 % and 99 % quantiles */
const scaleOf = (values) => {
  const finite = Array.from(values).filter(Number.isFinite).sort((a, b) => a - b);
  if (!finite.length) return { kind: "none", low: 0, high: 1, at: () => 0.5 };
  const q = (p) => finite[Math.min(finite.length - 1, Math.max(0, Math.round(p * (finite.length - 1))))];
  let low = q(0.01), high = q(0.99);
  if (low < 0 && high > 0) {
    const edge = Math.max(-low, high), sizes = finite.map(Math.abs).sort((a, b) => a - b), usual = sizes[sizes.length >> 1];
    if (usual > 0 && edge / usual > 50) {       // a few giants: logarithmic on both sides of zero
      const grow = (x) => Math.sign(x) * Math.log1p(Math.abs(x) / usual) / Math.log1p(edge / usual);
      return { kind: "split", note: " (log)", low: -edge, high: edge, at: (x) => 0.5 + 0.5 * grow(x) };
    }
    return { kind: "split", low: -edge, high: edge, at: (x) => 0.5 + 0.5 * x / edge };
  }
  const positive = finite.find((x) => x > 0);
  if (low >= 0 && finite[0] >= 0 && positive && high / Math.max(low, positive) > 1000) {
    const from = Math.log10(Math.max(low, positive)), to = Math.log10(high);
    return { kind: "log", low: 10 ** from, high, at: (x) => x <= 0 ? 0 : (Math.log10(x) - from) / (to - from) };
  }
  const least = Math.max(0.05 * Math.abs(high), 1e-12);     // so that noise around a constant does not look like news
  if (high - low < least) { const pad = (least - (high - low)) / 2; low = low >= 0 ? Math.max(0, low - pad) : low - pad; high += pad; }
  return { kind: "even", low, high, at: (x) => (x - low) / (high - low) };
};
const colouring = (scale) => {
  const name = dark() ? "dark" : "light", paint = ramp(scale.kind === "split" ? SPLITS[name] : RAMPS[name]);
  return (x) => Number.isNaN(x) ? null : !Number.isFinite(x) ? [214, 30, 160] : paint(scale.at(x));
};
const legend = (place, scale, values) => {
  place.replaceChildren();
  if (values.some((x) => x === Infinity || x === -Infinity)) place.append(make("i", { class: "broken" }), "not finite");
  if (scale.kind === "none") return;
  const canvas = make("canvas", { width: 130, height: 1 }), pen = canvas.getContext("2d");
  const paint = ramp(scale.kind === "split" ? SPLITS[dark() ? "dark" : "light"] : RAMPS[dark() ? "dark" : "light"]);
  for (let i = 0; i < 130; i++) { pen.fillStyle = `rgb(${paint(i / 129)})`; pen.fillRect(i, 0, 1, 1); }
  place.append(number(scale.low), canvas, number(scale.high) + (scale.note || (scale.kind === "log" ? " (log)" : "")));
};

/* ---- tooltip ---- */
const tip = document.getElementById("tip");
const show = (event, title, ...rest) => {
  tip.replaceChildren(make("b", { text: title }), ...rest.map((line) => make("div", { text: line })));
  tip.style.opacity = 1;
  const box = tip.getBoundingClientRect();
  tip.style.left = Math.max(6, Math.min(event.clientX + 14, innerWidth - box.width - 8)) + "px";
  tip.style.top = (event.clientY + box.height + 24 > innerHeight ? event.clientY - box.height - 12 : event.clientY + 16) + "px";
};
const hide = () => { tip.style.opacity = 0; };

/* ---- line chart ---- */
const ticks = (low, high, wanted) => {
  const span = high - low, rough = span / wanted, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => span / s <= wanted) || span;
  const out = [];
  for (let x = Math.ceil(low / step) * step; x <= high + step * 1e-6; x += step) out.push(Math.abs(x) < step * 1e-9 ? 0 : x);
  return out;
};
const lineChart = (place, { steps, series, height = 210, log = false, ahead = null }) => {
  place.replaceChildren();
  const width = Math.max(place.clientWidth || 600, 240), left = 50, right = 10, top = 8, bottom = 22;
  const seen = series.flatMap((s) => Array.from(s.values).concat(s.low ? Array.from(s.low) : [], s.high ? Array.from(s.high) : []))
    .filter((x) => Number.isFinite(x) && (!log || x > 0));
  if (!seen.length) { place.append(make("p", { class: "meaning", text: "No finite number to draw." })); return; }
  let low = seen.reduce((a, b) => Math.min(a, b)), high = seen.reduce((a, b) => Math.max(a, b));
  const f = log ? Math.log10 : (x) => x;
  low = f(low); high = f(high);
  if (high - low < 1e-12 * Math.max(1, Math.abs(high))) { const pad = Math.abs(high) * 0.1 || 1; low -= pad; high += pad; }
  else { const pad = (high - low) * 0.05; if (!(low >= 0 && low - pad < 0 && !log)) low -= pad; high += pad; }
  const measured = steps[steps.length - 1], first = steps[0];
  const last = ahead ? Math.max(measured, Math.min(ahead.high, 2 * measured + 1)) : measured, wide = Math.max(last - first, 1);
  const X = (s) => left + (s - first) / wide * (width - left - right), Y = (v) => top + (high - f(v)) / (high - low) * (height - top - bottom);
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": series.map((s) => s.name).join(", ") });
  for (const t of ticks(low, high, 5)) {
    const y = top + (high - t) / (high - low) * (height - top - bottom);
    root.append(svg("line", { class: t === 0 && !log && low < 0 ? "zero" : "grid", x1: left, x2: width - right, y1: y, y2: y }),
      svg("text", { x: left - 8, y: y + 4, "text-anchor": "end", text: number(log ? 10 ** t : t) }));
  }
  const marks = ticks(first, last, Math.max(2, Math.floor(width / 85))).filter(Number.isInteger);
  marks.forEach((t) => root.append(svg("text", { x: X(t), y: height - 5, "text-anchor": t === first ? "start" : X(t) > width - 40 ? "end" : "middle", text: count(t) })));
  if (ahead && ahead.low < last) {       // what is forecast: a band with its date
    const from = X(Math.max(first, ahead.low)), to = X(Math.min(last, ahead.high)), at = X(Math.min(last, ahead.at));
    root.append(svg("rect", { x: from, y: top, width: Math.max(to - from, 1), height: height - top - bottom, fill: hue(1), opacity: 0.14 }),
      svg("line", { x1: at, x2: at, y1: top, y2: height - bottom, stroke: hue(1), "stroke-dasharray": "4 3" }),
      svg("text", { x: Math.min(at + 4, width - right), y: top + 12, "text-anchor": at > width - 160 ? "end" : "start", text: `${ahead.what} ≈ ${count(Math.round(ahead.at))}` }));
  }
  const good = (v) => Number.isFinite(v) && (!log || v > 0);
  series.forEach((s) => {
    const path = (values) => { let d = "", pen = false; values.forEach((v, i) => { if (!good(v)) { pen = false; return; } d += `${pen ? "L" : "M"}${X(steps[i]).toFixed(1)} ${Y(v).toFixed(1)}`; pen = true; }); return d; };
    if (s.low && s.high) {
      const up = [], down = [];
      steps.forEach((t, i) => { if (good(s.low[i]) && good(s.high[i])) { up.push(`${X(t).toFixed(1)} ${Y(s.high[i]).toFixed(1)}`); down.unshift(`${X(t).toFixed(1)} ${Y(s.low[i]).toFixed(1)}`); } });
      if (up.length > 1) root.append(svg("path", { d: `M${up.join("L")}L${down.join("L")}Z`, fill: s.colour, opacity: 0.16 }));
    }
    const solo = Array.from(s.values).filter(good).length === 1;
    root.append(svg("path", { d: path(Array.from(s.values)), fill: "none", stroke: s.colour, "stroke-width": s.thin ? 1 : 1.8, "stroke-linejoin": "round", "stroke-linecap": "round", opacity: s.thin ? 0.45 : 1 }));
    if (solo) s.values.forEach((v, i) => good(v) && root.append(svg("circle", { cx: X(steps[i]), cy: Y(v), r: 3, fill: s.colour })));
    s.values.forEach((v, i) => { if (!s.thin && !Number.isFinite(v) && (v === Infinity || s.gaps)) root.append(svg("path", { d: `M${X(steps[i]) - 3} ${top}h6l-3 6z`, fill: "var(--critical)" })); });
  });
  const cursor = svg("line", { class: "zero", y1: top, y2: height - bottom, x1: left, x2: left, opacity: 0 });
  root.append(cursor);
  root.addEventListener("pointermove", (event) => {
    const box = root.getBoundingClientRect(), at = first + ((event.clientX - box.left) * width / box.width - left) / (width - left - right) * wide;
    let i = 0; steps.forEach((s, k) => { if (Math.abs(s - at) < Math.abs(steps[i] - at)) i = k; });
    cursor.setAttribute("x1", X(steps[i])); cursor.setAttribute("x2", X(steps[i])); cursor.setAttribute("opacity", 1);
    show(event, `step ${count(steps[i])}`, ...series.filter((s) => !s.thin).map((s) => `${s.name}: ${number(s.values[i])}`));
  });
  root.addEventListener("pointerleave", () => { cursor.setAttribute("opacity", 0); hide(); });
  place.append(root);
};

/* ---- cards ---- */
/* on a narrow screen names lose the dotted words that all of them share at either end */
const shortened = (sites) => {
  const layers = sites.filter((s) => s && s !== "model" && !s.startsWith("model/")).map((s) => s.split("."));
  if (innerWidth > 560 || layers.length < 2) return (site) => site;
  const most = Math.min(...layers.map((w) => w.length)) - 1, same = (at) => layers.every((w) => at(w) === at(layers[0]));
  let head = 0, tail = 0;
  while (head < most && same((w) => w[head])) head++;
  while (tail < most - head && same((w) => w[w.length - 1 - tail])) tail++;
  return (site) => { const words = site.split("."); return words.length > head + tail && layers.some((w) => w.join(".") === site) ? words.slice(head, words.length - tail).join(".") : site; };
};
const cardOf = (section) => {
  const card = DATA.cards[Number(section.dataset.card)];
  const place = { view: section.querySelector("[data-view]"), legend: section.querySelector("[data-legend]"), lines: section.querySelector("[data-lines]"), explain: section.querySelector("[data-explain]") };
  const pills = [...section.querySelectorAll(".pill")];
  const state = { metric: card.first, chosen: [] };
  const metricOf = () => {
    const m = card.metrics[state.metric];
    if (!m.values) { m.values = floats(m.data); if (m.low) { m.lows = floats(m.low); m.highs = floats(m.high); } m.scale = scaleOf(m.values); }
    return m;
  };
  const row = (m, r, from = "values") => m[from] && m[from].subarray(r * m.steps.length, (r + 1) * m.steps.length);

  const heat = (m) => {
    const rows = m.sites.length, cols = m.steps.length, tall = rows <= 12 ? 22 : rows <= 28 ? 17 : rows <= 60 ? 12 : 7;
    const names = make("div", { class: "names", style: { gridAutoRows: tall + "px", fontSize: Math.min(11.5, tall - 2) + "px" } });
    const canvas = make("canvas", { height: 1, role: "img", "aria-label": `${card.title}, ${m.name}: ${rows} layers by ${cols} steps` });
    canvas.style.height = tall * rows + "px";
    const brief = shortened(m.sites);
    m.sites.forEach((site, r) => {
      const button = make("button", { type: "button", title: site, "aria-pressed": state.chosen.includes(site), onclick: () => choose(site) }, make("bdi", { text: tall >= 12 || r % 3 === 0 ? brief(site) || "model" : "" }));
      const at = state.chosen.indexOf(site);
      if (at >= 0) button.style.setProperty("--mark", hue(at));
      names.append(button);
    });
    const axis = make("div", { class: "axis" });
    const scroll = make("div", { class: "scroll" }, names, canvas);
    place.view.replaceChildren(make("div", { class: "heat" }, scroll, axis));
    const wide = canvas.clientWidth || 600, density = Math.min(devicePixelRatio || 1, 2);
    canvas.width = Math.round(wide * density); canvas.height = Math.round(tall * rows * density);
    const pen = canvas.getContext("2d"), paint = colouring(m.scale), gap = tall >= 12 ? density : 0, cell = canvas.width / cols;
    for (let r = 0; r < rows; r++) for (let c = 0; c < cols; c++) {
      const colour = paint(m.values[r * cols + c]);
      if (!colour) continue;
      pen.fillStyle = `rgb(${colour})`;
      const x = Math.floor(c * cell), end = Math.floor((c + 1) * cell);
      pen.fillRect(x, r * tall * density, Math.max(end - x, 1), tall * density - gap);
    }
    const many = Math.min(cols, Math.max(2, Math.floor(wide / 110)));
    for (let k = 0; k < many; k++) {
      const c = Math.round(k * (cols - 1) / Math.max(many - 1, 1));
      axis.append(make("span", { text: (k === 0 ? "step " : "") + count(m.steps[c]), style: { left: (k === 0 ? 0 : k === many - 1 ? 100 : (c + 0.5) / cols * 100) + "%" } }));
    }
    const spot = (event) => {
      const box = canvas.getBoundingClientRect();
      return [Math.min(rows - 1, Math.max(0, Math.floor((event.clientY - box.top) / box.height * rows))), Math.min(cols - 1, Math.max(0, Math.floor((event.clientX - box.left) / box.width * cols)))];
    };
    canvas.addEventListener("pointermove", (event) => { const [r, c] = spot(event); show(event, m.sites[r] || "model", `step ${count(m.steps[c])}`, `${m.name}: ${number(m.values[r * cols + c])}`); });
    canvas.addEventListener("pointerleave", hide);
    canvas.addEventListener("click", (event) => choose(m.sites[spot(event)[0]]));
  };

  const bars = (m) => {
    const scale = m.scale, grid = make("div", { class: "bars" });
    const finite = Array.from(m.values).filter(Number.isFinite), reach = finite.length ? Math.max(...finite.map(Math.abs)) : 1;
    const brief = shortened(m.sites);
    const share01 = reach <= 1 && finite.every((x) => x >= 0) && reach > 0.2;
    m.sites.forEach((site, r) => {
      const v = m.values[r], fill = make("div", { class: v < 0 ? "fill neg" : "fill" });
      const share = Number.isFinite(v) ? (scale.kind === "log" ? Math.max(scale.at(v), 0.01) : share01 ? v : Math.abs(v) / (reach || 1)) : 0;
      fill.style.width = Math.max(share * 100, 0.4) + "%";
      grid.append(make("span", { class: "label", title: site }, make("bdi", { text: brief(site) || "model" })), make("div", { class: "track" }, fill), make("span", { class: "number", text: number(v) }));
    });
    place.view.replaceChildren(grid);
  };

  const single = (m) => {
    const chart = make("div", { class: "chart" });
    place.view.replaceChildren(chart);
    lineChart(chart, { steps: m.steps, log: m.scale.kind === "log", series: [{ name: m.sites[0] || m.name, values: row(m, 0), low: row(m, 0, "lows"), high: row(m, 0, "highs"), colour: hue(0) }] });
  };

  const lines = (m) => {
    const chosen = state.chosen.filter((s) => m.sites.includes(s));
    place.lines.hidden = !chosen.length;
    if (!chosen.length) return;
    const chart = make("div", { class: "chart" });
    const keys = make("div", { class: "keys" }, ...chosen.map((s) => make("span", {}, make("i", { style: { background: hue(state.chosen.indexOf(s)) } }), s || "model")));
    place.lines.replaceChildren(chart, keys);
    lineChart(chart, { steps: m.steps, log: m.scale.kind === "log", series: chosen.map((s) => { const r = m.sites.indexOf(s); return { name: s || "model", values: row(m, r), low: row(m, r, "lows"), high: row(m, r, "highs"), colour: hue(state.chosen.indexOf(s)) }; }) });
  };
  const choose = (site) => {
    const at = state.chosen.indexOf(site);
    at >= 0 ? state.chosen.splice(at, 1) : state.chosen.push(site);
    if (state.chosen.length > MOST) state.chosen.shift();
    draw();
  };
  const draw = () => {
    if (!card.metrics.length) return;
    const m = metricOf(), folded = m.sites.length > 1 && m.steps.length > 1;
    pills.forEach((pill) => pill.setAttribute("aria-pressed", Number(pill.dataset.metric) === state.metric));
    place.explain.textContent = (m.meaning ? `${m.name}: ${m.meaning}` : m.name) + (folded && !state.chosen.length ? ". Click a layer for its line." : "");
    if (folded) { legend(place.legend, m.scale, m.values); heat(m); lines(m); }
    else { place.legend.replaceChildren(); place.lines.hidden = true; m.steps.length > 1 ? single(m) : bars(m); }
  };
  pills.forEach((pill) => pill.addEventListener("click", () => { state.metric = Number(pill.dataset.metric); draw(); }));
  const focus = (metric, sites) => {
    const i = card.metrics.findIndex((m) => m.name === metric);
    if (i >= 0) state.metric = i;
    state.chosen = sites.slice(0, MOST);
    draw();
  };
  return { draw, focus, section };
};

/* ---- arrays: per-channel curves and matrices, drawn when opened ---- */
const arraysOf = (section) => {
  const details = section.querySelector("[data-arrays]");
  if (!details) return;
  const draw = () => {
    const place = details.querySelector(".matrix");
    place.replaceChildren();
    const card = DATA.cards[Number(section.dataset.card)], nodes = card.metrics.length ? card.metrics[card.first].sites : [];
    for (const a of card.arrays) {
      const values = floats(a.data), [rows, cols] = a.shape;
      const figure = make("figure", {}, make("figcaption", { text: `${a.metric} · ${a.site || "model"} · step ${count(a.step)}${a.note ? " · " + a.note : ""}` }));
      place.append(figure);
      if (rows === 1) {
        figure.style.width = "min(100%, 300px)";
        const chart = make("div", { class: "chart" });
        figure.append(chart);
        lineChart(chart, { steps: Array.from({ length: cols }, (_, i) => i), height: 110, series: [{ name: "sorted values", values, colour: hue(0) }] });
        continue;
      }
      const size = Math.max(3, Math.min(36, Math.floor(260 / Math.max(rows, cols)))), canvas = make("canvas", { width: cols, height: rows }), paint = colouring(scaleOf(values)), pen = canvas.getContext("2d");
      Object.assign(canvas.style, { width: cols * size + "px", height: rows * size + "px", imageRendering: "pixelated", maxWidth: "100%" });
      values.forEach((v, i) => { const colour = paint(v); if (colour) { pen.fillStyle = `rgb(${colour})`; pen.fillRect(i % cols, Math.floor(i / cols), 1, 1); } });
      canvas.addEventListener("pointermove", (event) => { const box = canvas.getBoundingClientRect(), r = Math.floor((event.clientY - box.top) / box.height * rows), c = Math.floor((event.clientX - box.left) / box.width * cols); const name = (i) => nodes.length === Math.max(rows, cols) ? nodes[i] : i; show(event, `${name(r)} × ${name(c)}`, number(values[r * cols + c])); });
      canvas.addEventListener("pointerleave", hide);
      figure.append(canvas);
    }
  };
  details.addEventListener("toggle", () => details.open && draw());
  return () => details.open && draw();
};

/* ---- the page ---- */
const sections = [...document.querySelectorAll("[data-card]")], cards = sections.map(cardOf);
const pictures = sections.map(arraysOf).filter(Boolean);
const drawLoss = () => {
  const place = document.querySelector("[data-loss]");
  if (!place || !DATA.loss) return;
  if (!DATA.loss.values) { DATA.loss.values = floats(DATA.loss.data); if (DATA.loss.low) { DATA.loss.lows = floats(DATA.loss.low); DATA.loss.highs = floats(DATA.loss.high); } DATA.loss.smoothed = DATA.loss.smooth && floats(DATA.loss.smooth); }
  const l = DATA.loss, series = l.smoothed
    ? [{ name: "raw", values: l.values, low: l.lows, high: l.highs, colour: hue(0), thin: true, gaps: true }, { name: "loss, smoothed", values: l.smoothed, colour: hue(0) }]
    : [{ name: "loss", values: l.values, low: l.lows, high: l.highs, colour: hue(0), gaps: true }];
  lineChart(place, { steps: l.steps, series, height: 240, log: l.log, ahead: l.ahead });
};
const drawAll = () => { drawLoss(); cards.forEach((p) => p.draw()); pictures.forEach((draw) => draw()); };
const byAnchor = new Map(sections.map((s, i) => [s.id, cards[i]]));
document.querySelectorAll("[data-show]").forEach((link) => link.addEventListener("click", () => {
  const want = JSON.parse(link.dataset.show), card = byAnchor.get(link.getAttribute("href").slice(1));
  if (card) card.focus(want.metric, want.sites);
}));
const button = document.getElementById("theme");
const dress = (name) => { document.documentElement.dataset.theme = name; button.textContent = name === "dark" ? "light" : "dark"; };
let saved = null;
try { saved = localStorage.getItem("netvitals-theme"); } catch (error) { /* files opened from disk may have no storage */ }
const asked = new URLSearchParams(location.search).get("theme");
dress(asked || saved || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
button.addEventListener("click", () => {
  const name = dark() ? "light" : "dark";
  dress(name);
  try { localStorage.setItem("netvitals-theme", name); } catch (error) { /* as above */ }
  drawAll();
});
let waiting = 0, width = innerWidth;
addEventListener("resize", () => { if (innerWidth === width) return; width = innerWidth; clearTimeout(waiting); waiting = setTimeout(drawAll, 120); });
drawAll();
document.documentElement.dataset.drawn = String(cards.length);
})();
