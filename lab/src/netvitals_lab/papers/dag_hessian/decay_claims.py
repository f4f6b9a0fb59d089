"""Verdicts on experiments 1, 1b and 2: decay with distance, and the bottleneck."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import numpy as np

from netvitals.curvature.advice.distance import decay_rate
from netvitals_lab import Claims, Config, Expected, Measured, Plot, Row, Series, above, at_most
from netvitals_lab.engine.judges import column, groups, some
from netvitals_lab.papers.dag_hessian import _printed, bottleneck, distance
from netvitals_lab.papers.dag_hessian._measuring import by_distance, mean, spread

D, B = distance.NAME, bottleneck.NAME


def curve(rows: Sequence[Row], key: str = "resonance") -> np.ndarray:
    """Mean over seeds at each distance."""
    return np.mean([r[key] for r in rows], axis=0)


def _depths(rows: Sequence[Row], net: str) -> dict[int, list[Row]]:
    return dict(sorted(groups(rows, "depth", net=net, data="noise", phase="init").items()))


def _fits(rows: Sequence[Row], net: str) -> dict[int, tuple[float, float]]:
    return {d: (decay_rate(curve(rs)), _r2(curve(rs))) for d, rs in _depths(rows, net).items()}


def _rates_by_depth(fits: Mapping[int, tuple[float, float]]) -> dict[str, float]:
    """The rates as facts of a verdict."""
    return {f"rate at L = {d}": rate for d, (rate, _) in fits.items()}


def _r2(values: np.ndarray) -> float:
    d = np.arange(len(values))
    return float(np.corrcoef(d, np.log(values))[0, 1] ** 2)


TABLED = 4.0  # R̄(0)/R̄(11) of the plain network at the start, from the paper's own table


def _by_neck(rows: Sequence[Row], key: str) -> dict[int, float]:
    return {neck: mean(group, key) for neck, group in sorted(groups(rows, "neck", phase="init").items())}


def _necks(by: Mapping[int, float]) -> dict[str, float]:
    """Values by neck as facts of a verdict."""
    return {f"neck {neck}": value for neck, value in by.items()}


def _one_base(config: Config) -> bool:
    """Nets of one base width: the cells of Tables 3 and N.1 have a wider one, and are judged apart."""
    return config["base"] < 512 or config["epochs"] > 0


def _neck_plot(rows: Sequence[Row]) -> Plot:
    d = _by_neck(rows, "far_rank")
    far = Series("far pairs", list(d), list(d.values()), line=True)
    return Plot("width of the neck", "stable rank across it", [far], log_x=True)


COUPLING = Expected(_printed.COUPLING, tolerance=0.036)
RATES = {k: Expected(v, tolerance=round(0.15 * v, 4)) for k, v in _printed.RATES.items()}
RHO = {k: v[0] for k, v in _printed.RHO.items() if k[1] in (8, 12)}


def _at(net: str, depth: int | None = None) -> Callable[[Config], bool]:
    return lambda c: c["net"] == net and c["data"] == "noise" and depth in (None, c["depth"])


claim = Claims("dag-hessian", study=D)


@claim(
    "H1.1",
    above(0.9, "R² of the log-linear fit above 0.91"),
    uses={"data": "noise"},
    plot=by_distance("resonance", ("plain", "residual", "spectral")),
)
def exponential(rows: Sequence[Row]) -> Measured:
    """Resonance of an untrained plain net falls exponentially with distance."""
    fits = _fits(rows, "plain")
    worst = min(r2 for _, r2 in fits.values())
    return Measured(worst, "smallest R² of log R̄(d) over depths", facts=_rates_by_depth(fits))


for (net, depth), value in RATES.items():
    title = "spectrally normalised" if net == "spectral" else net

    @claim(
        f"R{net[0]}{depth}",
        value,
        statement=f"The {title} net of {depth} blocks falls at {value.value} a layer.",
        uses=_at(net, depth),
    )
    def rate(rows: Sequence[Row], net: str = net, depth: int = depth) -> Measured:
        found = some(rows, net=net, depth=depth, data="noise", phase="init")
        near, far = curve(found)[0], curve(found)[-1]
        return Measured(
            decay_rate(curve(found)), f"R̄(0) {near:.3g}, R̄({depth - 1}) {far:.3g}", stderr=spread(found, "rate")
        )


@claim("H1.2", "rate about 0, C > 0.93", uses=_at("residual"))
def flat(rows: Sequence[Row]) -> Measured:
    """Residual nets keep resonance level and coupling above 0.93 at every distance."""
    groups = _depths(rows, "residual")
    steepest = max(abs(decay_rate(curve(rs))) for rs in groups.values())
    weakest = min(float(curve(rs, "coupling").min()) for rs in groups.values())
    return Measured(
        steepest, f"largest |rate| over depths; smallest coupling {weakest:.3f}", ok=steepest < 0.02 and weakest > 0.93
    )


@claim(
    "H1.3",
    COUPLING,
    uses=lambda c: c["data"] == "noise" and c["net"] != "spectral" and c["depth"] in (8, 12),
    plot=by_distance("coupling", ("plain", "residual")),
)
def coupling(rows: Sequence[Row]) -> Measured:
    """Coupling of the plain 12-block net falls from 1 to 0.24 across it."""
    found = some(rows, net="plain", depth=12, data="noise", phase="init")
    return Measured(mean(found, "coupling", -1), stderr=spread(found, "coupling", -1))


@claim("H1.4", "λ₁ < 0", uses=_at("plain"))
def lyapunov(rows: Sequence[Row]) -> Measured:
    """At the start the Lyapunov exponent of Eq. 8 is negative, which guarantees decay."""
    depths = _depths(rows, "plain").values()
    eq8, qr = min(mean(rs, "lyapunov_eq8") for rs in depths), max(mean(rs, "lyapunov_qr") for rs in depths)
    return Measured(
        eq8,
        note="smallest Eq. 8 exponent is positive where R̄ decays; the printed numbers are the QR exponents from the "
        "identity, a different quantity (E9)",
        facts={"largest QR exponent": qr},
        ok=False,
        right=eq8 > 0 > qr,
        otherwise="signs are not as either reading says",
    )


@claim(
    "H1.5",
    "R̄(0)/R̄(11) above 1000",
    uses=_at("plain", 12),
    effect="R̄(0)/R̄(11) of the plain network of 12 layers at the start",
    correction="resonance falls by a factor of about 4 to 5 over 12 layers, as the paper's own table says",
)
def orders(rows: Sequence[Row]) -> Measured:
    """Resonance falls by three to four orders of magnitude at L = 12."""
    found = some(rows, net="plain", depth=12, data="noise", phase="init")
    ratio = float(curve(found)[0] / curve(found)[-1])
    note = "R̄(0)/R̄(11) at the start, beside the one of the paper's own table"
    return Measured(ratio, note, facts={"paper's table": TABLED}, ok=ratio > 1e3, right=2 < ratio < 10)


@claim(
    "H1.6",
    at_most(0.15, "within 15 % of the table"),
    uses=lambda c: (c["net"], c["depth"]) in RHO and c["data"] == "noise",
)
def norms(rows: Sequence[Row]) -> Measured:
    """Largest block norms at the start: 2.59 and 2.69 plain, 1.25 and 1.20 residual."""
    seen = {(n, d): mean(some(rows, net=n, depth=d, data="noise", phase="init"), "rho") for n, d in RHO}
    worst = max(abs(seen[k] / RHO[k] - 1) for k in RHO)
    facts = {f"{n}, L = {d}": v for (n, d), v in seen.items()}
    return Measured(worst, "largest relative distance to the table", facts=facts)


@claim(
    "H1.7",
    "plain rate rises, residual C > 0.85",
    uses=lambda c: c["epochs"] > 0 and c["net"] != "spectral" and "probes" not in c,
)
def trained(rows: Sequence[Row]) -> Measured:
    """Training steepens the plain net's decay; the residual net stays coupled."""
    trained = [r for r in rows if r["epochs"]]
    begin, end = (decay_rate(curve(some(trained, net="plain", phase=p))) for p in ("init", "final"))
    level = decay_rate(curve(some(rows, net="residual", phase="final")))
    low = min(map(min, column(trained, "coupling", net="residual")))
    return Measured(
        end,
        "rate of the plain net after training",
        facts={"before": begin, "residual after": level, "its coupling at least": low},
        ok=end > begin and abs(level) < 0.05 and low > 0.85,
    )


