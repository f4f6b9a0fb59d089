"""Verdicts on experiments 1, 1b and 2: decay with distance, and the bottleneck."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np

from netvitals.curvature.advice.distance import decay_rate
from netvitals_lab import Claim, Config, Expected, Plot, Row, Series, Verdict, decide, within
from netvitals_lab.engine.judges import column, corrected, groups, some
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


def _exponential(rows: Sequence[Row]) -> Verdict:
    fits = _fits(rows, "plain")
    worst = min(r2 for _, r2 in fits.values())
    return decide(worst > 0.9, worst, note="smallest R² of log R̄(d) over depths", facts=_rates_by_depth(fits))


def _rate(net: str, depth: int, expected: Expected) -> Callable[[Sequence[Row]], Verdict]:
    def judge(rows: Sequence[Row]) -> Verdict:
        found = some(rows, net=net, depth=depth, data="noise", phase="init")
        return within(
            decay_rate(curve(found)),
            expected,
            spread(found, "rate"),
            note=f"R̄(0) {curve(found)[0]:.3g}, R̄({depth - 1}) {curve(found)[-1]:.3g}",
        )

    return judge


def _flat(rows: Sequence[Row]) -> Verdict:
    groups = _depths(rows, "residual")
    steepest = max(abs(decay_rate(curve(rs))) for rs in groups.values())
    weakest = min(float(curve(rs, "coupling").min()) for rs in groups.values())
    return decide(
        steepest < 0.02 and weakest > 0.93,
        steepest,
        note=f"largest |rate| over depths; smallest coupling {weakest:.3f}",
    )


def _coupling(rows: Sequence[Row]) -> Verdict:
    found = some(rows, net="plain", depth=12, data="noise", phase="init")
    return within(mean(found, "coupling", -1), COUPLING, spread(found, "coupling", -1))


def _lyapunov(rows: Sequence[Row]) -> Verdict:
    depths = _depths(rows, "plain").values()
    eq8, qr = min(mean(rs, "lyapunov_eq8") for rs in depths), max(mean(rs, "lyapunov_qr") for rs in depths)
    return corrected(
        False,
        eq8 > 0 > qr,
        eq8,
        "smallest Eq. 8 exponent is positive where R̄ decays; the printed numbers are the QR exponents from the "
        "identity, a different quantity (E9)",
        otherwise="signs are not as either reading says",
        facts={"largest QR exponent": qr},
    )


TABLED = 4.0  # R̄(0)/R̄(11) of the plain network at the start, from the paper's own table


def _orders(rows: Sequence[Row]) -> Verdict:
    found = some(rows, net="plain", depth=12, data="noise", phase="init")
    ratio = float(curve(found)[0] / curve(found)[-1])
    note = "R̄(0)/R̄(11) at the start, beside the one of the paper's own table"
    return corrected(ratio > 1e3, 2 < ratio < 10, ratio, note, facts={"paper's table": TABLED})


def _norms(rows: Sequence[Row]) -> Verdict:
    seen = {(n, d): mean(some(rows, net=n, depth=d, data="noise", phase="init"), "rho") for n, d in RHO}
    worst = max(abs(seen[k] / RHO[k] - 1) for k in RHO)
    facts = {f"{n}, L = {d}": v for (n, d), v in seen.items()}
    return decide(worst <= 0.15, worst, note="largest relative distance to the table", facts=facts)


def _trained(rows: Sequence[Row]) -> Verdict:
    trained = [r for r in rows if r["epochs"]]
    begin, end = (decay_rate(curve(some(trained, net="plain", phase=p))) for p in ("init", "final"))
    level = decay_rate(curve(some(rows, net="residual", phase="final")))
    low = min(map(min, column(trained, "coupling", net="residual")))
    return decide(
        end > begin and abs(level) < 0.05 and low > 0.85,
        end,
        note="rate of the plain net after training",
        facts={"before": begin, "residual after": level, "its coupling at least": low},
    )


def _cancellation(rows: Sequence[Row]) -> Verdict:
    found = some(rows, net="plain", data="noise", phase="init")
    ours, theirs = mean(found, "fixed_apart_rate"), mean(found, "fixed_rate")
    return decide(
        ours < 0.6 * theirs,
        ours / theirs,
        note="fall a layer at a fixed end, one sample's block over the average block's",
        facts={"of the average": theirs, "of one sample": ours, "typical gain of the Jacobians": -mean(found, "gain")},
    )


def _spectral(rows: Sequence[Row]) -> Verdict:
    fits, depths = _fits(rows, "spectral"), _depths(rows, "spectral").values()
    rho = max(mean(rs, "rho") for rs in depths)
    c = min(float(curve(rs, "coupling")[-1]) for rs in depths)
    r2 = min(r for _, r in fits.values())
    return decide(
        rho <= 1 and r2 > 0.99 and c > 0.6 and max(max(column(rs, "gap")) for rs in depths) < 1e-6,
        rho,
        note="largest ρ over depths",
        facts={"R² at least": r2, "coupling across the net at least": c, **_rates_by_depth(fits)},
    )


# ------------------------------------------------------------------------------------------------- experiment 2


def _by_neck(rows: Sequence[Row], key: str) -> dict[int, float]:
    return {neck: mean(group, key) for neck, group in sorted(groups(rows, "neck", phase="init").items())}


def _necks(by: Mapping[int, float]) -> dict[str, float]:
    """Values by neck as facts of a verdict."""
    return {f"neck {neck}": value for neck, value in by.items()}


def _rank_rises(rows: Sequence[Row]) -> Verdict:
    d = _by_neck(rows, "far_rank")
    values = list(d.values())
    rising = all(b > a - 0.02 * a for a, b in pairwise(values)) and values[-1] > values[0]
    return decide(rising, values[-1] / values[0], note="widest over narrowest neck", facts=_necks(d))


def _rank_bound(rows: Sequence[Row]) -> Verdict:
    found = some(rows, phase="init")
    per_sample = all(
        r["sample_rank"] <= min(r["neck"], r["classes"] - 1) * (1 + 1e-6) and r["gn_rank"] <= r["neck"]
        for r in found
        if r["neck"] < r["base"]
    )
    slack = max(r["sample_rank"] / min(r["neck"], r["classes"] - 1) for r in found)
    return decide(
        per_sample,
        slack,
        note="largest stable rank of a sample's far block over min(d_u, K−1); the bound "
        "is per sample, an average over the batch may exceed it (E11)",
    )


def _coupling_rises(rows: Sequence[Row]) -> Verdict:
    by = _by_neck(rows, "far_coupling")
    coupling, rank = (d[max(d)] / d[min(d)] for d in (by, _by_neck(rows, "far_rank")))
    return decide(
        1 < coupling < rank,
        coupling,
        note="growth of the coupling over the necks",
        facts={"of the stable rank": rank, **_necks(by)},
    )


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


def _claims() -> Iterator[Claim]:
    yield Claim(
        id="dag-hessian/H1.1",
        study=D,
        statement="Resonance of an untrained plain net falls exponentially with distance.",
        expected=Expected(direction="R² of the log-linear fit above 0.91"),
        judge=_exponential,
        uses=lambda c: c["data"] == "noise",
        plot=by_distance("resonance", ("plain", "residual", "spectral")),
    )
    for (net, depth), value in RATES.items():
        title = "spectrally normalised" if net == "spectral" else net
        yield Claim(
            id=f"dag-hessian/R{net[0]}{depth}",
            study=D,
            statement=f"The {title} net of {depth} blocks falls at {value.value} a layer.",
            expected=value,
            judge=_rate(net, depth, value),
            uses=_at(net, depth),
        )
    yield Claim(
        id="dag-hessian/H1.2",
        study=D,
        statement="Residual nets keep resonance level and coupling above 0.93 at every distance.",
        expected=Expected(direction="rate about 0, C > 0.93"),
        judge=_flat,
        uses=_at("residual"),
    )
    yield Claim(
        id="dag-hessian/H1.3",
        study=D,
        statement="Coupling of the plain 12-block net falls from 1 to 0.24 across it.",
        expected=COUPLING,
        judge=_coupling,
        plot=by_distance("coupling", ("plain", "residual")),
        uses=lambda c: c["data"] == "noise" and c["net"] != "spectral" and c["depth"] in (8, 12),
    )
    yield Claim(
        id="dag-hessian/H1.4",
        study=D,
        statement="At the start the Lyapunov exponent of Eq. 8 is negative, which guarantees decay.",
        expected=Expected(direction="λ₁ < 0"),
        judge=_lyapunov,
        uses=_at("plain"),
    )
    yield Claim(
        id="dag-hessian/H1.5",
        study=D,
        statement="Resonance falls by three to four orders of magnitude at L = 12.",
        expected=Expected(direction="R̄(0)/R̄(11) above 1000"),
        judge=_orders,
        uses=_at("plain", 12),
        effect="R̄(0)/R̄(11) of the plain network of 12 layers at the start",
        correction="resonance falls by a factor of about 4 to 5 over 12 layers, as the paper's own table says",
    )
    yield Claim(
        id="dag-hessian/H1.6",
        study=D,
        statement="Largest block norms at the start: 2.59 and 2.69 plain, 1.25 and 1.20 residual.",
        expected=Expected(direction="within 15 % of the table"),
        judge=_norms,
        uses=lambda c: (c["net"], c["depth"]) in RHO and c["data"] == "noise",
    )
    yield Claim(
        id="dag-hessian/H1.7",
        study=D,
        statement="Training steepens the plain net's decay; the residual net stays coupled.",
        expected=Expected(direction="plain rate rises, residual C > 0.85"),
        judge=_trained,
        uses=lambda c: c["epochs"] > 0 and c["net"] != "spectral" and "probes" not in c,
    )
    yield Claim(
        id="dag-hessian/H1.8",
        study=D,
        statement="The decay is that of the Jacobian product.",
        expected=Expected(direction="one sample's blocks fall far more slowly than the average block"),
        judge=_cancellation,
        uses=_at("plain"),
    )
    yield Claim(
        id="dag-hessian/H1b",
        study=D,
        statement="With spectral norm ρ ≤ 1, decay is exponential and coupling stays high.",
        expected=Expected(direction="ρ ≤ 1, R² ≥ 0.99, C > 0.6"),
        judge=_spectral,
        plot=by_distance("resonance", ("spectral",)),
        uses=_at("spectral"),
    )
    yield Claim(
        id="dag-hessian/H2.1",
        study=B,
        statement="The stable rank across a bottleneck grows with its width.",
        expected=Expected(direction="rises"),
        judge=_rank_rises,
        uses=_one_base,
        plot=_neck_plot,
    )
    yield Claim(
        id="dag-hessian/H2.2",
        study=B,
        statement="The stable rank across a bottleneck is at most min(d_u, K − 1).",
        expected=Expected(direction="never above"),
        judge=_rank_bound,
        uses=_one_base,
    )
    yield Claim(
        id="dag-hessian/H2.3",
        study=B,
        statement="Coupling grows with the neck too, but less than the rank.",
        expected=Expected(direction="rises, by a smaller factor"),
        judge=_coupling_rises,
        uses=_one_base,
    )


CLAIMS = tuple(_claims())
