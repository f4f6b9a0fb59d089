"""Checks of the imbalance identity and of the symmetric chain: numbers, not verdicts."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from netvitals import activations, saddle
from netvitals.saddle.laws.chain import ScalarChain
from netvitals.saddle.laws.escape import balanced
from netvitals.saddle.laws.integration import integrate
from netvitals.saddle.students.network import ansatz_stack, gradients, normalized_rates, project
from netvitals.saddle.students.task import aligned_sample, antithetic_sample
from netvitals_lab.theory.saddle import perturbation
from netvitals_lab.theory.saddle.perturbation import Expansion, gap_velocity, measured_order

Numbers = dict[str, float]
ACTIVATIONS = ("tanh", "erf", "sin", "gelu", "silu", "sigmoid", "softplus", "relu", "leaky_relu:0.1", "identity")
SHAPES = ((5, 7, 1), (4, 6, 3, 2), (3, 8, 8, 5, 1), (6, 4, 5, 6, 7, 3))


def identity(seed: int) -> Numbers:
    """T1, T1a, T1c: both sides by autograd in float64, over activations, losses and shapes."""
    torch.manual_seed(seed)
    worst = {"defect": 0.0, "neuron defect": 0.0, "homogeneous drift": 0.0, "bias defect": 0.0}
    for name in ACTIVATIONS:
        for sizes in SHAPES:
            x, y = torch.randn(16, sizes[0]).double(), torch.randn(16, sizes[-1]).double()
            for loss in _losses(sizes[-1]):
                found = saddle.imbalance(_chain(sizes, name), loss, (x, y))
                worst["defect"] = max(worst["defect"], *found.defect.values())
                worst["neuron defect"] = max(worst["neuron defect"], *(p.neuron_defect for p in found.pairs))
                if name in ("relu", "leaky_relu:0.1", "identity"):
                    worst["homogeneous drift"] = max(
                        worst["homogeneous drift"], *(abs(p.rhs) / p.scale for p in found.pairs)
                    )
            found = saddle.imbalance(_chain(sizes, name, bias=True), F.mse_loss, (x, y))
            worst["bias defect"] = max(worst["bias defect"], *found.defect.values())
    return {**worst, **_rates(seed), **_matrix(seed)}


def linear_conservation(seed: int) -> Numbers:
    """Claim 4: a deep linear network conserves the matrix imbalance along its flow; a tanh network does not."""
    x = antithetic_sample(32, 3, seed=seed)
    target = torch.randn(2, 3, generator=torch.Generator().manual_seed(seed)).double()
    drift = {}
    for name in ("identity", "tanh"):
        f = activations.get(name)
        stack = saddle.he_stack(3, 4, 3, small=0, eps=1.0, seeds=[seed], outputs=2, dtype=torch.float64)
        shapes = [(w.shape[1], w.shape[2]) for w in stack]
        sizes = [a * b for a, b in shapes]

        def unpack(v: Tensor, shapes: Any = shapes, sizes: Any = sizes) -> list[Tensor]:
            return [p.reshape(-1, *s) for p, s in zip(v.split(sizes, 1), shapes)]

        def field(v: Tensor, rows: Tensor, f: Any = f, unpack: Any = unpack) -> Tensor:
            grads, _ = gradients(unpack(v), x.x, x.x @ target.T, f, x.weight)
            return torch.cat([-g.flatten(1) for g in grads], 1)

        start = torch.cat([w.flatten(1) for w in stack], 1)
        end = unpack(integrate(field, start, t_max=5.0, rtol=1e-12, atol=1e-14, keep=False).x[-1])
        gap = lambda w: w[1][0].T @ w[1][0] - w[0][0] @ w[0][0].T
        drift[name] = float((gap(end) - gap(stack)).abs().max())
    return {"linear drift": drift["identity"], "tanh drift": drift["tanh"]}


def classes(seed: int) -> Numbers:
    """T2: classes of the list in the paper and beyond; order of φ from its values near 0."""
    expected = {
        "identity": "A",
        "relu": "A",
        "leaky_relu:0.1": "A",
        "tanh": "B3",
        "erf": "B3",
        "sin": "B3",
        "arctan": "B3",
        "poly:0:1:0:0:0:1": "B5",
        "gelu": "C",
        "gelu_tanh": "C",
        "silu": "C",
        "mish": "C",
        "hardswish": "C",
        "sigmoid": "D",
        "softplus": "D",
        "elu": "outside",
        "poly:0:1:0:0:1": "outside",
    }
    wrong = sum(activations.classify(name).label != label for name, label in expected.items())
    gap = 0.0
    z = torch.tensor([0.01, 0.02, 0.04], dtype=torch.float64)
    for name in ("tanh", "erf", "sin", "arctan", "gelu", "silu", "mish", "sigmoid", "softplus"):
        kind = activations.classify(name)
        order = np.polyfit(np.log(z.numpy()), np.log(kind.phi(z).abs().numpy()), 1)[0]
        gap = max(gap, abs(float(order) - kind.phi_order))
    hermite = 0.0
    for name in ("tanh", "erf", "sin", "arctan"):
        s, c = activations.hermite_coefficients(activations.get(name), 3), activations.constants(name)
        hermite = max(hermite, abs(float(6 * s[3]) + 3 * c.h - c.h_q))
    cubic = activations.constants("poly:0:1:0:-0.5")
    return {
        "wrong classes": float(wrong),
        "classes": float(len(expected)),
        "phi order gap": gap,
        "hermite gap": hermite,
        "h of u - u^3/2": cubic.h,
        "cubic is B3": float(cubic.label == "B3"),
    }


def ansatz(seed: int) -> Numbers:
    """T3, T4: gradient pattern on the symmetric manifold and the scalar flow it carries, both metrics."""
    out: Numbers = {"pattern defect": 0.0, "velocity gap": 0.0, "uniform ratio gap": 0.0, "gradient gap": 0.0}
    for name in ("tanh", "gelu"):
        task = saddle.teacher(name, 6, seed=seed)
        v, width = task.directions[0], 16
        sample = aligned_sample(v, 64)
        x = torch.tensor([0.3, 0.5, 0.7, 0.9], dtype=torch.float64)
        grads, _ = gradients(ansatz_stack(x, width, v), sample.x, task.target(sample.x), task.f, sample.weight)
        scalars, residual = project(grads, v)
        chain = ScalarChain(name, width, nodes=64)
        velocity = chain.velocity(x)
        rates = torch.tensor(normalized_rates(4, width), dtype=torch.float64)
        ratio = -scalars[0] / velocity
        by_hand = -((chain.output(x) - chain.teacher) * chain.gradient(x) * chain.w).sum(-1)
        out["pattern defect"] = max(out["pattern defect"], float(residual.max()))
        out["velocity gap"] = max(out["velocity gap"], float((-width * rates * scalars[0] / velocity - 1).abs().max()))
        out["uniform ratio gap"] = max(out["uniform ratio gap"], abs(float(ratio[0] / ratio[1]) * width - 1))
        out["gradient gap"] = max(out["gradient gap"], float((by_hand / velocity - 1).abs().max()))
    chain = ScalarChain("tanh", 64)
    small = torch.full((4,), 1e-3, dtype=torch.float64)
    first = lambda printed: float((chain.teacher * chain.gradient(small, printed=printed)[0] * chain.w).sum())
    return {**out, "printed over true first-layer drive": first(True) / first(False)}


def expansion(seed: int) -> Numbers:
    """T5, T6, T7: leading drive, remainder, drift of the gaps, normal form on the balanced ray."""
    out: Numbers = {}
    x = torch.tensor([1.0, 1.1, 0.9, 1.05], dtype=torch.float64)
    for name in ("tanh", "gelu"):
        chain, exp = ScalarChain(name, 64), perturbation.expansion(name, 4, 64)
        even = torch.full((4,), 1e-3, dtype=torch.float64)
        drive = chain.velocity(even) / 1e-9 / exp.d.k
        out[f"{name} drive gap"] = float((drive - 1).abs().max())
        order = measured_order(_remainder(chain, exp), x, (0.005, 0.01, 0.02))
        out[f"{name} remainder order gap"] = float(np.abs(order - exp.remainder_order).max())
        for i, j in ((1, 2), (1, 4), (2, 3), (3, 4)):
            got = measured_order(_drift(chain, i, j), x)[0]
            out[f"{name} gap order {i}{j}"] = float(got)
        out[f"{name} gap coefficient"] = float(gap_velocity(chain, 0.01 * x, 1, 3) / exp.gap_drift(0.01 * x))
        s = torch.full((4,), 0.01, dtype=torch.float64)
        v = chain.velocity(s)
        # I_1 = X_1² − X_L² − (2(q−1)/(q+1)) λ' s^{q+1} should stand still to leading order
        growth = 2 * (exp.d.q - 1) / (exp.d.q + 1) * exp.d.lam_prime * (exp.d.q + 1) * s[0] ** exp.d.q * v[3]
        out[f"{name} invariant ratio"] = float(gap_velocity(chain, s, 1, 4) / growth)
        rest = measured_order(_nonlinear_part(chain, exp), x, (0.01, 0.02, 0.04))[0]
        out[f"{name} output order gap"] = abs(float(rest) - (4 + exp.d.q - 1))
    return out


def _remainder(chain: ScalarChain, exp: Expansion) -> Callable[[Tensor], Tensor]:
    return lambda x: chain.velocity(x) - exp.leading(x)


def _drift(chain: ScalarChain, i: int, j: int) -> Callable[[Tensor], Tensor]:
    return lambda x: gap_velocity(chain, x, i, j)


def _nonlinear_part(chain: ScalarChain, exp: Expansion) -> Callable[[Tensor], Tensor]:
    g = torch.ones(1, dtype=torch.float64)
    return lambda x: chain.output(x, g) - exp.linear_output(x, g)


def class_d(seed: int) -> Numbers:
    """T14: the centred sigmoid behaves like its class; the plain one has no plateau at zero."""
    plain = ScalarChain("sigmoid", 1)
    v = plain.velocity(torch.full((3,), 1e-3, dtype=torch.float64))
    out = {f"sigmoid velocity {i + 1}": float(v[i]) for i in range(3)}
    for name in ("centered:sigmoid", "centered:softplus"):
        d = saddle.drive(name, 4, 64)
        t = saddle.reduced_flow([0.02] * 4, name, 64, threshold=0.2, keep=False).escape_t
        out[f"{name} time over leading"] = float(t) / balanced(0.02, 4, d.k, 0.2)
    return out


def _rates(seed: int) -> Numbers:
    net = _chain((5, 8, 8, 1), "tanh")
    x, y = torch.randn(16, 5).double(), torch.randn(16, 1).double()
    rates = {"0.weight": 1.0, "2.weight": 1 / 8, "4.weight": 1 / 8}
    before = saddle.imbalance(net, F.mse_loss, (x, y), rates=rates)
    grads = torch.autograd.grad(F.mse_loss(net(x), y), list(net.parameters()))
    with torch.no_grad():
        for (name, p), g in zip(net.named_parameters(), grads):
            p.sub_(g, alpha=0.05 * rates[name])
    after = saddle.imbalance(net, F.mse_loss, (x, y), rates=rates)
    gap = max(
        abs(b.delta - a.delta - a.predicted_change(0.05)) / abs(a.delta) for a, b in zip(before.pairs, after.pairs)
    )
    return {"weighted defect": max(before.defect.values()), "discrete step gap": gap}


def _matrix(seed: int) -> Numbers:
    right, printed, diagonal = 0.0, math.inf, 0.0
    for name in ("tanh", "gelu", "silu", "relu", "sigmoid", "softplus"):
        net = _chain((5, 7, 6, 3), name)
        with torch.no_grad():
            for p in net.parameters():
                p.normal_()
        found = saddle.imbalance(net, F.mse_loss, (torch.randn(16, 5).double(), torch.randn(16, 3).double()))
        for pair in found.pairs:
            left, corrected = pair.matrix()
            as_printed = pair.matrix(printed=True)[1]
            right = max(right, float((left - corrected).norm() / left.norm()))
            printed = min(printed, float((left - as_printed).norm() / left.norm()))
            diagonal = max(diagonal, float((left - as_printed).diagonal().abs().max() / left.norm()))
    return {"matrix defect": right, "least printed matrix defect": printed, "printed diagonal defect": diagonal}


def _chain(sizes: tuple[int, ...], name: str, bias: bool = False) -> nn.Sequential:
    layers: list[nn.Module] = []
    for a, b in pairwise(sizes):
        layers += [nn.Linear(a, b, bias=bias), activations.get(name)]
    return nn.Sequential(*layers[:-1]).double()


def _losses(outputs: int) -> list[Any]:
    losses: list[Any] = [
        F.mse_loss,
        lambda o, y: torch.log(torch.cosh(o - y)).mean(),
        lambda o, y: F.binary_cross_entropy_with_logits(o, (y > 0).double()),
    ]
    return losses + ([lambda o, y: F.cross_entropy(o, torch.softmax(y, -1))] if outputs > 1 else [])
