r"""The imbalance identity on a real network.

For every link A → B of a model (:mod:`netvitals.anatomy.wiring`), with $u = F(z_A)$ the input of B, any loss, and
gradient flow on weights and biases,

$$\frac{d}{dt}\Big(\lVert W_B\rVert^2-\lVert W_A\rVert^2-\lVert b_A\rVert^2\Big)
   = 2\sum\langle b,\ \varphi_F(z_A)\rangle,\qquad \varphi_F(z)=J_F(z)z-F(z),\quad b=W_B^\top\nabla_{z_B}\ell .$$

For an elementwise activation $\varphi(z)=z\sigma'(z)-\sigma(z)$. The identity is exact on any batch, so its defect
tests the whole bookkeeping; its right side says which layer is being fed. The two halves of the right side are moved by
A and by B: a frozen layer's half is left out on both sides.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from netvitals._plot import Plot, Series
from netvitals.anatomy import Anatomy, LayerRun, Link, Links, chart, find_links, recorded
from netvitals.capture import LossFn, Mode, Result, Task, in_mode, preserved, skipped_lines, task_of, undisturbed
from netvitals.saddle.measure.conservation import candidate_laws
from netvitals.saddle.measure.pairs import balance_terms, imbalance_of

SHOWN = 32  # pairs on one screen


@dataclass(frozen=True, kw_only=True)
class PairImbalance(Result):
    """One link. ``neuron_*`` have one entry per output unit (channel) of the first layer.

    Part of :class:`ImbalanceIdentity`.

    Attributes:
        first: name of the layer before.
        second: name of the layer after.
        delta: Δ = ‖W_B‖² − ‖W_A‖² − ‖b_A‖².
        lhs: dΔ/dt from the parameter gradients.
        rhs: 2 Σ ⟨b, φ(z)⟩ from activations and backpropagated signal.
        scale: size of the terms that cancel in lhs.
        neuron_delta: Δ of each unit.
        neuron_lhs: its rate of change from the gradients.
        neuron_rhs: the same from activations and signal.
        neuron_scale: size of the terms that cancel.
        grad_gap: ρ_B‖g_B‖² − ρ_A‖g_A‖²: the η² coefficient of one gradient step.
        elementwise: whether one activation per unit stands between the layers.
        between: names of what stands between them.
    """

    first: str
    second: str
    delta: float
    lhs: float
    rhs: float
    scale: float
    neuron_delta: Tensor
    neuron_lhs: Tensor
    neuron_rhs: Tensor
    neuron_scale: float
    grad_gap: float
    elementwise: bool
    between: tuple[str, ...]
    _matrix: Callable[[bool], tuple[Tensor, Tensor]] | str = field(repr=False, compare=False, default="")

    @property
    def defect(self) -> float:
        """|lhs − rhs| over the size of the terms (not over their possibly vanishing difference)."""
        return abs(self.lhs - self.rhs) / self.scale if self.scale else abs(self.lhs - self.rhs)

    @property
    def neuron_defect(self) -> float:
        gap = float((self.neuron_lhs - self.neuron_rhs).abs().max())
        return gap / self.neuron_scale if self.neuron_scale else gap

    def matrix(self, *, printed: bool = False) -> tuple[Tensor, Tensor]:
        r"""Both sides of $d(W_B^\top W_B-W_AW_A^\top-b_Ab_A^\top)/dt$, units × units.

        The right side is $E[(\sigma'\odot b)z^\top+z(\sigma'\odot b)^\top-b\sigma^\top-\sigma b^\top]$.
        With ``printed`` it is the paper's $E[b\varphi^\top+\varphi b^\top]$, wrong off the diagonal (erratum E2).
        """
        if isinstance(self._matrix, str):
            raise ValueError(
                f"the imbalance identity of the pair {self.first} → {self.second} cannot be written with matrices: "
                f"{self._matrix}. Use its two sides as numbers, lhs and rhs"
            )
        return self._matrix(printed)

    def predicted_change(self, lr: float) -> float:
        """Exact change of Δ in one plain gradient step: ``lr`` · rhs + lr² · (difference of squared gradients)."""
        return lr * self.rhs + lr**2 * self.grad_gap

    def __str__(self) -> str:
        return (
            f"{self.first} → {self.second}: Δ = {self.delta:.6g}, dΔ/dt = {self.lhs:.4g} "
            f"(identity {self.rhs:.4g}, defect {self.defect:.1e})"
        )


@dataclass(frozen=True, kw_only=True)
class ImbalanceIdentity(Result):
    """The identity on every link of a model. Mappings are keyed by "first → second".

    Returned by :func:`imbalance`.

    Attributes:
        pairs: the links, in the order of the forward pass.
        chains: names of layers that follow each other without a break.
        others: names of laws that are no pair (attention, gated blocks, norms), which :func:`conserved` checks.
        skipped: layer without a pair → reason.
    """

    pairs: tuple[PairImbalance, ...]
    chains: tuple[tuple[str, ...], ...]
    others: tuple[str, ...] = ()
    skipped: Mapping[str, str] = field(default_factory=dict)

    def _by_pair(self, attribute: str) -> dict[str, float]:
        return {f"{p.first} → {p.second}": getattr(p, attribute) for p in self.pairs}

    @property
    def delta(self) -> dict[str, float]:
        return self._by_pair("delta")

    @property
    def lhs(self) -> dict[str, float]:
        return self._by_pair("lhs")

    @property
    def rhs(self) -> dict[str, float]:
        return self._by_pair("rhs")

    @property
    def defect(self) -> dict[str, float]:
        return self._by_pair("defect")

    def __str__(self) -> str:
        shown = [str(p) for p in self.pairs[:SHOWN]]
        more = [f"… and {len(self.pairs) - SHOWN} more"] * (len(self.pairs) > SHOWN)
        named = [_elsewhere(self.others)] if self.others else []
        return "\n".join([*shown, *more, *named, *skipped_lines(self.skipped)])

    def plot(self) -> Plot:
        """Both sides of the identity, pair by pair."""
        at = [float(i + 1) for i in range(len(self.pairs))]
        return Plot(
            "pair of layers, in the order of the model",
            "dΔ/dt",
            [
                Series("from the gradients", at, list(self.lhs.values())),
                Series("from activations and signal", at, list(self.rhs.values()), line=len(at) > 1, dashed=True),
            ],
        )

    def rows(self) -> list[dict[str, Any]]:
        """One row a pair: Δ, both sides of its rate of change, and their defect."""
        names = ("first", "second", "delta", "lhs", "rhs", "defect", "neuron_defect", "grad_gap", "elementwise")
        return [{name: getattr(p, name) for name in names} for p in self.pairs]


@undisturbed
def imbalance(
    model: nn.Module,
    loss_fn: LossFn,
    batch: Any,
    *,
    mode: Mode = "as_is",
    seed: int = 0,
    rates: Mapping[str, float] | Callable[[str], float] | None = None,
    precise: bool = False,
    anatomy: Anatomy | None = None,
) -> ImbalanceIdentity:
    r"""Measure the imbalance Δ of adjacent layers and compare both sides of the identity for its rate of change.

    Args:
        model: any module; a layer is whatever multiplies with a parameter. It is not changed.
        loss_fn: a function of (output, target), its name, or None if the model's output contains its own loss.
        batch: one batch as a data loader yields it.
        mode: ``"as_is"``, ``"train"`` or ``"eval"``.
        seed: seed of the random numbers that the model draws.
        rates: learning rates $\rho$ per parameter name (or a function of it) under the flow $\dot\theta=-\rho g$; then
            Δ weighs each norm by 1/ρ and the right side is the same. Missing names have rate 1; what is frozen does
            not move.
        precise: measure a float64 copy of the model.
        anatomy: the result of ``anatomy.chart`` for this model; computed if left out.

    Returns:
        The pairs, the chains they form, and the layers that belong to none, with the reason.

    >>> _ = torch.manual_seed(0)
    >>> net = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1)).double()
    >>> x, y = torch.randn(8, 3).double(), torch.randn(8, 1).double()
    >>> max(imbalance(net, nn.functional.mse_loss, (x, y)).defect.values()) < 1e-12
    True
    """
    task = task_of(model, loss_fn, batch)
    if precise:
        task = _precise(task)
    model, rate = task.model, _rate_function(rates)
    frozen = {name for name, p in model.named_parameters(remove_duplicate=False) if not p.requires_grad}
    with preserved(model), in_mode(model, mode), torch.enable_grad():
        torch.manual_seed(seed)
        anatomy = chart(model, task.inputs) if anatomy is None else anatomy
        links = find_links(anatomy)
        others = tuple(law.name for law in candidate_laws(anatomy) if law.kind != "pair")
        for p in model.parameters():
            p.requires_grad_(True)
        with recorded(model, anatomy) as runs:
            loss = task.loss(task.forward())
        usable = tuple(k for k in links.links if k.first in runs and k.second in runs)
        if not usable:
            reasons = "; ".join(f"{n}: {w}" for n, w in list(links.skipped.items())[:3]) or "no layer feeds another one"
            reasons += f"; {_elsewhere(others)}" if others else ""
            raise ValueError(
                f"no pair of layers was found in {type(model).__name__}: the imbalance identity needs layers whose "
                f"input comes from exactly one earlier layer; {len(anatomy.layers)} layers were called; {reasons}"
            )
        pairs, skipped = _measure(runs, usable, loss, rate, frozen)
    for link in set(links.links) - set(usable):
        skipped[link.first] = f"{link.first} or {link.second} is called as a function inside a larger module"
    kept = {(p.first, p.second) for p in pairs}
    chains = Links(tuple(k for k in links.links if (k.first, k.second) in kept)).chains
    return ImbalanceIdentity(pairs=tuple(pairs), chains=chains, others=others, skipped={**links.skipped, **skipped})


def _elsewhere(others: tuple[str, ...]) -> str:
    """Where the balance of layers is that are no pair."""
    more = f" and {len(others) - 3} more" if len(others) > 3 else ""
    return f"saddle.conserved checks the laws {', '.join(others[:3])}{more}"


def _measure(
    runs: dict[str, LayerRun], links: tuple[Link, ...], loss: Tensor, rate: Callable[[str], float], frozen: set[str]
) -> tuple[list[PairImbalance], dict[str, str]]:
    used = [runs[n] for n in dict.fromkeys(name for link in links for name in (link.first, link.second))]
    biased = [(run.name, run.bias) for run in used if run.bias is not None]
    wanted = [*(run.weight for run in used), *(bias for _, bias in biased), *(run.z for run in used)]
    grads = [
        torch.zeros_like(t) if g is None else g
        for t, g in zip(wanted, torch.autograd.grad(loss, wanted, retain_graph=True, allow_unused=True))
    ]
    n, m = len(used), len(biased)
    gradients = _Gradients(
        {r.name: g for r, g in zip(used, grads[:n])},
        {k: g for (k, _), g in zip(biased, grads[n:])},
        {r.name: g for r, g in zip(used, grads[n + m :])},
    )
    pairs, skipped = [], {}
    for link in links:
        first, second = runs[link.first], runs[link.second]
        pair, why = _pair(link, first, second, gradients, rate, frozen)
        if pair is None:
            skipped[link.first] = why
        else:
            pairs.append(pair)
            if why:
                skipped[f"{link.first} → {link.second}, per neuron"] = why
    return pairs, skipped


@dataclass(frozen=True)
class _Gradients:
    weight: dict[str, Tensor]
    bias: dict[str, Tensor]
    z: dict[str, Tensor]


def _pair(
    link: Link, a: LayerRun, b: LayerRun, g: _Gradients, rate: Callable[[str], float], frozen: set[str]
) -> tuple[PairImbalance | None, str]:
    """The pair, and why it or its numbers per neuron are missing."""
    wa, wb, ga, gb = a.weight.detach().clone(), b.weight.detach().clone(), g.weight[a.name], g.weight[b.name]
    (back,) = torch.autograd.grad(b.z, b.u, g.z[b.name], retain_graph=True)  # b = W_Bᵀ ∇_{z_B} ℓ
    (pulled,) = torch.autograd.grad(b.u, a.z, back, retain_graph=True)  # J_Fᵀ b
    if bool((pulled - g.z[a.name]).norm() > 1e-3 * g.z[a.name].norm()):
        return None, f"{a.name} also reaches the loss by another way than {b.name}"
    z, p = _by_unit(a.z.detach(), a.channel), _by_unit(pulled, a.channel)
    u, back_u = _by_unit(b.u.detach(), b.channel), _by_unit(back, b.channel)
    units = z.shape[1]
    why = _no_units(a, b, units, u.shape[1])
    # several inputs of B per unit of A after flattening
    fold = (lambda v: v.new_full((units,), torch.nan)) if why else (lambda v: v.reshape(units, -1).sum(1))
    rows, columns = a.by_output, b.by_input
    moves_a, moves_b, moves_bias = (
        float(n not in frozen) for n in (a.weight_name, b.weight_name, a.bias_name or a.weight_name)
    )
    rho_a, rho_b = rate(a.weight_name), rate(b.weight_name)
    inner_a, inner_b = moves_a * (rows(wa) * rows(ga)).sum(1), moves_b * (columns(wb) * columns(gb)).sum(1)
    norm_a, norm_b = rows(wa).square().sum(1) / rho_a, columns(wb).square().sum(1) / rho_b
    grad_gap = moves_b * rho_b * float(gb.square().sum()) - moves_a * rho_a * float(ga.square().sum())
    # Σ (J_Fᵀb) ⊙ z and Σ b ⊙ F(z): together Σ ⟨b, φ⟩
    signal, carried = moves_a * (p * z).sum(0), moves_b * (back_u * u).sum(0)
    if a.bias is not None:
        bias, g_bias, rho = a.bias.detach().clone(), g.bias[a.name], rate(a.bias_name)
        inner_a, norm_a = inner_a + moves_bias * bias * g_bias, norm_a + bias.square() / rho
        grad_gap -= moves_bias * rho * float(g_bias.square().sum())
        signal = signal + (moves_bias - moves_a) * (p * bias).sum(0)  # z = W u + b, and each part moves or not
    squared = {b.weight_name: wb.square().sum(), a.weight_name: wa.square().sum()}
    if a.bias is not None:
        squared[a.bias_name] = bias.square().sum()
    elementwise = not why and a.z.shape == b.u.shape
    no_matrix = (
        f"it needs one activation per unit, and the link passes {', '.join(link.between)}"
        if not elementwise
        else f"{a.name if a.groups > 1 else b.name} is grouped, and its groups share no inputs"
        if max(a.groups, b.groups) > 1
        else ""
        if moves_a and moves_b and moves_bias
        else "a part of it is frozen, so that its half of the identity does not move"
    )

    weights = rows(wa), rows(ga), columns(wb), columns(gb)  # and nothing of the model, which moves on
    outer = None if a.bias is None else torch.outer(bias, g_bias)

    def matrix(printed: bool) -> tuple[Tensor, Tensor]:
        left = weights[0] @ weights[1].T - weights[2] @ weights[3].T
        if outer is not None:
            left = left + outer
        right = p.T @ z - back_u.T @ u
        if printed:
            safe = back_u != 0
            slope = torch.where(safe, p / torch.where(safe, back_u, torch.ones_like(p)), torch.zeros_like(p))
            right = back_u.T @ (slope * z - u)
        return left + left.T, right + right.T

    pair = PairImbalance(
        first=a.name,
        second=b.name,
        delta=imbalance_of(
            balance_terms(b.weight_name, a.weight_name, a.bias_name),
            lambda name: float(squared[name]) / rate(name),
        ),
        lhs=2 * float(inner_a.sum() - inner_b.sum()),
        rhs=2 * float(signal.sum() - carried.sum()),
        scale=2 * max(float(v.abs().sum()) for v in (inner_a, inner_b, signal, carried)),
        neuron_delta=fold(norm_b) - norm_a,
        neuron_lhs=2 * (inner_a - fold(inner_b)),
        neuron_rhs=2 * (signal - fold(carried)),
        neuron_scale=2 * max(float(v.abs().max()) for v in (inner_a, inner_b, signal, carried)),
        grad_gap=grad_gap,
        elementwise=elementwise,
        between=link.between,
        _matrix=no_matrix or matrix,
    )
    return pair, why


def _no_units(a: LayerRun, b: LayerRun, units: int, inputs: int) -> str:
    """Why the inputs of B are not those of A's units in their order; empty where they are."""
    if inputs % units:
        return f"{b.name} has {inputs} inputs, which do not belong to the {units} units of {a.name} in equal shares"
    if inputs == units:
        return ""
    number = torch.arange(inputs, device=b.u.device) // (inputs // units)
    for bit in range((units - 1).bit_length()):  # what reaches the inputs of one half of the units is that half
        half = (number >> bit) % 2 == 1
        shown = half.to(b.u).reshape([-1 if d == b.channel % b.u.ndim else 1 for d in range(b.u.ndim)])
        reached = torch.autograd.grad(b.u, a.z, shown.expand_as(b.u) * b.u.detach(), retain_graph=True)[0]
        if bool(_by_unit(reached, a.channel).any(0)[~half[:: inputs // units]].any()):
            return f"the inputs of {b.name} are mixed, or not in the order of the units of {a.name}"
    return ""


def _by_unit(t: Tensor, channel: int) -> Tensor:
    return t.reshape(1, -1) if t.ndim == 1 else t.movedim(channel, -1).reshape(-1, t.shape[channel])


def _rate_function(rates: Mapping[str, float] | Callable[[str], float] | None) -> Callable[[str], float]:
    if rates is None:
        return lambda name: 1.0
    if callable(rates):
        return rates
    for name, value in rates.items():
        if not value > 0:
            raise ValueError(f"learning rates must be positive, got {value} for {name}")
    return lambda name: rates.get(name, 1.0)


def _precise(task: Task) -> Task:
    """The same task in float64, on a copy of the model."""
    return replace(
        task,
        model=copy.deepcopy(task.model).double(),
        args=_double(task.args),
        kwargs=_double(dict(task.kwargs)),
        targets=_double(task.targets),
    )


def _double(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.double() if value.is_floating_point() else value
    if isinstance(value, Mapping):
        return {k: _double(v) for k, v in value.items()}
    return type(value)(_double(v) for v in value) if isinstance(value, tuple | list) else value
