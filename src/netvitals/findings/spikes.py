"""Are there single activations far above all others?"""

from __future__ import annotations

from collections.abc import Iterator

from netvitals.findings.rules import Context, Hit, called, rule, together
from netvitals.findings.series import Measurements, Series
from netvitals.runs import Finding, Severity

# weight-drift E13: max/mean is 19–34 in layers of a small GPT with ReLU, 155–444 with ReLU².
SPIKE = 100.0
# weight-drift §2.5: a "massive activation" is above 100 and above 1000 times the median.
MASSIVE, MASSIVE_OVER_MEDIAN = 100.0, 1000.0
SQUARED = ("relu2", "gelu2", "silu2", "squared")
SQUARING = 5.0  # squared activations reach 450 in health
OUTPUT = ("output link", "soft-cap", "router", "attention weight")  # roles that are tall for good reasons


@rule(
    "spikes",
    "Are all activations of similar size?",
    "spikes",
    ("spikes", "max_over_mean"),
    null="the largest activation of a layer is below 35 times the mean (450 times for squared activations)",
    threshold=f"{SPIKE:g} times the mean ({SQUARING:g} times more for squared activations); or above {MASSIVE:g} and "
    f"{MASSIVE_OVER_MEDIAN:g} times the median",
    source="weight-drift E13, §2.5",
    refuted_by="clipping the activation changes nothing",
)
def spike_findings(context: Context) -> Iterator[Finding]:
    """Activations far above the mean of their layer: where, in which channel, and where to clip."""
    table = context.table
    hits = []
    for s in table.at("spikes", "max_over_mean"):
        if table.roles.get(s.site, "") in OUTPUT:
            continue
        height = table.get("spikes", s.site, "max_abs")
        median = table.get("spikes", s.site, "max_over_median")
        massive = (
            height is not None and median is not None and height.end > MASSIVE and median.end > MASSIVE_OVER_MEDIAN
        )
        limit = SPIKE * (SQUARING if _squares(table, s.site) else 1.0)
        seldom = _seldom_on(table, s.site)  # most entries are zero: the mean is small, not the largest tall
        if (s.end > limit and not seldom) or massive:
            severity: Severity = "warning" if massive else "note"
            more = (table.get("spikes", s.site, metric) for metric in ("p999", "channel"))
            ground = [e for e in (s, height, *more) if e is not None and len(e.finite)]
            hits.append(
                Hit(
                    s.site,
                    severity,
                    tuple(
                        e.evidence(change=e is s and len(s.finite) > 2, value=e.last if e.metric == "channel" else None)
                        for e in ground
                    ),
                    s.end,
                )
            )
    worst = max(hits, key=lambda h: h.size, default=None)
    yield from together(
        hits,
        what=lambda where, worst: (
            f"Activation spikes in {where}: the largest activation of {called(worst.site)} is {worst.size:.0f} times "
            f"the mean (healthy: below {450 if _squares(table, worst.site) else 35})."
            f"{_channel(table, worst.site)}"
        ),
        why="A spike dominates norm layers and uses up the range of low-precision numbers.",
        advice=_advice(table, worst.site if worst else ""),
    )


def _squares(table: Measurements, site: str) -> bool:
    return any(word in table.op(site).lower() for word in SQUARED)


def _seldom_on(table: Measurements, site: str) -> bool:
    """Whether nine tenths of the entries are zero, so that a mean over all of them says nothing of those that are
    on."""
    zeros, median = table.get("sparsity", site, "hard"), table.get("spikes", site, "max_over_median")
    return zeros is not None and zeros.end > 0.9 and (median is None or median.end < SPIKE)


def _channel(table: Measurements, site: str) -> str:
    """Channel, position and sample of the spike, where they were read."""
    found = {m: table.get("spikes", site, m) for m in ("channel", "token", "sample")}
    known = {m: s.last for m, s in found.items() if s is not None and s.last == s.last}
    words = {"channel": "channel", "token": "position", "sample": "sample"}
    place = ", ".join(f"{words[m]} {value:.0f}" for m, value in known.items())
    return f" The spike is at {place}." if place else ""


def _advice(table: Measurements, site: str) -> str:
    p999: Series | None = table.get("spikes", site, "p999")
    if _squares(table, site):
        return "Clip the squared activation at 15: netvitals.activations.get('relu2:15')."
    return f"Clip the output of {called(site)}" + (
        f" at its 99.9 % quantile: x.clamp(max={p999.end:.3g})." if p999 is not None else ": x.clamp(max=...)."
    )


RULES = (spike_findings,)
