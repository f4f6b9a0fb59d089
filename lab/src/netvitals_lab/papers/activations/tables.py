"""The study: crossings, classes and constants of activations, computed once each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from netvitals.activations import (
    classify,
    constants,
    crossings,
    derivative,
    expect,
    get,
    hermite_coefficients,
    phi,
    phi_closed,
)
from netvitals_lab import Config, Row, Study

THETAS = (0.001, 0.005, 0.01, 0.05, 0.1)
SMOOTH = ("gelu", "gelu_tanh", "silu", "mish")
SOFTPLUS = ("softplus:50", "softplus:20", "softplus:10", "softplus:5")
KINKED = ("relu", "leaky_relu:0.01", "leaky_relu:0.2")
CLASSED = (
    "identity",
    "relu",
    "leaky_relu:0.01",
    "tanh",
    "erf",
    "sin",
    "arctan",
    "poly:0:1:0:0:0:1",
    "gelu",
    "gelu_tanh",
    "silu",
    "mish",
    "hardswish",
    "sigmoid",
    "softplus",
    "logsigmoid",
    "tanhshrink",
    "poly:0:1:0:0:1",
    "elu",
    "celu",
    "softsign",
    "hardtanh",
    "selu",
    "poly:0:1:0:-0.5",
)
CLOSED = ("identity", "relu", "leaky_relu", "tanh", "erf", "sin", "gelu", "silu", "sigmoid", "softplus")
POPULATIONS = ((0.0, 1.0), (-0.05, 0.33))  # pre-activations before and after the variance collapsed
COLLAPSE = (1.5, 1.2, 1.0, 0.75, 0.6, 0.5, 0.4, 0.33)


@dataclass(frozen=True)
class PaperTables:
    """Thresholds of the crossing tables, and points on which φ is compared with its closed form."""

    thetas: tuple[float, ...] = THETAS
    points: int = 1001


def trials(p: PaperTables) -> list[Config]:
    tables: list[Config] = [{"table": "crossings", "activation": a, "theta": t} for a in SMOOTH for t in p.thetas]
    tables += [{"table": "crossings", "activation": a, "theta": t} for a in SOFTPLUS for t in (0.01, 0.1)]
    tables += [{"table": "crossings", "activation": a, "theta": 0.1} for a in KINKED]
    tables += [{"table": "class", "activation": a, "points": p.points} for a in CLASSED]
    return tables


def trial(config: Config) -> list[Row]:
    name = config["activation"]
    return _crossings(name, config["theta"]) if config["table"] == "crossings" else _class(name, config["points"])


def _crossings(name: str, theta: float) -> list[Row]:
    found = crossings(name, theta)
    rows = [{"quantity": "signed", "value": found.z_low}, {"quantity": "literal", "value": found.z_low_literal}]
    for i, (low, high) in enumerate(found.intervals):
        rows += [{"quantity": f"active {i} low", "value": low}, {"quantity": f"active {i} high", "value": high}]
    for mu, sigma in POPULATIONS:
        margin = float(found.margin(mu, sigma))
        rows += [
            {"quantity": "density", "mu": mu, "sigma": sigma, "value": found.density(mu, sigma)},
            {
                "quantity": "half-line density",
                "mu": mu,
                "sigma": sigma,
                "value": 0.5 * math.erfc(-margin / math.sqrt(2)),
            },
        ]
    if name == "gelu" and theta == 0.01:
        rows += [
            {"quantity": "inactive mass", "mu": 0.0, "sigma": s, "value": 1 - found.density(0.0, s)} for s in COLLAPSE
        ]
    return rows


def _class(name: str, points: int) -> list[Row]:
    found = classify(name)
    rows: list[Row] = [
        {"quantity": "label", "text": found.label},
        {"quantity": "centred label", "text": found.centered or ""},
        {"quantity": "almost everywhere", "text": str(found.almost_everywhere)},
        {"quantity": "why", "text": found.why},
        {"quantity": "phi leading", "value": found.phi_leading},
        {"quantity": "phi order", "value": found.phi_order},
    ]
    c = constants(name)
    rows += [
        {"quantity": q, "value": v}
        for q, v in (
            ("slope", c.slope),
            ("q", c.q),
            ("a_q", c.a_q),
            ("h", c.h),
            ("h_q", c.h_q),
            ("half power", c.half_power),
            ("lambda prime", c.lam_prime),
            ("lambda", c.lam),
            ("gamma printed", c.gamma_printed),
            ("nlo 1", c.nlo(1)),
        )
    ]
    if not math.isnan(c.slope):
        rows += [{"quantity": f"K_{clock}", "value": c.drive(depth=4, width=64, clock=clock)} for clock in ("t", "s")]
        rows.append({"quantity": "escapes", "text": str(c.escapes(4))})
    if c.q == 3:
        s3 = float(hermite_coefficients(get(f"centered:{name}"), 3)[3])
        rows.append({"quantity": "h_3 from Hermite", "value": 6 * s3 + 3 * c.h})
    if name.split(":")[0] in CLOSED:
        z = torch.linspace(-6, 6, points, dtype=torch.float64)
        z = z[z != 0]
        gap = (phi(name)(z) - phi_closed(name.split(":")[0])(z)).abs().max()
        rows.append({"quantity": "phi defect", "value": gap})
    if name in ("relu", "gelu", "silu", "mish"):
        slope = derivative(name)
        rows += [
            {
                "quantity": "mean gate",
                "mu": mu,
                "sigma": sigma,
                "value": expect(lambda z: slope(z).abs(), mu=mu, sigma=sigma),
            }
            for mu, sigma in POPULATIONS
        ]
    return rows + _extrema(name)


def _extrema(name: str) -> list[Row]:
    """Minimum of f' on the negative tail; minimum of f, whose square is the bump of the squared activation."""
    if name not in ("gelu", "silu", "mish"):
        return []
    from scipy.optimize import minimize_scalar

    slope, f = derivative(name), get(name).double()

    def at(function: Any, bounds: tuple[float, float]) -> tuple[float, float]:
        best = minimize_scalar(
            lambda z: float(function(torch.tensor([z], dtype=torch.float64))),
            bounds=bounds,
            method="bounded",
            options={"xatol": 1e-10},
        )
        return float(best.x), float(best.fun)

    where, least = at(slope, (-4.0, -1.0))
    low, value = at(f, (-2.0, -0.3))
    return [
        {"quantity": "least slope at", "value": where},
        {"quantity": "least slope", "value": least},
        {"quantity": "minimum at", "value": low},
        {"quantity": "minimum", "value": value},
        {"quantity": "bump of the square", "value": value**2},
    ]


def summary(rows: Sequence[Row]) -> Mapping[str, Any]:
    tables = {(r["table"], r["activation"], r.get("theta")) for r in rows}
    return {"activations": len({r["activation"] for r in rows}), "tables": len(tables), "numbers": len(rows)}


STUDIES = (
    Study(
        name="activations",
        paper="activations",
        title="crossings, classes and constants of activations by autograd",
        scales={"smoke": PaperTables(points=101), "small": PaperTables(), "paper": PaperTables(points=10001)},
        trials=trials,
        settled="roots and integrals of closed forms to rounding: more points change no digit",
        trial=trial,
        summary=summary,
    ),
)
