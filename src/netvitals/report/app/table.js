"use strict";
/* The list of runs: status, loss, most severe finding; sorted, searched, chosen for a comparison. */
(() => {
  const { html, useMemo } = nv;
  const COLUMNS = [["name", "run"], ["status", "status"], ["finding", "most severe finding"], ["spark", "loss"], ["ahead", "forecast"], ["last", "last step"], ["lr", "learning rate"], ["seconds", "took"], ["model", "model"], ["tags", "tags"]];
  const LossLine = ({ loss }) => {
    const values = ((loss && loss.means) || []).filter((v) => v !== null);
    if (values.length < 2) return null;
    const low = Math.min(...values), span = Math.max(...values) - low || 1;
    const d = values.map((v, i) => `${(100 * i / (values.length - 1)).toFixed(1)} ${(24 - 22 * (v - low) / span).toFixed(1)}`).join("L");
    return html`<svg class="line-small" viewBox="0 0 100 26" preserveAspectRatio="none" role="img" aria-label=${`loss from ${nv.number(values[0])} to ${nv.number(loss.last)}`}><path d=${`M${d}`} /></svg>`;
  };
  const rank = (row) => (row.damage ? -1 : !row.finding ? 9 : row.finding.severity ? nv.SEVERITY.indexOf(row.finding.severity) : 8);
  nv.order = (rows, by, down) => {
    const key = { finding: rank, ahead: (r) => (r.ahead ? r.ahead.at : Infinity), spark: (r) => (r.loss && r.loss.last !== null ? r.loss.last : Infinity), tags: (r) => (r.tags || []).join(" ") }[by] || ((r) => r[by]);
    return [...rows].sort((a, b) => { const x = key(a), y = key(b); const c = x === y ? 0 : x === undefined || x === null ? 1 : y === undefined || y === null ? -1 : x < y ? -1 : 1; return down ? -c : c; });
  };
  nv.RunTable = ({ rows }) => {
    const view = nv.useView(), chosen = nv.listed(view.runs);
    const [by, down] = [(view.by || "finding").replace(/^-/, ""), (view.by || "").startsWith("-")];
    const shown = useMemo(() => {
      let test = () => true;
      if (view.q) { try { const p = new RegExp(view.q, "i"); test = (r) => p.test(`${r.name} ${r.model} ${(r.tags || []).join(" ")} ${r.status} ${r.finding ? `${r.finding.severity} ${r.finding.what}` : ""}`); } catch { test = (r) => r.name.includes(view.q); } }
      const kept = rows.filter(test);
      return nv.order(kept, by, down);
    }, [rows, view.q, view.by]);
    const choose = (name) => nv.show({ runs: nv.joined(chosen.includes(name) ? chosen.filter((n) => n !== name) : [...chosen, name].slice(-30)) });
    const link = (name) => `/run/${name.split("/").map(encodeURIComponent).join("/")}`;
    return html`<section class="hero"><h1>Runs</h1><p class="words">${rows.length ? `${rows.length} run${rows.length === 1 ? "" : "s"}, ${rows.filter((r) => r.status === "running").length} running.` : "There are no runs yet. Use netvitals.watch(model, run=…) to record one in this folder."}</p></section>
      <section class="card"><div class="tools"><label>find <input type="search" value=${view.q || ""} placeholder="name, model, tag, finding" oninput=${(e) => nv.show({ q: e.target.value })} /></label>
        ${chosen.length > 1 ? html`<a class="button" href=${`/compare?${nv.query({ run: chosen })}`}>compare ${chosen.length} runs</a>` : html`<span class="meaning">Select two or more runs to compare them.</span>`}
        <button type="button" class="plain" onclick=${() => nv.notify()}>notify me of findings</button></div>
      <div class="table" tabindex="0" role="region" aria-label="runs"><table class="runs"><thead><tr><th><span class="hidden">choose</span></th>${COLUMNS.map(([key, title]) => html`<th aria-sort=${by === key ? (down ? "descending" : "ascending") : "none"}><button type="button" class="plain" onclick=${() => nv.show({ by: by === key && !down ? `-${key}` : key })}>${title}${by === key ? (down ? " ↓" : " ↑") : ""}</button></th>`)}</tr></thead>
        <tbody>${shown.map((r) => html`<tr key=${r.name}><td><input type="checkbox" aria-label=${`compare ${r.name}`} checked=${chosen.includes(r.name)} onchange=${() => choose(r.name)} /></td>
          <td><a href=${link(r.name)}>${r.name}</a></td>
          ${r.damage ? html`<td colspan=${COLUMNS.length - 1} class="critical"><i class="dot"></i> ${r.damage}</td>` : html`<td>${r.status}</td>
          ${!r.finding ? html`<td class="meaning small">findings not computed yet</td>` : r.finding.severity ? html`<td class=${r.finding.severity}><i class="dot"></i> ${r.finding.severity}: ${r.finding.what}</td>` : html`<td class="meaning small">${r.finding.what}</td>`}
          <td><${LossLine} loss=${r.loss} /> ${r.loss ? nv.number(r.loss.last) : ""}</td><td>${r.ahead ? `${r.ahead.text} ≈ step ${nv.count(Math.round(r.ahead.at))}` : ""}</td><td>${nv.count(r.last)}</td><td>${r.lr === null || r.lr === undefined ? "" : nv.number(r.lr)}</td><td>${nv.duration(r.seconds)}</td><td>${r.model}</td><td>${(r.tags || []).join(", ")}</td>`}</tr>`)}</tbody></table></div></section>`;
  };
})();