@claim("H1.8", "one sample's blocks fall far more slowly than the average block", uses=_at("plain"))
def cancellation(rows: Sequence[Row]) -> Measured:
    """The decay is that of the Jacobian product."""
    found = some(rows, net="plain", data="noise", phase="init")
    ours, theirs = mean(found, "fixed_apart_rate"), mean(found, "fixed_rate")
    return Measured(
        ours / theirs,
        "fall a layer at a fixed end, one sample's block over the average block's",
        facts={"of the average": theirs, "of one sample": ours, "typical gain of the Jacobians": -mean(found, "gain")},
        ok=ours < 0.6 * theirs,
    )


@claim("H1b", "ρ ≤ 1, R² ≥ 0.99, C > 0.6", uses=_at("spectral"), plot=by_distance("resonance", ("spectral",)))
def spectral(rows: Sequence[Row]) -> Measured:
    """With spectral norm ρ ≤ 1, decay is exponential and coupling stays high."""
    fits, depths = _fits(rows, "spectral"), _depths(rows, "spectral").values()
    rho = max(mean(rs, "rho") for rs in depths)
    c = min(float(curve(rs, "coupling")[-1]) for rs in depths)
    r2 = min(r for _, r in fits.values())
    return Measured(
        rho,
        "largest ρ over depths",
        facts={"R² at least": r2, "coupling across the net at least": c, **_rates_by_depth(fits)},
        ok=rho <= 1 and r2 > 0.99 and c > 0.6 and max(max(column(rs, "gap")) for rs in depths) < 1e-6,
    )


