"use strict";
/* Runs side by side: what parted them first, what differs in their settings, curves over each other, a map of differences. */
(() => {
  const { html, useMemo, useState, useEffect } = nv;
  const useCurves = (runs, vital, metric, site, version) => {
    const [found, set] = useState(null);
    const key = nv.query({ runs, vital, metric, site });
    useEffect(() => {
      if (!vital) return undefined;
      let wanted = true;
      Promise.all(runs.map((run) => nv.ask("metric", { run, vital, metric }).catch(() => null))).then((all) => wanted && set({ key, all }));
      return () => { wanted = false; };
    }, [key, version]);
    return found && found.key === key ? found.all : null;
  };
  nv.ComparePage = ({ runs, version }) => {
    const view = nv.useView(), theme = document.documentElement.dataset.theme;
    const { answer, error } = nv.useAnswer("compare", { run: runs }, version);
    const entry = answer && (answer.metrics.find((m) => m.vital === view.vital && m.metric === view.metric) || answer.metrics.find((m) => m.vital === "loss") || answer.metrics[0]);
    const site = entry && (entry.sites.includes(view.at) ? view.at : entry.sites[0]);
    const all = useCurves(runs, entry && entry.vital, entry && entry.metric, site, version);
    const other = view.other && runs.includes(view.other) ? view.other : runs[1];
    const gap = nv.useAnswer(entry && !entry.pooled ? "difference" : "", { run: [runs[0], other], vital: entry && entry.vital, metric: entry && entry.metric }, version);
    const series = useMemo(() => (all || []).map((a, i) => {
      if (!a) return null;
      const r = a.sites.indexOf(site), cols = a.steps.length, values = nv.row(nv.floats(a.mean), r, cols), keep = [];
      if (r < 0) return null;
      values.forEach((v, k) => { if (!Number.isNaN(v)) keep.push(k); });
      const pick = (text) => text && keep.map((k) => nv.row(nv.floats(text), r, cols)[k]);
      return { name: runs[i], steps: keep.map((k) => a.steps[k]), values: keep.map((k) => values[k]), low: pick(a.low), high: pick(a.high), colour: nv.hue(i) };
    }).filter(Boolean), [all, site, theme]);
    if (!answer) return html`<section class="hero"><h1>Comparison</h1><p class="words">${error || "Reading the runs …"}</p></section>`;
    const first = answer.separated[0];
    const finite = series.flatMap((s) => Array.from(s.values)).filter((v) => Number.isFinite(v));
    const log = finite.length && finite.every((v) => v > 0) && Math.max(...finite) / Math.min(...finite) > 30;
    const noSick = new Map();
    return html`<section class="hero"><h1>${runs.length} runs side by side</h1>
        <div class="keys">${runs.map((run, i) => html`<a href=${`/run/${run.split("/").map(encodeURIComponent).join("/")}`}><i style=${{ background: nv.hue(i) }}></i>${answer.titles[i]}</a>`)}</div>
        <p class="words">${first ? html`${answer.titles[0]} and ${answer.titles[1]} first differ at step ${nv.count(first.step)}: ${first.title}, ${first.metric} at <code>${first.site || "model"}</code> is ${nv.number(first.values[0])} in the first run and ${nv.number(first.values[1])} in the second.` : "No metric that both of the first two runs measured differs yet."}</p></section>
      <div class="two"><section class="card"><header><h2>${entry.title}: ${entry.metric}</h2></header>
          <div class="tools"><label>metric <select value=${`${entry.vital} ${entry.metric}`} onchange=${(e) => { const [v, ...m] = e.target.value.split(" "); nv.show({ vital: v, metric: m.join(" "), at: "" }); }}>${answer.metrics.map((m) => html`<option value=${`${m.vital} ${m.metric}`}>${m.title}: ${m.metric}</option>`)}</select></label>
            ${entry.sites.length > 1 && html`<label>site <select value=${site} onchange=${(e) => nv.show({ at: e.target.value })}>${entry.sites.map((s) => html`<option value=${s}>${s || "model"}</option>`)}</select></label>`}</div>
          <${nv.Lines} series=${series} log=${Boolean(log)} label=${`${entry.metric} of ${runs.length} runs`} marks=${first ? [{ step: first.step, tone: "watch", text: "first difference" }] : []} /></section>
        <section class="card"><header><h2>First differences</h2></header>${answer.separated.length ? html`<ol class="parted">${answer.separated.slice(0, 12).map((s) => html`<li><button type="button" class="plain" onclick=${() => nv.show({ vital: s.vital, metric: s.metric, at: s.site })}>step ${nv.count(s.step)}: ${s.title}, ${s.metric}</button> <span class="meaning">at ${s.site || "model"}${s.sites > 1 ? ` and ${s.sites - 1} more` : ""}: ${nv.number(s.values[0])} against ${nv.number(s.values[1])}</span></li>`)}</ol>` : html`<p class="meaning">No metric differs between the runs yet.</p>`}</section></div>
      ${!entry.pooled && html`<section class="card" id="difference"><header><h2>Layer by layer: ${answer.titles[0]} minus ${other}</h2></header>
        ${runs.length > 2 && html`<div class="tools"><label>against <select value=${other} onchange=${(e) => nv.show({ other: e.target.value })}>${runs.slice(1).map((r) => html`<option value=${r}>${r}</option>`)}</select></label></div>`}
        ${gap.answer && gap.answer.metric === entry.metric ? html`<${nv.LayerMap} metric=${gap.answer} sites=${gap.answer.sites.map((name) => ({ name, block: "", role: "" }))} sick=${noSick} chosen=${[site]} onChoose=${(s) => nv.show({ at: s })} onOpen=${(s) => nv.show({ at: s })} title="difference" unit="" meaning="the first run minus the second" />` : html`<p class="meaning">${gap.error || "…"}</p>`}</section>`}
      <section class="card"><header><h2>Different settings</h2></header>${answer.settings.length ? html`<div class="table" tabindex="0" role="region" aria-label="settings"><table><thead><tr><th>setting</th>${runs.map((r) => html`<th>${r}</th>`)}</tr></thead><tbody>${answer.settings.map((s) => html`<tr><td>${s.name}</td>${runs.map((r) => html`<td>${s.values[r]}</td>`)}</tr>`)}</tbody></table></div>` : html`<p class="meaning">The recorded settings are the same.</p>`}</section>`;
  };
})();
