"use strict";
/* The page of one run: verdict, findings, loss, vital signs at a glance, the layer view. */
(() => {
  const { html, useState, useMemo, useEffect } = nv;

  nv.FindingItem = ({ finding: f, sites, open, onShow, inner }) => {
    const body = html`${f.why && html`<p class="why">${f.why}</p>`}
      ${f.advice && html`<p class="advice"><b>What to do:</b> ${f.advice}${f.record ? html` <i>${f.record}</i>` : ""}</p>`}
      ${(f.null || f.threshold) && html`<details class="evidence"><summary>the rule</summary>
        <ul>${f.null && html`<li>Healthy: ${f.null}.</li>`}${f.threshold && html`<li>${f.threshold}</li>`}${f.refuted_by && html`<li>Not a problem if: ${f.refuted_by}.</li>`}</ul></details>`}
      ${(f.consequences || []).map((c) => html`<${nv.FindingItem} finding=${{ sites: [], evidence: [], ...c }} sites=${sites} inner=${true} />`)}
      ${(f.evidence || []).length > 0 && html`<details class="evidence"><summary>${f.evidence.length} measurement${f.evidence.length === 1 ? "" : "s"} behind this</summary>
        <ul>${f.evidence.slice(0, 24).map((line) => html`<li>${typeof line === "string" ? line : `${line.vital}/${line.metric} at ${line.site || "the model"}: ${nv.number(line.value)} (step ${line.step})`}</li>`)}</ul></details>`}`;
    const known = (x) => x !== null && x !== undefined;
    const when = [known(f.since) ? (known(f.until) && f.until > f.since ? `steps ${nv.count(f.since)} to ${nv.count(f.until)}` : `since step ${nv.count(f.since)}`) : ""].filter(Boolean).join(", ");
    return html`<article class=${`finding ${f.severity}`}>
      <div class="kind"><span>${f.severity}</span><span class="when">${when}</span>${onShow && (f.metric || f.vital === "loss") && html`<button type="button" class="plain" onclick=${() => onShow(f)}>show in ${f.title || "the loss"}</button>`}</div>
      <p class="what">${nv.marked(f.what, sites)}</p>
      ${open || inner ? body : html`<details class="fold"><summary>why it matters, and what to do</summary>${body}</details>`}
    </article>`;
  };

  const Tile = ({ vital, active, reach, onClick }) => {
    const t = vital.tile;
    const state = t.state.state;
    return html`<button type="button" class=${`tile ${state.replace(" ", "-")}`} title=${t.state.why} aria-pressed=${String(active)} tabindex=${reach ? 0 : -1} onclick=${onClick} onkeydown=${step}>
      <span class="name">${vital.title}</span><span class="state" title=${t.state.why || ""}><i class="dot" aria-hidden="true"></i>${nv.WORDS[state] !== undefined ? nv.WORDS[state] : state}</span>
      <span class="value">${t.value}</span><span class="of">${t.label}</span><span class="of">${t.step >= 0 ? `step ${nv.count(t.step)}` : ""}</span><${nv.Spark} spark=${t.spark} /></button>`;
  };

  /* one stop for the Tab key, arrows from tile to tile */
  const step = (event) => {
    const go = { ArrowRight: "nextElementSibling", ArrowDown: "nextElementSibling", ArrowLeft: "previousElementSibling", ArrowUp: "previousElementSibling" }[event.key];
    const next = go && event.currentTarget[go];
    if (next) { next.focus(); event.preventDefault(); }
  };

  const Loss = ({ run, head, version }) => {
    const view = nv.useView();
    const { answer } = nv.useAnswer(head.loss ? "metric" : "", { run, vital: "loss", metric: head.loss && head.loss.metric, ...nv.window(view) }, version);
    const theme = document.documentElement.dataset.theme;
    const [series, log] = useMemo(() => {
      if (!answer) return [null, false];
      const values = nv.floats(answer.mean), low = answer.low && nv.floats(answer.low), high = answer.high && nv.floats(answer.high), smooth = nv.smooth(answer.steps, values);
      const finite = Array.from(values).filter((v) => Number.isFinite(v) && v > 0), span = finite.length ? Math.max(...finite) / Math.min(...finite) : 1;
      const raw = { name: "loss", steps: answer.steps, values, low, high, colour: nv.hue(0), thin: Boolean(smooth) };
      return [smooth ? [raw, { name: "smoothed", steps: answer.steps, values: smooth, colour: nv.hue(0) }] : [raw], span > 30 && values.every((v) => !(v <= 0))];
    }, [answer, theme]);
    const marks = useMemo(() => head.findings.filter((f) => f.since >= 0 && f.since !== null && f.since !== undefined).map((f) => ({ step: f.since, tone: f.severity, text: `${f.severity} since step ${f.since}: ${f.what}` })), [head]);
    const ahead = head.forecasts && head.forecasts.ahead;
    if (!head.loss) return null;
    const broken = series && series[0].values.filter((v) => Number.isFinite(v)).length < 2;
    return html`<section class="card" id="loss"><header><h2>Loss</h2><span class="meaning aside">${head.loss.caption}</span></header>
      ${broken ? null : series ? html`<${nv.Lines} series=${series} log=${log} marks=${marks} ahead=${view.from === undefined ? ahead : null} unit="loss" label="loss by step" />` : html`<div style="height:240px"></div>`}
      <p class="meaning small">${broken ? "" : view.from !== undefined ? html`steps ${nv.count(Number(view.from))} to ${nv.count(Number(view.to))} <button type="button" class="plain" onclick=${() => nv.show({ from: "", to: "" })}>all steps</button>` : "Drag over a plot to select a range of steps for all plots."}</p>
    </section>`;
  };

  const Chosen = ({ metric, chosen, unit, theme }) => {
    const series = useMemo(() => {
      const cols = metric.steps.length, mean = nv.floats(metric.mean), low = metric.low && nv.floats(metric.low), high = metric.high && nv.floats(metric.high);
      return chosen.filter((s) => metric.sites.includes(s)).map((s, i) => { const r = metric.sites.indexOf(s); return { name: s, steps: metric.steps, values: nv.row(mean, r, cols), low: nv.row(low, r, cols), high: nv.row(high, r, cols), colour: nv.hue(chosen.indexOf(s)) }; });
    }, [metric, chosen, theme]);
    if (!series.length) return html`<p class="meaning small">Click a layer to plot its curve; double-click it or press Enter to see all its measurements.</p>`;
    const positive = series.every((s) => Array.from(s.values).every((v) => !(v <= 0)));
    const finite = series.flatMap((s) => Array.from(s.values)).filter((v) => Number.isFinite(v) && v > 0);
    return html`<div class="chosen"><${nv.Lines} series=${series} unit=${unit} log=${positive && finite.length && Math.max(...finite) / Math.min(...finite) > 100} label=${`${metric.metric} of chosen layers`} />
      <div class="keys">${series.map((s) => html`<button type="button" class="plain" onclick=${() => nv.show({ site: s.name }, true)}><i style=${{ background: s.colour }}></i>${s.name}</button>`)}
      <button type="button" class="plain" onclick=${() => nv.show({ chosen: "" })}>clear</button></div></div>`;
  };

  nv.Layers = ({ run, head, version }) => {
    const view = nv.useView(), theme = document.documentElement.dataset.theme;
    const vitals = head.vitals.filter((v) => v.metrics.length);
    const vital = vitals.find((v) => v.vital === view.vital) || vitals[0];
    const entry = vital && (vital.metrics.find((m) => m.name === view.metric) || vital.metrics.find((m) => m.name === vital.first) || vital.metrics[0]);
    const { answer, error } = nv.useAnswer(vital ? "metric" : "", { run, vital: vital && vital.vital, metric: entry && entry.name, ...nv.window(view) }, version);
    const sick = useMemo(() => { const map = new Map(); for (const f of [...head.findings].reverse()) if (vital && (f.vital === vital.vital || !f.vital)) for (const s of f.sites) map.set(s, f.severity); return map; }, [head, vital && vital.vital]);
    const chosen = useMemo(() => nv.listed(view.chosen), [view.chosen]);
    const choose = (site) => nv.show({ chosen: nv.joined(chosen.includes(site) ? chosen.filter((s) => s !== site) : [...chosen, site].slice(-nv.MOST)) });
    if (!vital) return null;
    const ready = answer && answer.vital === vital.vital && answer.metric === entry.name;
    return html`<section class="card" id="layers"><header><h2>${vital.title}</h2><span class="meaning aside">${entry.name}${entry.unit ? ` (${entry.unit})` : ""}: ${entry.meaning}</span></header>
      <div class="tools"><label>vital sign <select value=${vital.vital} onchange=${(e) => nv.show({ vital: e.target.value, metric: "" })}>${vitals.map((v) => html`<option value=${v.vital}>${v.title}</option>`)}</select></label>
        <label>metric <select value=${entry.name} onchange=${(e) => nv.show({ vital: vital.vital, metric: e.target.value })}>
          <optgroup label="by site">${vital.metrics.filter((m) => !m.pooled).map((m) => html`<option value=${m.name}>${m.name}</option>`)}</optgroup>
          <optgroup label="whole model">${vital.metrics.filter((m) => m.pooled).map((m) => html`<option value=${m.name}>${m.name}</option>`)}</optgroup></select></label>
        <span class="meaning">${vital.meaning}</span></div>
      ${error && html`<p class="meaning">${error}</p>`}
      ${ready ? html`<${nv.LayerMap} metric=${answer} sites=${head.sites} sick=${sick} chosen=${chosen} onChoose=${choose} onOpen=${(s) => nv.show({ site: s }, true)} title=${vital.title} unit=${entry.unit} meaning=${entry.meaning} />
        <${Chosen} metric=${answer} chosen=${chosen} unit=${entry.unit} theme=${theme} />` : html`<div style="height:420px"></div>`}
      ${vital.pictures.length > 0 && html`<div class="pictures">${vital.pictures.map((p) => html`<figure><h3>${p.title}</h3><div dangerouslySetInnerHTML=${{ __html: p.svg }}></div><figcaption>${p.caption}</figcaption></figure>`)}</div>`}
      ${vital.matrices.length > 0 && html`<details class="more" open><summary>Matrices</summary><div class="matrix">${vital.matrices.map((a) => html`<${nv.ArrayPicture} key=${a.site + a.metric} array=${a} />`)}</div></details>`}
      ${ready && html`<${Numbers} metric=${answer} unit=${entry.unit} />`}
    </section>`;
  };
  const Numbers = ({ metric, unit }) => {
    const [open, set] = useState(false);
    const mean = useMemo(() => nv.floats(metric.mean), [metric]), cols = metric.steps.length;
    return html`<details class="more" ontoggle=${(e) => set(e.currentTarget.open)}><summary>Table of first, last, smallest and largest values</summary>${open && html`<div class="table" tabindex="0" role="region" aria-label="numbers"><table><thead><tr><th>site</th><th>first</th><th>last</th><th>smallest</th><th>largest</th></tr></thead>
      <tbody>${metric.sites.map((s, r) => { const row = Array.from(nv.row(mean, r, cols)).filter((v) => !Number.isNaN(v)); return html`<tr><td>${s || "model"}</td><td>${nv.number(row[0])}</td><td>${nv.number(row[row.length - 1])}</td><td>${nv.number(Math.min(...row))}</td><td>${nv.number(Math.max(...row))}</td></tr>`; })}</tbody></table></div>`}</details>`;
  };

  const Forecasts = ({ stated }) => html`<section class="card" id="forecasts"><header><h2>Forecasts</h2></header>
    <p class="meaning">Each forecast is stored when it is made, and scored once its target step is reached.</p>
    ${stated.rows.length > 0 && html`<div class="table" tabindex="0" role="region" aria-label="open forecasts"><table><thead><tr>${["quantity", "where", "for step", "value", "80 % interval", "method"].map((n) => html`<th>${n}</th>`)}</tr></thead>
      <tbody>${stated.rows.map((row) => html`<tr>${row.map((c) => html`<td>${c}</td>`)}</tr>`)}</tbody></table></div>`}
    ${stated.methods.length > 0 && html`<details class="more"><summary>Scores of the forecast methods on this run</summary><ul>${stated.methods.map((line) => html`<li>${line}</li>`)}</ul></details>`}</section>`;

  nv.RunPage = ({ run, head, version }) => {
    const view = nv.useView();
    const sites = useMemo(() => head.sites.map((s) => s.name), [head]);
    const show = (f) => {
      if (f.vital === "loss" || !f.metric) { document.getElementById("loss").scrollIntoView({ block: "center" }); return; }
      nv.show({ vital: f.vital, metric: f.metric, chosen: nv.joined(f.sites.slice(0, nv.MOST)), q: "", role: "" }, true);
      document.getElementById("layers").scrollIntoView();
    };
    useEffect(() => { document.documentElement.dataset.drawn = String(head.vitals.length); }, [head]);
    const alarms = head.findings.some((f) => f.severity === "critical" || f.severity === "warning");
    const shown = alarms ? head.findings.filter((f) => f.severity !== "info") : [], folded = head.findings.filter((f) => !shown.includes(f));
    const list = (some) => html`<div class="list" tabindex="0" role="region" aria-label="findings, the most severe first">${some.map((f, i) => html`<${nv.FindingItem} key=${f.rule + f.what} finding=${f} sites=${sites} open=${i === 0} onShow=${show} />`)}</div>`;
    return html`<section class="hero"><h1>${head.title}</h1>
        <div class="line">${head.chips.map(([label, value]) => html`<span class="chip">${label} <b>${value}</b></span>`)}</div>
        <p class="words">${head.words.map((w) => html`${nv.marked(w, sites)} `)}</p></section>
      <div class="two">
        <section class="card" id="findings"><header><h2>Findings</h2><span class="meaning aside">${head.tally}</span></header>
          ${shown.length ? list(shown) : html`<div class="calm good"><p><b>No critical finding or warning.</b> ${head.calm}</p></div>`}
          ${folded.length > 0 && html`<details class="more" id="notes"><summary>${folded.length} ${shown.length ? "more for information" : folded.length === 1 ? "note" : "notes"}</summary>${list(folded)}</details>`}
          ${head.checked.length > 0 && html`<details class="more"><summary>What was checked</summary><ul class="checked">${head.checked.map((c) => html`<li class=${c.state}>${c.text}</li>`)}</ul></details>`}
        </section>
        <div class="column"><${Loss} run=${run} head=${head} version=${version} />
          <div class="tiles" role="group" aria-label="vital signs at a glance">${head.vitals.filter((v) => v.tile).map((v, i, all) => html`<${Tile} key=${v.vital} vital=${v} active=${view.vital === v.vital} reach=${all.some((o) => o.vital === view.vital) ? view.vital === v.vital : i === 0} onClick=${() => { nv.show({ vital: v.vital, metric: "" }, true); document.getElementById("layers").scrollIntoView(); }} />`)}</div></div>
      </div>
      ${view.site && html`<${nv.SitePanel} run=${run} name=${view.site} head=${head} version=${version} onClose=${() => nv.show({ site: "" })} />`}
      <${nv.Layers} run=${run} head=${head} version=${version} />
      ${head.forecasts && html`<${Forecasts} stated=${head.forecasts} />`}
      ${(head.panels || []).map((p) => html`<section class="card"><header><h2>${p.title}</h2></header><div dangerouslySetInnerHTML=${{ __html: p.html }}></div></section>`)}
      <section class="card" id="about"><header><h2>About this ${head.kind}</h2></header>
        <dl class="facts">${head.facts.map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}</dl>
        ${Object.keys(head.skipped).length ? html`<h3>Not measured</h3><p class="meaning">These parts of the model could not be measured, so no finding covers them.</p><ul class="skipped">${Object.entries(head.skipped).map(([place, why]) => html`<li><code>${place}</code>: ${why}</li>`)}</ul>`
          : html`<p class="meaning">All parts of the model were measured.</p>`}
        ${head.blocks.map(([name, text]) => html`<details class="more"><summary>${name}</summary><pre tabindex="0">${text}</pre></details>`)}
      </section>`;
  };
})();
