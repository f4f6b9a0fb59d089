"""E5: three teacher modes. The exact block reduction, its closures, and the attribution of the escape time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from netvitals import saddle
from netvitals.saddle.laws.escape import balanced
from netvitals.saddle.laws.integration import integrate
from netvitals.saddle.students.network import loss_beside, normalized_rates
from netvitals_lab import Claims, Config, Measured, Plot, Resources, Row, Series, Study, at_most
from netvitals_lab.theory.saddle.blocks import BlockChain
from netvitals_lab.theory.saddle.homotopy import attribute, hitting_time, homotopy_slice

INPUTS = 8192  # that show the loss of the full network beside the one of its projection
BETAS, DEPTH, BLOCK, LEVEL = (1.0, 0.3, 0.08), 4, 20, 0.4


@dataclass(frozen=True)
class CascadeParameters:
    """ε of the block-aligned start, quadrature nodes per mode, learning rate and batch of the full network."""

    eps: float
    nodes: int
    lr: float = 0.05
    batch: int = 4096
    steps: int | None = None  # of the full network; a little beyond the leading law's time when None


SCALES = {
    "smoke": CascadeParameters(0.15, 8, lr=0.2, batch=1024),
    "small": CascadeParameters(0.05, 16),
    "medium": CascadeParameters(0.05, 20, batch=8192),
    "paper": CascadeParameters(0.05, 24, steps=150_000),
}


def trials(p: CascadeParameters) -> list[Config]:
    own = {"network": {"lr": p.lr, "batch": p.batch, **({} if p.steps is None else {"steps": p.steps})}}
    return [
        {"kind": k, "eps": p.eps, "nodes": p.nodes, **own.get(k, {})} for k in ("attribution", "trajectory", "network")
    ]


def trial(config: Config) -> list[Row]:
    chain = BlockChain("tanh", BETAS, DEPTH, BLOCK, nodes=config["nodes"])
    if config["kind"] == "network":
        return _network(chain, config["eps"], config["lr"], config["batch"], config.get("steps"))
    return (_attribution if config["kind"] == "attribution" else _trajectory)(chain, config["eps"])


def _attribution(chain: BlockChain, eps: float) -> list[Row]:
    theta = chain.aligned(eps)
    alone, full = (lambda x: chain.velocity(x, "decoupled")), (lambda x: chain.velocity(x))
    facts = attribute(alone, full, theta, 0, LEVEL, channels=chain.channels(), rtol=1e-8)
    h = 1e-3
    near = [hitting_time(alone, full, theta, 0, LEVEL, 0.5 + k * h, rtol=1e-9) for k in (1, -1)]
    middle = homotopy_slice(alone, full, theta, 0, LEVEL, 0.5, rtol=1e-9)
    cut = lambda x: chain.velocity(x, "truncated")
    d = saddle.drive("tanh", DEPTH, BLOCK)
    generator = torch.Generator().manual_seed(0)
    gap = 0.0
    for _ in range(3):
        state = theta + 0.1 * torch.randn(chain.size, generator=generator, dtype=torch.float64)
        gap = max(gap, float((chain.jacobian(state) - _differences(chain, state)).abs().max()))
    return [
        {
            "start": facts.start,
            "end": facts.end,
            "estimate": facts.estimate,
            "error": facts.error,
            "invariant": max(s.invariant for s in facts.slices),
            "channels": list(facts.channels.items()),
            "rate": middle.rate,
            "finite difference": (near[0] - near[1]) / (2 * h),
            "truncated": hitting_time(cut, cut, theta, 0, LEVEL, 1.0, rtol=1e-8),
            "leading": balanced(eps, DEPTH, d.k, LEVEL),
            "jacobian gap": gap,
            "loss": float(chain.loss(theta)),
            "block": BLOCK,
        }
    ]


def _differences(chain: BlockChain, state: torch.Tensor, h: float = 2e-3) -> torch.Tensor:
    """The Jacobian by fourth-order central differences of the velocity."""
    steps = h * torch.eye(chain.size, dtype=torch.float64)
    v = lambda k: chain.velocity(state + k * steps)
    return ((8 * (v(1) - v(-1)) - (v(2) - v(-2))) / (12 * h)).T


def _trajectory(chain: BlockChain, eps: float) -> list[Row]:
    """Loss and alignment along the exact flow."""
    theta = chain.aligned(eps)[None]
    end = float(balanced(eps, DEPTH, saddle.drive("tanh", DEPTH, BLOCK).k, LEVEL)) * 2
    paths = integrate(lambda x, rows: chain.velocity(x), theta, t_max=end, rtol=1e-8, atol=1e-12)
    rows = []
    for t, x in zip(paths.t[:, 0], paths.x[:, 0]):
        p, _, _ = chain.split(x)
        together = p @ chain.betas / chain.betas.norm()  # the leading linear target is one direction, Σ β_k v_k
        rows.append(
            {
                "s": float(t) * BLOCK,
                "loss": float(chain.loss(x)),
                "alignment": float(p[:, 0].square().mean().sqrt()),
                "sum direction": float(together.square().mean().sqrt()),
            }
        )
    return rows


def _network(chain: BlockChain, eps: float, lr: float, batch: int, steps: int | None) -> list[Row]:
    """Gradient descent on the full network from the same start."""
    task = saddle.teacher("tanh", 16, BETAS)
    start = [w.float() for w in chain.embed(chain.aligned(eps), task.directions)]
    end = float(balanced(eps, DEPTH, saddle.drive("tanh", DEPTH, BLOCK).k, LEVEL)) * BLOCK
    run = saddle.descend(
        start,
        task,
        lr=lr,
        steps=steps or round(1.03 * end / lr),
        batch=batch,
        rates=normalized_rates(DEPTH, BLOCK),
        thresholds=(),
        snapshots=200,
    )
    x, y = task.batch(INPUTS, torch.Generator().manual_seed(1), dtype=torch.float64)
    rows: list[Row] = []
    for step, snapshot in run.snapshots:
        weights = [w.double() for w in snapshot]
        state = chain.reduce(weights, task.directions)[0]
        known = float(chain.loss(state))
        rows.append(
            {
                "s": lr * step,
                "loss": loss_beside(weights, chain.embed(state, task.directions), known, x, y, task.f),
                "projected loss": known,
                "alignment": float((weights[0][0] @ task.directions[0].double()).square().mean().sqrt()),
            }
        )
    return rows


def _one(rows: Sequence[Row]) -> Row:
    return next(r for r in rows if r["kind"] == "attribution")


def _half(rows: Sequence[Row], kind: str) -> float:
    """When the loss has halved, between two records."""
    path = [r for r in rows if r["kind"] == kind]
    level = path[0]["loss"] / 2
    after = next(i for i, r in enumerate(path) if r["loss"] < level)
    early, late = path[after - 1], path[after]
    return early["s"] + (late["s"] - early["s"]) * (early["loss"] - level) / (early["loss"] - late["loss"])


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    a = _one(rows)
    return {
        "T(0), decoupled": a["start"],
        "T(1), exact": a["end"],
        "T, 24 variables": a["truncated"],
        "difference by attribution": a["estimate"],
        "its error": a["error"],
        "leading single-mode time s": a["leading"] * BLOCK,
        "loss halves at s": _half(rows, "trajectory"),
        "in the full network": _half(rows, "network"),
        "channels": ", ".join(f"{n} {v:+.3g}" for n, v in a["channels"]),
    }


def _plot(rows: Sequence[Row]) -> Plot:
    path = [r for r in rows if r["kind"] == "trajectory"]
    a = _one(rows)
    marks = [
        Series(name, [t * BLOCK] * 2, [0.0, path[0]["loss"]], line=True, dashed=True)
        for name, t in (("leading law", a["leading"]), ("attribution T(1)", a["start"] + a["estimate"]))
    ]
    network = [r for r in rows if r["kind"] == "network"]
    seen = [Series("full network", [r["s"] for r in network], [r["loss"] for r in network])] if network else []
    flow = Series("reduced flow", [r["s"] for r in path], [r["loss"] for r in path], line=True)
    tilt = [
        Series(
            f"alignment, {name}", [r["s"] for r in of], [r["alignment"] for r in of], line=line, dashed=True, right=True
        )
        for name, of, line in (("reduced flow", path, True), ("full network", network, False))
        if of
    ]
    return Plot("s", "loss", [flow, *seen, *marks, *tilt], right_label="alignment of layer 1 with mode 1")


STUDIES = (
    Study(
        name="saddle-cascade",
        paper="saddle-escape",
        title="Three modes: exact reduction and attribution of the escape time (E5)",
        scales=SCALES,
        trials=trials,
        resources=Resources(cpus=1, memory_gb=3, core_hours=1),
        trial=trial,
        summary=summary,
    ),
)
_uses = lambda c: c["kind"] == "attribution"


claim = Claims("saddle-escape", study="saddle-cascade")


@claim("C38", "equal to a finite difference within 1e-4", uses=_uses)
def identity(rows: Sequence[Row]) -> Measured:
    """dT/dν equals the adjoint integral A(ν) (T22)"""
    a = _one(rows)
    gap = abs(a["rate"] / a["finite difference"] - 1)
    return Measured(
        gap,
        note=f"A(0.5) = {a['rate']:.5f}, finite difference "
        f"{a['finite difference']:.5f}; p·f = 1 within {a['invariant']:.1e}",
        ok=gap <= 1e-4 and a["invariant"] <= 1e-5,
    )


@claim("C39", at_most(0.05, "within 5 %"), plot=_plot)
def nodes(rows: Sequence[Row]) -> Measured:
    """Two Gauss–Legendre nodes in ν give T(1) − T(0) (E5)"""
    a = _one(rows)
    return Measured(
        a["error"],
        note=f"two nodes give {a['estimate']:.3f}, directly "
        f"{a['end'] - a['start']:.3f} (T from {a['start']:.3f} to {a['end']:.3f})",
    )


@claim("E5j", at_most(1e-10, "within 1e-10"), uses=_uses)
def jacobian(rows: Sequence[Row]) -> Measured:
    """The Jacobian of the reduction is that of its velocity"""
    gap = _one(rows)["jacobian gap"]
    return Measured(gap, "Jacobian of the 30-variable flow against central differences, 3 states")


@claim("E5n", at_most(0.02, "times within 2 %"), plot=_plot)
def network(rows: Sequence[Row]) -> Measured:
    """Descent on the full network follows the reduced flow through the escape"""
    flow, network = _half(rows, "trajectory"), _half(rows, "network")
    gap = abs(network / flow - 1)
    return Measured(gap, f"the loss halves at s = {network:.1f} in the network and at {flow:.1f} in the reduced flow")
