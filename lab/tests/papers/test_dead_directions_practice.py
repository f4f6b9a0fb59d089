"""Rates in use and the sweeps of Tables 9 to 12 at smoke scale, and the claims they decide."""

from __future__ import annotations

from netvitals_lab import find_claim, find_study
from netvitals_lab.papers.dead_directions import sweeps
from netvitals_lab.papers.dead_directions._choices import DESIGNS
from netvitals_lab.papers.dead_directions._practice import NETS, REFUSED

PREFIX = "dead-directions-"


def verdicts(seen):
    return {c.split("/")[1]: v for c, v in seen.verdicts.items()}


def test_rates_in_use(whole):
    found = verdicts(whole("practice", excuse="paired seeds"))
    asked = dict.fromkeys(("S12", "S12-refusal", "S5.1", "S9.2", "S9.3"), "holds")
    asked |= dict.fromkeys(("S12-frame", "S5.1-reach"), "reproduced")  # the paper prints no network
    assert {n: found[n].status for n in asked} == asked, {n: str(found[n]) for n in asked}
    assert found["S9.3-counts"].status == "underspecified"
    assert all(v.status == "not-judged" for n, v in found.items() if n.startswith("S15"))  # one seed is no comparison


def test_the_sweeps(whole):
    found = verdicts(whole("sweeps"))
    tables = [n for n in found if n.startswith(("T9", "T10"))]
    assert len(tables) == 8 and all(found[n].status == "holds" for n in tables), {n: str(found[n]) for n in tables}
    assert found["T12"].status == found["T12-smallest"].status == "not-run"


def judged(name, rows):
    return find_claim(f"dead-directions/{name}").judge(rows).status


def test_a_claim_on_rates_in_use_can_fail(smoke):
    rows = smoke("practice").rows
    pick = lambda check: [dict(r) for r in rows if r["check"] == check]
    off = [{**r, "difference": None if r["difference"] is None else r["difference"] + 0.2} for r in pick("deviation")]
    assert judged("S12", off) == "fails"
    assert judged("S12-refusal", [{**r, "refused": False} for r in pick("refusal")]) == "fails"
    turned = [{**r, "start": {"aligned": "random", "random": "aligned"}[r["start"]]} for r in pick("approach")]
    assert {judged(n, turned) for n in ("S12-frame", "S5.1", "S5.1-reach")} == {"fails"}
    assert judged("S9.2", [{**r, "kept": not r["kept"]} for r in pick("stream")]) == "fails"
    assert judged("S9.2", [{**r, "raw": 0.5} for r in pick("stream")]) == "fails"
    assert judged("S9.3", [{**r, "shift": r["shift"] + 0.1} for r in pick("shift")]) == "fails"
    assert judged("S9.3-counts", [{**r, "count": 1.0} for r in pick("shift")]) == "holds"
    five = [{**r, "seed": s} for r in pick("pruning") for s in range(5)]
    worse = [{**r, "spearman": -r["seed"] / 99 if r["criterion"] == "rate" else 0.5} for r in five]
    assert judged("S15-fisher", worse) == "fails"
    flat = [{**r, "seed": s, "test": -r["steepness"] + s / 99} for r in pick("design") for s in range(5)]
    assert judged("S15-design", flat) == "fails"


def test_a_claim_on_the_sweeps_can_fail(smoke):
    rows = smoke("sweeps").rows
    probes = [dict(r) for r in rows if r["check"] == "probe"]
    of = lambda *topics: [r for r in probes if r["topic"] in topics]
    off = lambda r: {**r, "measured": None if r["measured"] is None else r["measured"] + 1}
    for name, topics in (
        ("T9-directions", ("several directions",)),
        ("T10-stream", ("residual stream", "heads, stream")),
    ):
        assert judged(name, [off(r) for r in of(*topics)]) == "fails"
    assert judged("T10-rotation", [off(r) for r in of("rotation")]) == "fails"
    floors = [
        {"check": "floor", "eps": e, "depth": d, "span": 2 - i / 9, "late_span": 0.5, "slope": 2.0 * (d - 1)}
        | {"predicted": 2 * (d - 1), "r2": 1.0, "turned": 0.0}
        for i, e in enumerate(sweeps.FLOORS)
        for d in (2, 3)
    ]
    assert judged("T11", floors) == judged("T11-span", floors) == "holds"
    assert judged("T11", [{**r, "slope": 2.0} for r in floors]) == "fails"
    assert judged("T11-span", [{**r, "span": 2 - r["span"]} for r in floors]) == "fails"
    reach = [{**dict(r), "steps": 20_000} for r in rows if r["check"] == "reach"]
    assert judged("T12", [{**r, "zeros": 0.0} for r in reach]) == "not-judged"
    assert judged("T12", [{**r, "zeros": 0.1 if r["driver"] == "eps 1e-08" else 0.0} for r in reach]) == "holds"
    near = lambda least: [{**r, "smallest": 0.1 if r["driver"] == "sgd" else least} for r in reach]
    assert judged("T12-smallest", near(1e-6)) == "holds" and judged("T12-smallest", near(0.05)) == "fails"


def test_the_paper_scale_has_the_sweeps_that_the_tables_name():
    configs = find_study("dead-directions-sweeps").configs("paper")
    rectangular = [c for c in configs if c.get("topic") == "rectangular"]
    assert len({tuple(c["options"]["widths"]) for c in rectangular}) == 18 and len(rectangular) == 72
    assert {len(c["options"]["exponents"]) for c in configs if c.get("topic") == "several directions"} == {1, 2, 3}
    assert {c["options"]["heads"] for c in configs if c.get("topic") == "heads"} == {1, 2, 4}
    assert len({c["eps"] for c in configs if c["check"] == "floor"}) == 9
    practice = find_study("dead-directions-practice").configs("paper")
    assert (
        {c["net"] for c in practice if c["check"] == "deviation"} == set(NETS)
        and len(REFUSED) == 7
        and len(DESIGNS) == 9
    )
    assert {c["seed"] for c in practice if c["check"] in ("pruning", "design")} == set(range(10))
