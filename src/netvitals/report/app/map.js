"use strict";
/* The layer view: one metric, every site by every measured step. Blocks fold, sick rows come first, a mini-map shows all. */
(() => {
  const { html, useRef, useState, useMemo, useEffect, useLayoutEffect } = nv;
  const ROW = 24, SHOWN = 22;     // pixels of a row (large enough to be hit), rows on the screen at most

  /* rows of the map: pinned sick sites, then blocks with their sites */
  nv.rowsOf = (sites, known, { sick, open, filter, role, sort, worst }) => {
    let test = () => true;
    if (filter) { try { const pattern = new RegExp(filter, "i"); test = (s) => pattern.test(s); } catch { test = (s) => s.includes(filter); } }
    const info = new Map(known.map((k) => [k.name, k]));
    const listed = sites.map((name, index) => ({ name, index, block: (info.get(name) || {}).block || "", role: (info.get(name) || {}).role || "" }))
      .filter((s) => test(s.name) && (!role || s.role === role));
    const grave = (name) => { const i = nv.SEVERITY.indexOf(sick.get(name)); return i < 0 ? 9 : i; };
    const pinned = (listed.length <= SHOWN ? [] : listed).filter((s) => grave(s.name) < 3).sort((a, b) => grave(a.name) - grave(b.name)).slice(0, 12);
    const rows = pinned.map((s) => ({ ...s, kind: "site", pinned: true, tone: sick.get(s.name) }));
    if (sort === "severity") {
      listed.sort((a, b) => grave(a.name) - grave(b.name) || worst(b.index) - worst(a.index));
      return rows.concat(listed.filter((s) => !pinned.includes(s)).map((s) => ({ ...s, kind: "site", tone: sick.get(s.name) })));
    }
    const blocks = new Map();
    for (const s of listed) { if (!blocks.has(s.block)) blocks.set(s.block, []); blocks.get(s.block).push(s); }
    const fold = listed.length > SHOWN && blocks.size > 1 && !filter;
    for (const [name, members] of blocks) {
      const folded = fold && name && members.length > 1 && !open.has(name);
      const tone = nv.SEVERITY.find((t) => members.some((s) => sick.get(s.name) === t));
      if (fold && name && members.length > 1) rows.push({ kind: "block", name, members: members.map((s) => s.index), folded, tone });
      if (!folded) rows.push(...members.map((s) => ({ ...s, kind: "site", inside: fold && name && members.length > 1, tone: sick.get(s.name) })));
    }
    return rows;
  };

  const cell = (m, row, c) => {
    if (row.kind === "site") return m.mean[row.index * m.cols + c];
    let total = 0, n = 0, broken = false;
    for (const r of row.members) { const v = m.mean[r * m.cols + c]; if (Number.isFinite(v)) { total += v; n += 1; } else if (!Number.isNaN(v)) broken = true; }
    return n ? total / n : broken ? Infinity : NaN;
  };
  const hatch = (pen, size) => {
    const tile = document.createElement("canvas");
    tile.width = tile.height = size;
    const brush = tile.getContext("2d");
    brush.strokeStyle = nv.dark() ? "#3a4653" : "#d5d2c8";
    brush.lineWidth = Math.max(1, size / 8);
    brush.beginPath(); brush.moveTo(0, size); brush.lineTo(size, 0); brush.stroke();
    return pen.createPattern(tile, "repeat");
  };
  const draw = (canvas, m, rows, scale, tall, gap) => {
    const pen = canvas.getContext("2d"), paint = nv.paint(scale), wide = canvas.width / m.cols, blank = hatch(pen, 8);
    pen.clearRect(0, 0, canvas.width, canvas.height);
    rows.forEach((row, r) => {
      for (let c = 0; c < m.cols; c++) {
        const v = cell(m, row, c), x = Math.floor(c * wide), end = Math.max(Math.floor((c + 1) * wide), x + 1);
        pen.fillStyle = Number.isNaN(v) ? blank : !Number.isFinite(v) ? "#c2187f" : `rgb(${paint(scale.at(v))})`;
        pen.fillRect(x, r * tall, end - x, tall - gap);
      }
    });
  };

  nv.LayerMap = ({ metric, sites, sick, chosen, onChoose, onOpen, title, unit, meaning }) => {
    const view = nv.useView(), box = useRef(), canvas = useRef(), mini = useRef(), width = nv.useWidth(box);
    const [top, setTop] = useState(0), [at, setAt] = useState(null), [drag, setDrag] = useState(null);
    const theme = document.documentElement.dataset.theme;
    const m = useMemo(() => ({ cols: metric.steps.length, mean: nv.floats(metric.mean) }), [metric]);
    const scale = useMemo(() => nv.scale(m.mean, unit), [m, unit]);
    const open = useMemo(() => new Set(nv.listed(view.blocks)), [view.blocks]);
    const worst = (r) => { let w = 0; const row = nv.row(m.mean, r, m.cols); for (const v of row) if (Number.isFinite(v)) w = Math.max(w, Math.abs(v)); return w; };
    const roles = useMemo(() => [...new Set(sites.filter((s) => metric.sites.includes(s.name)).map((s) => s.role).filter(Boolean))].sort(), [sites, metric]);
    const rows = useMemo(() => nv.rowsOf(metric.sites, sites, { sick, open, filter: view.q, role: view.role, sort: view.sort, worst }), [metric, sites, sick, view.blocks, view.q, view.role, view.sort]);
    const shown = Math.min(SHOWN, rows.length), first = Math.min(top, Math.max(0, rows.length - shown)), visible = rows.slice(first, first + shown);
    const names = Math.min(300, Math.max(110, 8 * Math.max(0, ...visible.map((r) => r.name.length)) + 46), Math.max(110, width * 0.42));
    const wide = Math.max(60, width - names - 38), density = Math.min(devicePixelRatio || 1, 2);
    useLayoutEffect(() => {
      if (!canvas.current || !width || !m.cols) return;
      canvas.current.width = Math.round(wide * density); canvas.current.height = Math.round(shown * ROW * density);
      draw(canvas.current, m, visible, scale, ROW * density, density);
      mini.current.width = 28; mini.current.height = Math.min(rows.length, shown * ROW);
      draw(mini.current, m, rows, scale, mini.current.height / Math.max(1, rows.length), 0);
    }, [m, rows, first, scale, wide, theme, density]);
    useEffect(() => { setTop(0); }, [metric.vital, metric.metric, view.q, view.role, view.sort]);

    const spot = (event) => {
      const area = canvas.current.getBoundingClientRect();
      const r = Math.min(shown - 1, Math.max(0, Math.floor((event.clientY - area.top) / ROW))), c = Math.min(m.cols - 1, Math.max(0, Math.floor((event.clientX - area.left) / area.width * m.cols)));
      return { r: first + r, c };
    };
    const act = (row) => (row.kind === "block" ? toggle(row.name) : onChoose(row.name));
    const toggle = (name) => { const next = new Set(open); if (next.has(name)) next.delete(name); else next.add(name); nv.show({ blocks: nv.joined([...next]) }); };
    const wheel = (event) => { if (rows.length > shown) { setTop(Math.min(rows.length - shown, Math.max(0, first + Math.sign(event.deltaY) * 2))); event.preventDefault(); } };
    useEffect(() => { const node = box.current; node.addEventListener("wheel", wheel, { passive: false }); return () => node.removeEventListener("wheel", wheel); });
    const key = (event) => {
      const now = at || { r: first, c: m.cols - 1 }, go = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1], PageUp: [-shown, 0], PageDown: [shown, 0] }[event.key];
      if (event.key === "Enter" || event.key === " ") { const row = rows[now.r]; if (row.kind === "block") toggle(row.name); else onOpen(row.name); event.preventDefault(); return; }
      if (event.key === "Escape") { nv.show({ from: "", to: "" }); return; }
      const next = event.key === "Home" ? { r: 0, c: now.c } : event.key === "End" ? { r: rows.length - 1, c: now.c } : go && { r: Math.min(rows.length - 1, Math.max(0, now.r + go[0])), c: Math.min(m.cols - 1, Math.max(0, now.c + go[1])) };
      if (!next) return;
      event.preventDefault();
      setAt(next);
      if (next.r < first) setTop(next.r); else if (next.r >= first + shown) setTop(next.r - shown + 1);
    };
    const up = () => {
      if (drag && Math.abs(drag.to - drag.from) > Math.max(1, m.cols / 100)) { const [a, b] = [drag.from, drag.to].sort((x, y) => x - y); nv.show({ from: metric.steps[a], to: metric.steps[b] }, true); }
      else if (at) act(rows[at.r]);
      setDrag(null);
    };
    const stated = at && rows[at.r] ? html`<b>${rows[at.r].name || "model"}</b><span>step ${nv.count(metric.steps[at.c])}</span><span>${metric.metric}${rows[at.r].kind === "block" ? ` (mean of ${rows[at.r].members.length})` : ""}: ${Number.isNaN(cell(m, rows[at.r], at.c)) ? "not measured" : nv.number(cell(m, rows[at.r], at.c))} ${unit}</span>` : html`<span>${meaning || " "}</span>`;
    const ticks = m.cols ? nv.ticks(metric.steps[0], metric.steps[m.cols - 1], Math.max(2, Math.floor(wide / 100))).filter(Number.isInteger) : [];
    const place = (step) => { let c = 0; while (c < m.cols - 1 && metric.steps[c] < step) c += 1; return 100 * (c + 0.5) / m.cols; };
    return html`<div class="layers">
      <div class="tools">
        <label>find <input type="search" value=${view.q || ""} placeholder="name or pattern" oninput=${(e) => nv.show({ q: e.target.value })} /></label>
        ${roles.length > 1 && html`<label>role <select value=${view.role || ""} onchange=${(e) => nv.show({ role: e.target.value })}><option value="">all</option>${roles.map((r) => html`<option value=${r}>${r}</option>`)}</select></label>`}
        <label>order <select value=${view.sort || ""} onchange=${(e) => nv.show({ sort: e.target.value })}><option value="">depth, in blocks</option><option value="severity">severity</option></select></label>
        <span class="meaning">${view.q || view.role ? `${rows.filter((r) => r.kind === "site" && !r.pinned).length} of ` : ""}${metric.sites.length} sites${rows.some((r) => r.folded) ? "; blocks are folded" : ""}</span>
        <${nv.Legend} scale=${scale} unit=${unit} theme=${theme} broken=${m.mean.some((v) => v === Infinity || v === -Infinity)} />
      </div>
      <div class="readout" aria-live="polite">${stated}</div>
      <div class="map" ref=${box} style=${{ gridTemplateColumns: `${names}px minmax(0, 1fr) 28px` }}>
        <div class="names" role="list" aria-label="sites">${visible.map((row, i) => html`<div role="listitem" key=${(row.pinned ? "pin " : "") + row.kind + row.name} class=${`name ${row.tone || ""} ${row.inside ? "inside" : ""}`}>
          <button type="button" tabindex="-1" title=${row.name} aria-pressed=${row.kind === "site" ? String(chosen.includes(row.name)) : undefined} aria-expanded=${row.kind === "block" ? String(!row.folded) : undefined}
            onclick=${() => act(row)} ondblclick=${() => row.kind === "site" && onOpen(row.name)} style=${chosen.includes(row.name) ? { boxShadow: `inset -4px 0 0 ${nv.hue(chosen.indexOf(row.name))}` } : {}}>
            ${row.tone && html`<i class="dot" aria-label=${row.tone}></i>`}${row.kind === "block" ? (row.folded ? "▸ " : "▾ ") : ""}<bdi>${row.name || "model"}</bdi>${row.kind === "block" ? ` (${row.members.length})` : ""}</button></div>`)}</div>
        <div class="cells"><canvas ref=${canvas} tabindex="0" role="img" style=${{ height: `${shown * ROW}px` }} aria-label=${`${title}, ${metric.metric}: ${metric.sites.length} sites by ${m.cols} columns of steps. Use the arrow keys to move, and Enter to open a site.`}
            onpointermove=${(e) => { const s = spot(e); setAt(s); if (drag) setDrag({ ...drag, to: s.c }); }} onpointerdown=${(e) => { const s = spot(e); setAt(s); setDrag({ from: s.c, to: s.c }); }} onpointerup=${up}
            onpointerleave=${() => { setAt(null); setDrag(null); }} ondblclick=${() => at && rows[at.r].kind === "site" && onOpen(rows[at.r].name)} onkeydown=${key}></canvas>
          ${at && at.r >= first && at.r < first + shown && html`<i class="spot" style=${{ top: `${(at.r - first) * ROW}px`, height: `${ROW - 1}px`, left: `${100 * at.c / m.cols}%`, width: `max(3px, ${100 / m.cols}%)` }}></i>`}
          ${drag && html`<i class="brush" style=${{ left: `${100 * Math.min(drag.from, drag.to) / m.cols}%`, width: `${100 * (Math.abs(drag.to - drag.from) + 1) / m.cols}%` }}></i>`}
          <div class="axis" aria-hidden="true">${ticks.map((t) => html`<span style=${{ left: `${place(t)}%` }}>${nv.count(t)}</span>`)}<em>step</em></div></div>
        <div class="mini"><canvas ref=${mini} aria-hidden="true" style=${{ height: `${shown * ROW}px` }} onclick=${(e) => { const area = e.currentTarget.getBoundingClientRect(); setTop(Math.max(0, Math.round((e.clientY - area.top) / area.height * rows.length - shown / 2))); }}></canvas>
          ${rows.length > shown && html`<i style=${{ top: `${100 * first / rows.length}%`, height: `${100 * shown / rows.length}%` }}></i>`}</div>
      </div>
    </div>`;
  };
})();
