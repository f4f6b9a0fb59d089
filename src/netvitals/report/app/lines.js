"use strict";
/* A line chart: curves with the spread behind each column, marks and bands at dated steps, a brush that all panels share. */
(() => {
  const { html, useRef, useState, useMemo } = nv;
  const LEFT = 58, RIGHT = 12, TOP = 10, BOTTOM = 34;

  /* local straight lines: a smooth curve that does not end on its last noisy point */
  nv.smooth = (steps, values) => {
    const n = values.length, half = Math.max(2, Math.floor(n / 30)), out = new Float32Array(n).fill(NaN);
    if (n < 40) return null;
    for (let i = 0; i < n; i++) {
      let s = 0, sx = 0, sy = 0, sxx = 0, sxy = 0;
      const from = Math.max(0, Math.min(i - half, n - 1 - 2 * half)), to = Math.min(n - 1, Math.max(i + half, 2 * half));
      for (let k = from; k <= to; k++) {
        const y = values[k];
        if (!Number.isFinite(y)) continue;
        const x = steps[k] - steps[i];
        s += 1; sx += x; sy += y; sxx += x * x; sxy += x * y;
      }
      const det = s * sxx - sx * sx;
      out[i] = !s ? NaN : det > 1e-9 * s * sxx ? (sxx * sy - sx * sxy) / det : sy / s;
    }
    return out;
  };

  /* series: [{name, steps, values, low, high, colour, thin}]; marks: [{step, tone, text}]; ahead: {from, to, at, text}, what is forecast */
  nv.Lines = ({ series, log = false, height = 220, label, unit = "", marks = [], ahead = null, pin, brush = true }) => {
    const ref = useRef(), width = nv.useWidth(ref);
    const [at, setAt] = useState(null), [drag, setDrag] = useState(null);
    const drawn = useMemo(() => (width ? layout(series, ahead, width, height, log) : null), [series, ahead, width, height, log]);
    const body = !drawn ? null : drawn.empty ? html`<p class="meaning">There is no finite value to plot.</p>` : picture();

    function stepAt(event) {
      const box = ref.current.getBoundingClientRect();
      const t = ((event.clientX - box.left) * width / box.width - LEFT) / (width - LEFT - RIGHT);
      return drawn.first + Math.min(1, Math.max(0, t)) * (drawn.last - drawn.first);
    }
    function nearest(step) {
      let best = drawn.steps[0];
      for (const s of drawn.steps) if (Math.abs(s - step) < Math.abs(best - step)) best = s;
      return best;
    }
    function move(event) { const s = stepAt(event); setAt(nearest(s)); if (drag !== null) setDrag({ ...drag, to: s }); }
    function down(event) { if (brush) setDrag({ from: stepAt(event), to: stepAt(event) }); }
    function up() {
      if (!drag) return;
      const [from, to] = [drag.from, drag.to].sort((a, b) => a - b);
      if (to - from > (drawn.last - drawn.first) / 100) nv.show({ from: Math.floor(from), to: Math.ceil(to) }, true);
      setDrag(null);
    }
    function key(event) {
      const i = drawn.steps.indexOf(at === null ? drawn.steps[0] : at), go = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 }[event.key];
      if (go) { setAt(drawn.steps[Math.min(drawn.steps.length - 1, Math.max(0, i + go))]); event.preventDefault(); }
      if (event.key === "Home") setAt(drawn.steps[0]);
      if (event.key === "End") setAt(drawn.steps[drawn.steps.length - 1]);
      if (event.key === "Escape") nv.show({ from: "", to: "" });
    }
    function picture() {
      const { X, Y, up: ups, across, paths, band } = drawn;
      return html`<svg viewBox="0 0 ${width} ${height}" height=${height} role="img" aria-label=${label || series.map((s) => s.name).join(", ")} tabindex="0"
          onpointermove=${move} onpointerdown=${down} onpointerup=${up} onpointerleave=${() => { setAt(null); setDrag(null); }} onkeydown=${key}
          ondblclick=${() => nv.show({ from: "", to: "" })}>
        ${ups.map((t) => html`<line class=${t.zero ? "zero" : "grid"} x1=${LEFT} x2=${width - RIGHT} y1=${t.y} y2=${t.y} /><text x=${LEFT - 8} y=${t.y + 4} text-anchor="end">${t.text}</text>`)}
        ${across.map((t) => html`<text x=${t.x} y=${height - BOTTOM + 15} text-anchor=${t.anchor}>${t.text}</text>`)}
        <text class="axis-name" x=${(LEFT + width - RIGHT) / 2} y=${height - 3} text-anchor="middle">step</text>
        <text class="axis-name" transform=${`translate(11 ${(TOP + height - BOTTOM) / 2}) rotate(-90)`} text-anchor="middle">${unit}${log ? `${unit ? ", " : ""}log` : ""}</text>
        ${band && html`<rect class="forecast" x=${band.x} width=${band.wide} y=${TOP} height=${height - TOP - BOTTOM} /><line class="forecast-at" x1=${band.at} x2=${band.at} y1=${TOP} y2=${height - BOTTOM} />
          <text x=${band.at + (band.at > width - 170 ? -5 : 5)} y=${TOP + 12} text-anchor=${band.at > width - 170 ? "end" : "start"}>${band.text}</text>`}
        ${paths.map((p) => html`${p.area && html`<path d=${p.area} fill=${p.colour} opacity=".16" />`}<path d=${p.line} fill="none" stroke=${p.colour}
            stroke-width=${p.thin ? 1 : 1.9} stroke-linejoin="round" opacity=${p.thin ? 0.4 : 1} />${p.dots.map(([x, y]) => html`<circle cx=${x} cy=${y} r="3" fill=${p.colour} />`)}
            ${p.broken.map((x) => html`<path d=${`M${x - 4} ${TOP}h8l-4 7z`} class="broken" />`)}`)}
        ${marks.filter((m) => m.step >= drawn.first && m.step <= drawn.last).map((m) => html`<g class=${`mark ${m.tone}`}><line x1=${X(m.step)} x2=${X(m.step)} y1=${TOP} y2=${height - BOTTOM} />
            <circle cx=${X(m.step)} cy=${TOP + 3} r="4" /><title>${m.text}</title></g>`)}
        ${drag && html`<rect class="brush" x=${Math.min(X(drag.from), X(drag.to))} width=${Math.abs(X(drag.to) - X(drag.from))} y=${TOP} height=${height - TOP - BOTTOM} />`}
        ${at !== null && html`<line class="cursor" x1=${X(at)} x2=${X(at)} y1=${TOP} y2=${height - BOTTOM} />`}
        ${pin !== undefined && pin >= drawn.first && pin <= drawn.last && html`<line class="pin" x1=${X(pin)} x2=${X(pin)} y1=${TOP} y2=${height - BOTTOM} />`}
      </svg>
      <div class="readout" aria-live="polite">${at === null ? html`<span> </span>` : html`<b>step ${nv.count(at)}</b>${series.filter((s) => !s.thin || series.length === 1).map((s) => {
        const i = s.steps.indexOf(at);
        return html`<span><i style=${{ background: s.colour }}></i>${s.name} ${i < 0 ? "–" : nv.number(s.values[i])}</span>`;
      })}`}</div>`;
    }
    return html`<div class="chart" ref=${ref} style=${{ minHeight: `${height + 22}px` }}>${body}</div>`;
  };

  function layout(series, ahead, width, height, log) {
    const good = (v) => Number.isFinite(v) && (!log || v > 0);
    const seen = [];
    for (const s of series) for (const set of [s.values, s.low, s.high]) if (set) for (const v of set) if (good(v)) seen.push(v);
    const steps = [...new Set(series.flatMap((s) => s.steps))].sort((a, b) => a - b);
    if (!seen.length || !steps.length) return { empty: true };
    const f = log ? Math.log10 : (x) => x;
    let low = f(seen.reduce((a, b) => Math.min(a, b))), high = f(seen.reduce((a, b) => Math.max(a, b)));
    if (high - low < 1e-12 * Math.max(1, Math.abs(high))) { const pad = Math.abs(high) * 0.1 || 1; low -= pad; high += pad; }
    else { const pad = (high - low) * 0.05; if (!(low >= 0 && low - pad < 0 && !log)) low -= pad; high += pad; }
    const first = steps[0], measured = steps[steps.length - 1], last = Math.max(measured, ahead ? Math.min(ahead.to, 2 * measured + 1) : 0, first + 1), wide = last - first;
    const X = (s) => LEFT + (s - first) / wide * (width - LEFT - RIGHT), Y = (v) => TOP + (high - f(v)) / (high - low) * (height - TOP - BOTTOM);
    const up = nv.ticks(low, high, 5).map((t) => ({ y: TOP + (high - t) / (high - low) * (height - TOP - BOTTOM), text: nv.number(log ? Number((10 ** t).toPrecision(2)) : t), zero: t === 0 && !log && low < 0 }));
    const across = nv.ticks(first, last, Math.max(2, Math.floor(width / 95))).filter(Number.isInteger)
      .map((t) => ({ x: X(t), text: nv.count(t), anchor: X(t) < LEFT + 14 ? "start" : X(t) > width - 44 ? "end" : "middle" }));
    const paths = series.map((s) => {
      let line = "", pen = false;
      const dots = [], broken = [], ups = [], downs = [];
      s.values.forEach((v, i) => {
        if (!good(v)) { if (!Number.isNaN(v) && !s.thin) broken.push(X(s.steps[i])); pen = false; return; }
        line += `${pen ? "L" : "M"}${X(s.steps[i]).toFixed(1)} ${Y(v).toFixed(1)}`; pen = true;
        if (s.low && good(s.low[i]) && good(s.high[i])) { ups.push(`${X(s.steps[i]).toFixed(1)} ${Y(s.high[i]).toFixed(1)}`); downs.unshift(`${X(s.steps[i]).toFixed(1)} ${Y(s.low[i]).toFixed(1)}`); }
      });
      const points = s.values.reduce((n, v) => n + good(v), 0);
      if (points === 1) s.values.forEach((v, i) => good(v) && dots.push([X(s.steps[i]), Y(v)]));
      return { line, dots, broken, colour: s.colour, thin: s.thin, area: ups.length > 1 ? `M${ups.join("L")}L${downs.join("L")}Z` : "" };
    });
    const edge = (s) => X(Math.min(last, Math.max(first, s)));
    const band = ahead && ahead.from < last ? { x: edge(ahead.from), wide: Math.max(1, edge(ahead.to) - edge(ahead.from)), at: edge(ahead.at), text: `${ahead.text} ≈ ${nv.count(Math.round(ahead.at))}` } : null;
    return { first, last, steps, X, Y, up, across, paths, band };
  }

  nv.Spark = ({ spark }) => {
    if (!spark) return null;
    const [middle, low, high] = spark, all = [...low, ...high].filter(Number.isFinite), floor = Math.min(...all), span = Math.max(...all) - floor || 1;
    const at = (v, i, n) => `${(100 * i / Math.max(1, n - 1)).toFixed(1)} ${(28 - 26 * (v - floor) / span).toFixed(1)}`;
    const path = (values) => values.map((v, i) => at(v, i, values.length));
    return html`<svg viewBox="0 0 100 30" preserveAspectRatio="none" aria-hidden="true"><path d=${`M${path(high).join("L")}L${path(low).reverse().join("L")}Z`} fill="var(--accent)" opacity=".14" />
      <path d=${`M${path(middle).join("L")}`} fill="none" stroke="var(--accent)" stroke-width="1.6" vector-effect="non-scaling-stroke" /></svg>`;
  };
})();
