"use strict";
/* Colours: scales that a colour-blind reader can tell apart, and what a value looks like on them. */
(() => {
  const LINES = {
    light: ["#0a6b6a", "#b5471f", "#2f5fa8", "#84620c", "#7a3f90", "#2f7d38", "#ab2c62", "#56636f"],
    dark: ["#4cc3b5", "#f08a67", "#7fabef", "#e0b750", "#c48fd8", "#86cf8a", "#f083ae", "#a9b5c2"],
  };
  const RAMPS = {
    light: ["#f1f4ee", "#c4e2d6", "#7cc3b6", "#3596a0", "#1f628c", "#22356b"],
    dark: ["#16212c", "#1b4058", "#1e6f7e", "#40a392", "#98d39e", "#f3f4bd"],
  };
  const SPLITS = {
    light: ["#8f2d1f", "#d5694a", "#f2c3ad", "#f4f3ee", "#b5d3e6", "#4a8fc0", "#1d4b86"],
    dark: ["#ffb59a", "#d9694a", "#6e3a30", "#1b232c", "#274a68", "#4a93c9", "#b4dcf7"],
  };
  const set = (of) => of[nv.dark() ? "dark" : "light"];
  nv.MOST = LINES.light.length;
  nv.hue = (i) => set(LINES)[i % nv.MOST];
  const rgb = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
  const ramp = (stops) => {
    const colours = stops.map(rgb);
    return (t) => {
      const at = Math.min(Math.max(t, 0), 1) * (colours.length - 1), i = Math.min(Math.floor(at), colours.length - 2), f = at - i;
      return colours[i].map((c, k) => Math.round(c + f * (colours[i + 1][k] - c)));
    };
  };
  /* the domain of one metric: even, logarithmic, or split at zero; clipped at its 1 % and 99 % quantiles */
  nv.scale = (values, unit = "") => {
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
      return { kind: "log", note: " (log)", low: 10 ** from, high, at: (x) => (x <= 0 ? 0 : (Math.log10(x) - from) / (to - from)) };
    }
    const least = Math.max(0.05 * Math.abs(high), 1e-12);     // so that noise around a constant does not look like news
    if (high - low < least) { const pad = (least - (high - low)) / 2; low = low >= 0 ? Math.max(0, low - pad) : low - pad; high += pad; }
    if (unit === "share") { high = Math.min(1, high); low = Math.max(0, Math.min(low, high - 0.05)); }
    return { kind: "even", low, high, at: (x) => (x - low) / (high - low) };
  };
  nv.paint = (scale) => ramp(set(scale.kind === "split" ? SPLITS : RAMPS));
  const { html, useRef, useEffect } = nv;
  nv.Legend = ({ scale, unit, theme, broken }) => {
    const ref = useRef();
    useEffect(() => {
      if (scale.kind === "none" || !ref.current) return;
      const pen = ref.current.getContext("2d"), paint = nv.paint(scale);
      for (let i = 0; i < 130; i++) { pen.fillStyle = `rgb(${paint(i / 129)})`; pen.fillRect(i, 0, 1, 1); }
    }, [scale, theme]);
    return html`<span class="legend"><span class="key hatch"></span>not measured
      ${broken && html`<span class="key broken"></span>not finite`}
      ${scale.kind !== "none" && html`<span>${nv.number(scale.low)}</span><canvas ref=${ref} width="130" height="1" aria-hidden="true"></canvas>
        <span>${nv.number(scale.high)}${scale.note || ""}${unit ? ` ${unit}` : ""}</span>`}</span>`;
  };
})();
