"""Claims C1, C2, C3, C7, C11, C15 and the experiments before training: E1 and the falsification by a zero head."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from netvitals_lab import Claims, Expected, Measured, Plot, Row, Series, Verdict, fails, holds, underspecified
from netvitals_lab.papers.gate_density._reading import some
from netvitals_lab.papers.gate_density._training import FOUR

STUDY = "gate-density-foundations"
ULPS = 4  # of rounding that a product and a quotient may leave
GAUSSIAN = {"relu": 0.5, "gelu": 0.9850, "silu": 0.9838, "mish": 0.9853}  # law at N(0, 1), θ = 0.01
TABLE_2 = {"resnet18": 0.555, "vgg11": 0.618}
OTHERS_2 = {"resnet50": 0.529, "convnext-tiny": 0.994}  # ViT-B/16 has no gradient
NEAR_2 = 0.03  # of a printed mean


def _draw(rows: Sequence[Row]) -> Plot:
    kinds = dict.fromkeys((r["network"], r["act"]) for r in rows)
    return Plot(
        "number of the network",
        "D(0.01) at initialisation",
        [
            Series(f"{n}, {a}", [float(i)] * len(v), v)
            for i, (n, a) in enumerate(kinds)
            if (v := [r["element"] for r in rows if (r["network"], r["act"], r["theta"]) == (n, a, 0.01)])
        ],
    )


claim = Claims("gate-density", study=STUDY)


@claim("C1", "equal to rounding", uses={"check": "ratio"})
def ratio(rows: Sequence[Row]) -> Measured:
    """|grad_input / grad_output| is |f'| exactly, for any elementwise activation"""
    worst = {p: max(r["relative"] for r in some(rows, None, precision=p)) for p in ("float32", "float64")}
    limits = {"float32": ULPS * 2.0**-23, "float64": ULPS * 2.0**-52}
    gap = max(r["gap"] for r in some(rows, None, precision="float32"))
    return Measured(
        gap,
        note=f"largest |ratio − f'| in float32 where the gradient is not zero, over "
        f"{len({r['act'] for r in rows})} activations; relative {worst['float32']:.1e} in float32, "
        f"{worst['float64']:.1e} in float64",
        ok=all(worst[p] <= limits[p] for p in worst),
    )


@claim("C2", Expected(0.5, tolerance=0.01), uses={"check": "init"}, plot=_draw)
def half(rows: Sequence[Row]) -> Measured:
    """At initialisation with BatchNorm about half of the ReLU gates are open"""
    values = [r["element"] for r in some(rows, None, network="mlp", act="relu", theta=0.01)]
    others = {a: np.mean([r["element"] for r in some(rows, None, network="mlp", act=a, theta=0.01)]) for a in FOUR[1:]}
    error = float(np.std(values, ddof=1) / len(values) ** 0.5)
    worst = max(abs(v - GAUSSIAN[a]) for a, v in others.items())
    return Measured(
        float(np.mean(values)),
        note=f"std over seeds {np.std(values):.4f}; "
        + ", ".join(f"{a} {v:.4f}" for a, v in others.items())
        + "; BatchNorm perceptron, batch statistics, θ = 0.01, all poolings alike",
        stderr=error,
        ok=abs(np.mean(values) - 0.5) < 0.01 and worst < 0.01,
    )


@claim(
    "E1-others",
    "within .03; no gradient in ViT-B/16",
    uses=lambda c: c["check"] == "init" and c["network"] in (*OTHERS_2, "vit-b16"),
)
def other_rows(rows: Sequence[Row]) -> Verdict:
    """Densities at initialisation: ResNet-50 0.529, ConvNeXt-Tiny 0.994, and none in ViT-B/16

    The other rows of Table 2 under three poolings, of which the paper names none; no gradient in ViT-B/16.
    """
    facts: dict[str, list[float]] = {}
    apart: dict[str, list[float]] = {}
    for name, printed in OTHERS_2.items():
        mine = [r for r in rows if r["network"] == name and r["theta"] == 0.01]
        if mine:
            by = [float(np.mean([r[pooling] for r in mine])) for pooling in ("element", "site", "channel")]
            facts[f"{name} by element, site, channel; printed"] = [*by, printed]
            apart[name] = [abs(v - printed) for v in by]
    silent = [r["valid"] for r in rows if r["network"] == "vit-b16"]
    note = f"largest distance from the printed mean, by element; ViT-B/16 {'not run' if not silent else max(silent)}"
    worst = max(gaps[0] for gaps in apart.values())
    if any(silent) or any(min(gaps) > NEAR_2 for gaps in apart.values()):
        return fails(worst, note=note, facts=facts)
    if all(max(gaps) <= NEAR_2 for gaps in apart.values()):
        return holds(worst, note=note, facts=facts)
    every = [gap for gaps in apart.values() for gap in gaps]
    return underspecified((min(every), max(every)), worst, note=f"{note}; the span is over the poolings", facts=facts)


