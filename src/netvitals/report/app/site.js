"use strict";
/* One site: its place in the network, all its vital signs over time, its arrays, what was found there. */
(() => {
  const { html, useRef, useEffect, useMemo } = nv;

  nv.ArrayPicture = ({ array }) => {
    const ref = useRef(), values = useMemo(() => nv.floats(array.data), [array]);
    const matrix = array.shape[0] > 1;
    useEffect(() => {
      if (!matrix) return;
      const pen = ref.current.getContext("2d"), scale = nv.scale(values), paint = nv.paint(scale);
      values.forEach((v, i) => { pen.fillStyle = Number.isFinite(v) ? `rgb(${paint(scale.at(v))})` : "#c2187f"; pen.fillRect(i % array.shape[1], Math.floor(i / array.shape[1]), 1, 1); });
    });
    const steps = useMemo(() => Array.from(values, (_, i) => i), [values]);
    return html`<figure><figcaption>${array.metric}, step ${nv.count(array.step)} (${array.note})</figcaption>
      ${matrix ? html`<canvas ref=${ref} class="grid" width=${array.shape[1]} height=${array.shape[0]} role="img" aria-label=${`${array.metric} of ${array.site} as a matrix`}></canvas>`
        : html`<${Sorted} values=${values} name=${`${array.metric} by channel, sorted`} />`}</figure>`;
    function Sorted({ values: v, name }) {
      const series = useMemo(() => [{ name, steps, values: v, colour: nv.hue(0) }], [v]);
      return html`<${nv.Lines} series=${series} height=${120} label=${name} brush=${false} />`;
    }
  };

  const Bands = ({ band }) => {
    const numbers = (row) => band.rows[row].map((v) => (v === null ? NaN : v));
    const series = useMemo(() => [
      { name: "5–95 %", steps: band.steps, values: numbers(2), low: numbers(0), high: numbers(4), colour: nv.hue(0), thin: true },
      { name: "median", steps: band.steps, values: numbers(2), low: numbers(1), high: numbers(3), colour: nv.hue(0) },
    ], [band]);
    return html`<${nv.Lines} series=${series} height=${130} label=${`channels of ${band.metric} over time`} />`;
  };

  nv.SitePanel = ({ run, name, head, version, onClose }) => {
    const view = nv.useView();
    const { answer, error } = nv.useAnswer("site", { run, site: name, ...nv.window(view) }, version);
    const close = useRef();
    useEffect(() => { close.current.focus(); }, [name]);
    const info = head.sites.find((s) => s.name === name) || {};
    const here = head.findings.filter((f) => f.sites.includes(name));
    const index = head.sites.findIndex((s) => s.name === name), around = head.sites.slice(Math.max(0, index - 3), index + 4);
    const rows = useMemo(() => {
      if (!answer || answer.site !== name) return [];
      const cols = answer.steps.length, mean = nv.floats(answer.mean), low = answer.low && nv.floats(answer.low), high = answer.high && nv.floats(answer.high);
      return answer.metrics.map(([vital, metric], r) => {
        const values = nv.row(mean, r, cols), keep = [];
        values.forEach((v, i) => { if (!Number.isNaN(v)) keep.push(i); });
        const pick = (set) => set && keep.map((i) => set[i]);
        return { vital, metric, series: [{ name: metric, steps: keep.map((i) => answer.steps[i]), values: pick(values), low: pick(nv.row(low, r, cols)), high: pick(nv.row(high, r, cols)), colour: nv.hue(0) }] };
      });
    }, [answer, name, document.documentElement.dataset.theme]);
    const vitals = [...new Set(rows.map((r) => r.vital))];
    const title = (vital) => (head.vitals.find((v) => v.vital === vital) || {}).title || vital;
    const entry = (vital, metric) => ((head.vitals.find((v) => v.vital === vital) || { metrics: [] }).metrics.find((m) => m.name === metric)) || {};
    return html`<section class="card site" aria-label=${`site ${name}`}>
      <header><h2><code>${name}</code></h2><button ref=${close} type="button" class="plain aside" onclick=${onClose}>close</button></header>
      <p class="meaning">${[info.op, info.role, info.kind && `site of kind ${info.kind}`, info.follows && `after ${info.follows}`, info.block && `in block ${info.block}`].filter(Boolean).join(" · ")}</p>
      <ol class="around" aria-label="neighbouring sites in forward order">${around.map((s) => html`<li aria-current=${s.name === name ? "true" : undefined}><button type="button" class="plain" onclick=${() => nv.show({ site: s.name })}>${s.name}</button></li>`)}</ol>
      ${here.map((f) => html`<${nv.FindingItem} finding=${f} sites=${[name]} open=${true} />`)}
      ${error && html`<p class="meaning">${error}</p>`}
      ${vitals.map((vital) => html`<h3>${title(vital)}</h3><div class="small-charts">${rows.filter((r) => r.vital === vital && r.series[0].steps.length).map((r) => html`<figure key=${r.metric}><figcaption>${r.metric} <span class="meaning">${entry(vital, r.metric).meaning || ""}</span></figcaption>
        <${nv.Lines} series=${r.series} height=${120} unit=${entry(vital, r.metric).unit || ""} label=${`${r.metric} of ${name}`} /></figure>`)}</div>`)}
      ${answer && answer.site === name && (answer.bands || []).length > 0 && html`<h3>Channels over time</h3><div class="small-charts">${answer.bands.map((b) => html`<figure key=${b.vital + b.metric}><figcaption>${b.metric} <span class="meaning">5, 25, 50, 75 and 95 % of the channels</span></figcaption><${Bands} band=${b} /></figure>`)}</div>`}
      ${answer && answer.arrays && answer.arrays.length > 0 && html`<details class="more"><summary>Arrays by channel</summary><div class="small-charts">${answer.arrays.map((a) => html`<${nv.ArrayPicture} key=${a.metric} array=${a} />`)}</div></details>`}
    </section>`;
  };
})();
