"use strict";
/* The page as a whole: which part is shown, word of changes from the server, toasts for what is newly found. */
(() => {
  const { html, render, useState, useEffect, useRef } = nv;
  const path = (() => { try { return decodeURIComponent(location.pathname); } catch { return location.pathname; } })();
  const place = nv.embedded ? { page: "run", run: "" } : path.startsWith("/run/") ? { page: "run", run: path.slice(5) } : path === "/compare" ? { page: "compare", runs: new URLSearchParams(location.search).getAll("run") } : { page: "table" };

  /* versions grow when the server says that a run has changed */
  const useChanges = (mine) => {
    const [version, set] = useState(0), [lost, setLost] = useState(false);
    useEffect(() => {
      if (!nv.live) return undefined;
      const events = new EventSource("/api/events");
      let waiting = null;
      events.onopen = () => setLost(false);
      events.onerror = () => setLost(true);
      events.onmessage = (event) => {
        const stated = JSON.parse(event.data);
        const names = [...(stated.changed || []), ...(stated.gone || [])];
        if ((mine === null && (names.length || stated.judged)) || (mine && names.some((n) => mine.includes(n)))) { if (!waiting) waiting = setTimeout(() => { waiting = null; set((v) => v + 1); }, 150); }
      };
      return () => { events.close(); clearTimeout(waiting); };
    }, []);
    return [version, lost];
  };
  nv.notify = () => { if (typeof Notification !== "undefined") Notification.requestPermission(); };

  /* findings that were not there before; the ones of the first answer are no news */
  const useNews = (head) => {
    const known = useRef(null), [toasts, set] = useState([]);
    useEffect(() => {
      if (!head) return;
      const keys = head.findings.map((f) => `${f.rule}|${f.severity}`);
      if (known.current === null) { known.current = new Set(keys); return; }
      const fresh = head.findings.filter((f) => !known.current.has(`${f.rule}|${f.severity}`));
      keys.forEach((k) => known.current.add(k));
      if (!fresh.length) return;
      set((old) => [...old, ...fresh.map((f) => ({ ...f, id: `${f.rule}${f.severity}`, at: head.steps[1] }))].slice(-4));
      if (typeof Notification !== "undefined" && Notification.permission === "granted") fresh.forEach((f) => new Notification(`${head.title}: ${f.severity}`, { body: f.what, tag: f.rule }));
    }, [head]);
    return [toasts, (id) => set((old) => old.filter((t) => t.id !== id))];
  };

  const Bar = ({ lost, children }) => {
    const [theme, turn] = nv.useTheme();
    return html`<div class="bar"><div><a class="brand" href=${nv.live ? "/" : "#"} aria-label="netvitals, all runs"><svg viewBox="0 0 30 20" fill="none" stroke="currentColor" stroke-width="2" stroke-linecap="round" stroke-linejoin="round" aria-hidden="true"><path d="M1 11h6l2.5-6 4 12 4-15 3 9h3" /><circle cx="26" cy="11" r="2.4" fill="currentColor" stroke="none" /></svg>netvitals</a>
      <nav aria-label="sections">${children}</nav>${lost && html`<span class="lost" role="status">connection lost; reconnecting</span>`}
      <button class="theme" type="button" id="theme" onclick=${turn}>${theme === "dark" ? "light" : "dark"}</button></div></div>`;
  };
  const jump = (id) => (event) => { event.preventDefault(); const node = document.getElementById(id); if (node) node.scrollIntoView(); };

  const Run = () => {
    const [version, lost] = useChanges(nv.live ? [place.run] : null);
    const { answer, error } = nv.useAnswer("head", { run: place.run }, version);
    const [toasts, dismiss] = useNews(answer);
    useEffect(() => { if (answer) document.title = `${answer.title} · netvitals`; }, [answer && answer.title]);
    return html`<${Bar} lost=${lost}>${[["findings", "Findings"], ["loss", "Loss"], ["layers", "Layers"], ["about", "About"]].map(([id, name]) => html`<a href=${`#${id}`} onclick=${jump(id)}>${name}</a>`)}</${Bar}>
      <main id="top">${answer ? html`<${nv.RunPage} run=${place.run} head=${answer} version=${version} />` : html`<section class="hero"><h1>${place.run}</h1><p class="words">${error || "Reading the run …"}</p></section>`}
      <footer>Written by netvitals${nv.live ? ". This page is updated while the run is written." : ". This file needs no network: it holds its own data."}</footer></main>
      <div class="toasts" role="log" aria-live="assertive" aria-label="new findings">${toasts.map((t) => html`<div class=${`toast ${t.severity}`} key=${t.id}><div><b>${t.severity}</b> at step ${nv.count(t.at)}<p>${t.what}</p></div>
        <button type="button" class="plain" onclick=${() => { if (t.metric) { nv.show({ vital: t.vital, metric: t.metric, chosen: nv.joined(t.sites.slice(0, 8)) }); document.getElementById("layers").scrollIntoView(); } dismiss(t.id); }}>show</button>
        <button type="button" class="plain" aria-label="dismiss" onclick=${() => dismiss(t.id)}>×</button></div>`)}</div>`;
  };
  const Table = () => {
    const [version, lost] = useChanges(null);
    const { answer, error } = nv.useAnswer("runs", {}, version);
    useEffect(() => { const again = setInterval(() => nv.show({}), 60000); return () => clearInterval(again); }, []);
    return html`<${Bar} lost=${lost} /><main id="top">${answer ? html`<${nv.RunTable} rows=${answer.runs} />` : html`<p class="words">${error || "Reading the runs …"}</p>`}</main>`;
  };
  const Compare = () => {
    const [version, lost] = useChanges(place.runs);
    return html`<${Bar} lost=${lost}><a href="/">All runs</a></${Bar}><main id="top"><${nv.ComparePage} runs=${place.runs} version=${version} /></main>`;
  };
  const parts = { run: Run, table: Table, compare: Compare };
  const home = document.getElementById("app");
  home.replaceChildren();
  render(html`<${parts[place.page]} />`, home);
})();
