"use strict";
/* What every part of the page uses: drawing by preact and htm, numbers in words, asking for data, state in the address. */
const nv = {};
(() => {
  const { html, render, useState, useEffect, useLayoutEffect, useRef, useMemo, useCallback } = htmPreact;
  Object.assign(nv, { html, render, useState, useEffect, useLayoutEffect, useRef, useMemo, useCallback });

  /* ---- numbers and names ---- */
  nv.number = (x) => {
    if (x === null || x === undefined || Number.isNaN(x)) return "–";
    if (!Number.isFinite(x)) return x > 0 ? "not finite" : "−∞";
    if (x === 0) return "0";
    const size = Math.abs(x);
    const text = size >= 1e5 || size < 1e-3 ? x.toExponential(2).replace("e+", "e") : String(Number(x.toPrecision(4)));
    return text.replace(/-/g, "−");
  };
  nv.count = (n) => n.toLocaleString("en");
  nv.duration = (s) => {
    if (s === null || s === undefined) return "";
    if (s < 90) return `${Math.round(s)} s`;
    if (s < 5400) return `${Math.round(s / 60)} min`;
    return s < 129600 ? `${(s / 3600).toFixed(1)} h` : `${(s / 86400).toFixed(1)} d`;
  };
  nv.floats = (text) => {
    if (text instanceof Float32Array) return text;
    const raw = atob(text || ""), bytes = new Uint8Array(raw.length);
    for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
    return new Float32Array(bytes.buffer);
  };
  nv.row = (values, r, cols) => values && values.subarray(r * cols, (r + 1) * cols);
  nv.ticks = (low, high, wanted) => {
    const span = high - low;
    if (!(span > 0)) return [low];
    const power = 10 ** Math.floor(Math.log10(span / wanted));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => span / s <= wanted) || span;
    const out = [];
    for (let x = Math.ceil(low / step) * step; x <= high + step * 1e-6; x += step) out.push(Math.abs(x) < step * 1e-9 ? 0 : x);
    return out;
  };
  nv.SEVERITY = ["critical", "warning", "note", "info"];
  nv.WORDS = { good: "checked and good", "not asked": "no check" };     // states that are not said as they are called
  nv.pooled = (site) => site === "" || site === "model" || site.startsWith("model/");

  /* ---- data: out of the file itself, or from the server ---- */
  const inside = document.getElementById("data");
  nv.embedded = inside ? JSON.parse(inside.textContent) : null;
  nv.live = !nv.embedded;
  nv.joined = (names) => names.map((n) => n.replace(/[%|]/g, encodeURIComponent)).join("|");     // several names in one part of the address
  nv.listed = (text) => (text || "").split("|").filter(Boolean).map((n) => n.replace(/%25|%7C/g, decodeURIComponent));
  nv.query = (params) => Object.entries(params).flatMap(([k, v]) => (Array.isArray(v) ? v : [v]).filter((x) => x !== null && x !== undefined && x !== "")
    .map((x) => `${encodeURIComponent(k)}=${encodeURIComponent(x)}`)).join("&");
  nv.ask = async (what, params = {}) => {
    if (nv.embedded) {
      const { run, start, stop, ...rest } = params;
      const found = what === "site" ? siteOf(rest.site) : nv.embedded[nv.query(rest) ? `${what}?${nv.query(rest)}` : what];
      if (!found) throw new Error("this file does not hold that");
      return start === undefined ? found : cut(found, start, stop);
    }
    const response = await fetch(`/api/${what}?${nv.query(params)}`);
    const answer = await response.json().catch(() => ({ error: `the server answered ${response.status}` }));
    if (!response.ok) throw new Error(answer.error || `the server answered ${response.status}`);
    return answer;
  };
  /* a file has its numbers metric by metric, in columns of its own width */
  const cut = (answer, start, stop) => {
    const kept = answer.steps.map((s, i) => (s >= start && s <= stop ? i : -1)).filter((i) => i >= 0), cols = answer.steps.length;
    const pick = (text) => { if (!text) return text; const all = nv.floats(text), rows = all.length / cols; return Float32Array.from({ length: rows * kept.length }, (_, k) => all[Math.floor(k / kept.length) * cols + kept[k % kept.length]]); };
    return { ...answer, steps: kept.map((i) => answer.steps[i]), mean: pick(answer.mean), low: pick(answer.low), high: pick(answer.high) };
  };
  const siteOf = (name) => {
    const rows = Object.values(nv.embedded).filter((a) => a.sites && a.metric && a.sites.includes(name));
    const steps = [...new Set(rows.flatMap((a) => a.steps))].sort((a, b) => a - b), at = new Map(steps.map((s, i) => [s, i]));
    const gather = (part) => {
      const out = new Float32Array(rows.length * steps.length).fill(NaN);
      rows.forEach((a, r) => { const from = nv.row(nv.floats(a[part] || a.mean), a.sites.indexOf(name), a.steps.length); a.steps.forEach((s, i) => { out[r * steps.length + at.get(s)] = from[i]; }); });
      return out;
    };
    return { site: name, metrics: rows.map((a) => [a.vital, a.metric]), steps, mean: gather("mean"), low: gather("low"), high: gather("high"), arrays: (nv.embedded.arrays || {})[name] || [] };
  };
  /* the answer to a question, kept on the page until the next one is there: nothing flickers */
  nv.useAnswer = (what, params, version = 0) => {
    const [state, set] = useState({ answer: null, error: "" });
    const key = what && `${what}?${nv.query(params)}`;
    useEffect(() => {
      if (!what) return undefined;
      let wanted = true;
      nv.ask(what, params).then((answer) => wanted && set({ answer, error: "", key }), (error) => wanted && set((old) => ({ ...old, error: String(error.message || error) })));
      return () => { wanted = false; };
    }, [key, version]);
    return state;
  };

  /* ---- state of the view, in the address ---- */
  const read = () => Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  let state = read();
  const listeners = new Set();
  nv.view = () => state;
  nv.show = (changes, push = false) => {
    state = Object.fromEntries(Object.entries({ ...state, ...changes }).filter(([, v]) => v !== null && v !== undefined && v !== ""));
    const hash = new URLSearchParams(state).toString();
    history[push ? "pushState" : "replaceState"](null, "", hash ? `#${hash}` : location.pathname + location.search);
    listeners.forEach((f) => f(state));
  };
  addEventListener("hashchange", () => { state = read(); listeners.forEach((f) => f(state)); });
  addEventListener("popstate", () => { state = read(); listeners.forEach((f) => f(state)); });
  nv.useView = () => {
    const [, set] = useState(state);
    useEffect(() => { listeners.add(set); return () => listeners.delete(set); }, []);
    return state;
  };
  nv.window = (view) => (view.from !== undefined && view.to !== undefined ? { start: Number(view.from), stop: Number(view.to) } : {});
  nv.useWidth = (ref) => {
    const [width, set] = useState(0);
    useLayoutEffect(() => {
      const watch = new ResizeObserver(() => ref.current && set(Math.round(ref.current.clientWidth)));
      watch.observe(ref.current);
      set(Math.round(ref.current.clientWidth));
      return () => watch.disconnect();
    }, []);
    return width;
  };

  /* ---- theme ---- */
  const stored = () => { try { return localStorage.getItem("netvitals-theme"); } catch { return null; } };
  const root = document.documentElement;
  root.dataset.theme = stored() || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  nv.dark = () => root.dataset.theme === "dark";
  nv.useTheme = () => {
    const [theme, set] = useState(root.dataset.theme);
    const turn = () => {
      root.dataset.theme = nv.dark() ? "light" : "dark";
      try { localStorage.setItem("netvitals-theme", root.dataset.theme); } catch { /* a file without storage */ }
      set(root.dataset.theme);
      listeners.forEach((f) => f({ ...state }));
    };
    return [theme, turn];
  };
  /* names of sites in a sentence are set as code */
  nv.marked = (text, sites) => {
    const named = [...sites].filter((s) => s && !/^[\d.]+$/.test(s)).sort((a, b) => b.length - a.length).slice(0, 400);
    if (!named.length) return text;
    const pattern = new RegExp(`(?<![\\w.])(${named.map((s) => s.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("|")})(?![\\w]|\\.\\w)`);
    return text.split(pattern).map((piece, i) => (i % 2 ? html`<code>${piece}</code>` : piece));
  };
})();