@claim("H2.1", "rises", study=B, uses=_one_base, plot=_neck_plot)
def rank_rises(rows: Sequence[Row]) -> Measured:
    """The stable rank across a bottleneck grows with its width."""
    d = _by_neck(rows, "far_rank")
    values = list(d.values())
    rising = all(b > a - 0.02 * a for a, b in pairwise(values)) and values[-1] > values[0]
    return Measured(values[-1] / values[0], "widest over narrowest neck", facts=_necks(d), ok=rising)


@claim("H2.2", "never above", study=B, uses=_one_base)
def rank_bound(rows: Sequence[Row]) -> Measured:
    """The stable rank across a bottleneck is at most min(d_u, K − 1)."""
    found = some(rows, phase="init")
    per_sample = all(
        r["sample_rank"] <= min(r["neck"], r["classes"] - 1) * (1 + 1e-6) and r["gn_rank"] <= r["neck"]
        for r in found
        if r["neck"] < r["base"]
    )
    slack = max(r["sample_rank"] / min(r["neck"], r["classes"] - 1) for r in found)
    return Measured(
        slack,
        note="largest stable rank of a sample's far block over min(d_u, K−1); the bound "
        "is per sample, an average over the batch may exceed it (E11)",
        ok=per_sample,
    )


@claim("H2.3", "rises, by a smaller factor", study=B, uses=_one_base)
def coupling_rises(rows: Sequence[Row]) -> Measured:
    """Coupling grows with the neck too, but less than the rank."""
    by = _by_neck(rows, "far_coupling")
    coupling, rank = (d[max(d)] / d[min(d)] for d in (by, _by_neck(rows, "far_rank")))
    return Measured(
        coupling,
        "growth of the coupling over the necks",
        facts={"of the stable rank": rank, **_necks(by)},
        ok=1 < coupling < rank,
    )
