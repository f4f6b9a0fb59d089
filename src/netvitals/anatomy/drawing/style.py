"""How the page of an anatomy looks, in light and in dark."""

STYLE = """
:root {
  color-scheme: light dark;
  --paper: #fbfbf9; --ink: #1d2327; --faint: #69747c; --line: #d9dde0; --panel: #ffffff; --stream: #c9b458;
  --low: #d7e3f4; --high: #b3261e;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #14171a; --ink: #e6e9eb; --faint: #98a3ab; --line: #2f363b; --panel: #1b1f23; --stream: #8f7f34;
    --low: #22344d; --high: #ff8a75;
  }
}
body { margin: 2rem auto; max-width: 70rem; padding: 0 1rem; background: var(--paper); color: var(--ink);
  font: 14px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.35rem; margin: 0 0 .2rem; }
.sum, .count, .kind, .role, .detail, .shape, dt { color: var(--faint); }
.sum { margin: 0 0 .8rem; }
.legend { display: flex; flex-wrap: wrap; gap: .4rem; align-items: center; margin-bottom: 1rem; }
.chip { border-left: .8rem solid var(--mark); padding: 0 .5rem; border-radius: 3px; background: var(--panel);
  border-top: 1px solid var(--line); border-bottom: 1px solid var(--line); border-right: 1px solid var(--line); }
.ramp { width: 12rem; height: .8rem; border-radius: 3px; background: linear-gradient(90deg, var(--low), var(--high)); }
ul { list-style: none; margin: 0; padding: 0 0 .3rem .9rem; }
li { margin: .12rem 0; }
details.module { background: var(--panel); border: 1px solid var(--line); border-radius: 6px; margin: .25rem 0;
  padding: .15rem .6rem; }
details.writes { border-left: .45rem solid var(--stream); }
summary { cursor: pointer; padding: .15rem 0; }
.count { font-size: .8rem; }
.adds { font-size: .8rem; border: 1px solid var(--stream); border-radius: 3px; padding: 0 .3rem; }
.note { margin: .1rem 0 .3rem 1rem; font: 12px/1.4 ui-monospace, monospace; overflow-wrap: anywhere; }
.site { display: grid; grid-template-columns: .9rem 13rem 9rem minmax(8rem, 1fr) 9rem 5rem; gap: .5rem;
  align-items: baseline; }
.site > b { font-weight: 600; overflow-wrap: anywhere; }
.shape, .value { font-variant-numeric: tabular-nums; text-align: right; }
.dot { width: .7rem; height: .7rem; border-radius: 2px; background: var(--mark); align-self: center; }
.valued .dot { background: color-mix(in oklab, var(--high) var(--share), var(--low)); }
.valued .value { background: color-mix(in oklab, var(--high) calc(.65 * var(--share)), transparent); border-radius: 3px;
  padding: 0 .3rem; }
.none .dot { background: var(--line); }
.heads, .experts { margin: 0 0 .4rem 1rem; font-size: .7rem; color: var(--faint); }
.heads div { display: flex; gap: 2px; margin: 2px 0; align-items: center; }
.heads i { width: 1.2rem; }
.q, .k { display: inline-block; height: 1.1rem; width: 1.5rem; text-align: center; border-radius: 2px;
  background: #6f9fd8; color: #0b1a2b; line-height: 1.1rem; }
.k { width: calc(var(--wide, 1) * 1.5rem + (var(--wide, 1) - 1) * 2px); background: #79b7a5; color: #08231b; }
.experts { display: flex; gap: 3px; align-items: flex-end; height: 3.2rem; }
.bar { flex: 0 0 1.6rem; height: max(1.1rem, var(--share)); background: #b48ad6; color: #1f0d2c; text-align: center;
  border-radius: 2px 2px 0 0; }
.idle { background: var(--line); color: var(--faint); }
dl { display: grid; grid-template-columns: 7rem 1fr; gap: .15rem .8rem; margin-top: 1.2rem; }
dd { margin: 0; overflow-wrap: anywhere; }
.hidden-activation { --mark: #d98032; } .output-link { --mark: #c23b6b; } .soft-cap { --mark: #e0b000; }
.router { --mark: #9a5fc9; } .attention-weight { --mark: #3a7fd0; } .normaliser { --mark: #7d8a93; }
.readout { --mark: #b3261e; } .embedding { --mark: #2f9e6e; } .positional { --mark: #86c06a; }
.hidden-layer { --mark: #4d6f8f; } .gate { --mark: #c99a6b; } .recurrent { --mark: #4aa3a3; } .other { --mark: #999; }
@media (max-width: 46rem) {
  .site { grid-template-columns: .9rem 1fr auto; }
  .site .detail, .site .role { display: none; }
}
"""