@claim("E1", Expected(0.555, tolerance=0.02), uses={"check": "init", "network": ("resnet18", "vgg11")})
def table_2(rows: Sequence[Row]) -> Verdict:
    """Densities at initialisation: ResNet-18 0.555 ± 0.156, VGG-11 0.618 ± 0.141"""
    res, vgg = (some(rows, None, network=n, theta=0.01) for n in ("resnet18", "vgg11"))
    mean = {p: float(np.mean([r[p] for r in res])) for p in ("element", "site", "channel")}
    spread, between = float(np.std([r["element"] for r in res])), float(np.mean([r["between_sites"] for r in res]))
    local, ratio = (float(np.mean([r[k] for r in vgg])) for k in ("element", "ratio"))
    note = (
        f"ResNet-18 skeleton by element {mean['element']:.3f}, by site {mean['site']:.3f}, by channel "
        f"{mean['channel']:.3f}; std over seeds {spread:.4f}, between sites {between:.3f} (the table's 0.156 can "
        f"only be the latter); VGG-11 {local:.3f} by local derivative, {ratio:.3f} by ratio on the "
        f"{np.mean([r['valid'] for r in vgg]):.0%} of gates that have a gradient: the ratio is biased behind "
        "max-pooling. The table does not say which of the two its 0.618 is; the span is of VGG-11"
    )
    if abs(mean["element"] - TABLE_2["resnet18"]) >= 0.02:
        return fails(mean["element"], spread, note)
    least, most = min(local, ratio), max(local, ratio)
    return underspecified((least, most), mean["element"], note, uncertainty=spread)


@claim("E1-zero-head", "100% and 0%", uses={"check": "zero head"})
def zero_head(rows: Sequence[Row]) -> Measured:
    """A vision transformer's gradients vanish at initialisation at every depth with the default start, never with
    truncated-normal weights"""
    zero, other = some(rows, None, head="zero"), some(rows, None, head="default")
    gone, kept = (float(np.mean([r["vanished"] for r in rs])) for rs in (zero, other))
    return Measured(
        f"{gone:.0%} and {kept:.0%}",
        note=f"runs without any gradient when the head starts at zero, and when it does not, over depths "
        f"{', '.join(map(str, sorted({r['depth'] for r in rows})))}, batches "
        f"{', '.join(map(str, sorted({r['batch'] for r in rows})))} and both ways to draw the weights; the "
        "local derivative is a number in all of them. The head decides, not the draw of the weights",
        ok=gone == 1 and kept == 0 and all(r["local"] > 0 for r in zero),
    )


@claim("C3", Expected(0.0, tolerance=1e-7), uses={"check": "init", "act": "relu"})
def mean_is_density(rows: Sequence[Row]) -> Measured:
    """For ReLU the mean gate is the gate density"""
    gap = max(abs(r["mean"] - r["element"]) for r in some(rows, None, act="relu") if "mean" in r)
    return Measured(gap, "largest |mean gate − density| of ReLU networks, pooled over elements")


@claim("C7", Expected(0.0, tolerance=1e-3), uses={"check": "norm moments"})
def norm_moments(rows: Sequence[Row]) -> Measured:
    """Behind a BatchNorm the mean of the input is β and its variance γ²"""
    direct, added = (some(rows, None, follows=k) for k in ("bn_direct", "post_add"))
    gaps = [max(r[k] for r in rs) for rs in (direct, added) for k in ("mean_gap", "std_gap")]
    note = (
        f"behind a BatchNorm |mean z − β| ≤ {gaps[0]:.1g} and |std z/|γ| − 1| ≤ {gaps[1]:.1g} (its ε); behind an "
        f"addition up to {gaps[2]:.2f} and {gaps[3]:.2f}: there are {len(added)} such sites beside {len(direct)}"
    )
    return Measured(max(gaps[:2]), note + ", and the argument of §5 does not reach them")


@claim("C11", Expected(0.0, tolerance=1e-12), uses={"check": "softplus"})
def softplus(rows: Sequence[Row]) -> Measured:
    """softplus'(x; β) = sigmoid(βx)"""
    gap, beyond = (max(r[k] for r in rows) for k in ("gap", "gap_beyond"))
    return Measured(gap, f"up to βx = 20; beyond, torch takes the identity, off by {beyond:.1e}")


@claim("C15", Expected(0.0, tolerance=1e-9), uses={"check": "equilibrium"})
def equilibrium(rows: Sequence[Row]) -> Measured:
    """Under weight decay a parameter rests at −ḡ/λ"""
    exact, noisy = (some(rows, None, check="equilibrium", noise=n)[0] for n in (0.0, 1.0))
    gap = abs(exact["value"] / exact["expected"] - 1)
    z = abs(noisy["value"] - noisy["expected"]) / noisy["stderr"]
    note = f"relative gap of one parameter under a constant gradient; with noise {z:.1f} standard errors"
    return Measured(gap, note, ok=gap < 1e-9 and z < 4.5)


@claim("C15-shifts", "slope 1", uses={"check": "equilibrium of shifts"})
def shifts(rows: Sequence[Row]) -> Measured:
    """The shifts β of a trained network rest at −ḡ/λ

    The slope of β on −ḡ/λ is 1 where they rest there.
    """
    slopes = {r["act"]: r["slope"] for r in rows}
    facts = {f"{r['act']}: slope, correlation": [r["slope"], r["correlation"]] for r in rows}
    note = (
        "smallest slope of the shifts β of a trained BatchNorm perceptron on −ḡ/λ, from the gradient of the whole set"
    )
    return Measured(min(slopes.values()), note, facts=facts, ok=all(abs(v - 1) < 0.1 for v in slopes.values()))
