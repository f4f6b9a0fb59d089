r"""The readout of one checkpoint: candidate dead directions, which of them are singular, and what they contribute.

Candidates come from three places: the joint mode of a hidden unit (its incoming row with its outgoing column), the
bottom direction of each layer's K-FAC factors, and the kernel of each LayerNorm. Along each one the directional Fisher
is scanned outward; a checkpoint sits at some distance from the singular set, so the fit carries a shift. A direction
along which the divergence is zero is a gauge direction and counts for nothing.
"""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from netvitals.singular.laws.fluctuation import nu
from netvitals.singular.laws.rlct import rlct_additive
from netvitals.singular.moments.factors import joint_mode, kronecker_lift
from netvitals.singular.moments.kronecker import kfac
from netvitals.singular.orders.nature import along, verdict_of
from netvitals.singular.orders.order import KLOrder, kl_order
from netvitals.singular.orders.spectrum import DENSE_LIMIT, Classified, classify_spectrum
from netvitals.singular.sampling.evidence import WatanabeTriple

SCAN = tuple(np.geomspace(3e-3, 1.0, 10).tolist())  # relative to the size of the weights along the direction
NEARBY = 0.1  # Fisher form at the checkpoint, over its largest on the way out: above it the point is regular
ANSWERS = 64  # outputs per sample up to which K-FAC factors sum over all of them
EMPTY = {
    "joint mode": "the unit is silent on this batch, or nothing reads it",
    "K-FAC bottom": "the layer's inputs do not vary along it, or its outputs are not read",
    "norm kernel": "the norm's centring takes it out",
}
CONDITIONS = ("canonical alignment", "equivariant optimiser", "noise regime", "asymptotic window", "expected Fisher")


@dataclass(frozen=True)
class Candidate:
    """One direction and what was found along it."""

    name: str
    kind: str  # "joint mode", "K-FAC bottom", "norm kernel"
    verdict: str  # "singular", "gauge", "regular", "unclear"
    scan: KLOrder
    direction: dict[str, Tensor] = field(default_factory=dict, repr=False, compare=False)  # by parameter name

    @property
    def share(self) -> float:
        """Fisher form at the checkpoint over its largest on the way out: small near a singular set; NaN for a gauge."""
        peak = float(self.scan.fisher.max())
        return float(self.scan.fisher[0]) / peak if peak > 0 and self.verdict != "gauge" else math.nan

    @property
    def why(self) -> str:
        """The verdict's reason in plain words."""
        if self.verdict == "gauge":
            return EMPTY.get(self.kind, "the model does not change along it")
        if self.verdict == "regular":
            return (
                f"the Fisher form here is {self.share:.0%} of its largest on the way out: no singular point within "
                "reach"
            )
        if self.verdict == "singular":
            away = distance(self)
            return (
                f"order {self.scan.order}, the Fisher form falls as t^{self.scan.slope:.2f} ± "
                f"{self.scan.stderr:.2f}; "
                + (f"the singular set is {away:.2g} away" if away > 0 else "the checkpoint lies on the singular set")
            )
        return self.scan.note or "; ".join(self.scan.fisher_fit.flags)

    def __str__(self) -> str:
        return f"{self.verdict:9s} {self.kind:13s} {self.name}: {self.why}"


@dataclass(frozen=True)
class Readout:
    """Orders found at one checkpoint and the invariants that follow, or why there are none."""

    candidates: tuple[Candidate, ...]
    triple: WatanabeTriple | None  # contribution of the singular directions together
    interval: tuple[float, float] | None  # of the λ contribution, from the slopes' errors
    conditions: dict[str, str]  # "holds", "fails: …" or "not checked: …"
    skipped: dict[str, str]
    notes: tuple[str, ...] = ()

    def of(self, verdict: str) -> list[Candidate]:
        return [c for c in self.candidates if c.verdict == verdict]

    def __str__(self) -> str:
        counts = {v: len(self.of(v)) for v in ("singular", "gauge", "regular", "unclear")}
        lines = [f"{len(self.candidates)} candidate directions: " + ", ".join(f"{n} {v}" for v, n in counts.items())]
        if self.triple is None:
            lines.append("no singular direction was found; a trained network usually sits away from its singular set:")
        else:
            assert self.interval is not None
            lines.append(
                f"contribution of the singular directions: {self.triple} "
                f"(λ in [{self.interval[0]:.3g}, {self.interval[1]:.3g}])"
            )
            lines += [f"  {c}" for c in self.of("singular")]
        if away := self.of("regular"):
            shares = [c.share for c in away]
            lines.append(
                f"  {len(away)} regular: the Fisher form at the checkpoint is {min(shares):.0%} to "
                f"{max(shares):.0%} of its largest on the way out, so no singular point is within reach"
            )
        for kind, why in EMPTY.items():
            if empty := [c for c in self.of("gauge") if c.kind == kind]:
                lines.append(f"  {len(empty)} gauge ({kind}), along which the model does not change: {why}")
        lines += [f"  {c}" for c in self.of("unclear")]
        if self.skipped:
            name, why = next(iter(self.skipped.items()))
            lines.append(f"  not looked at: {len(self.skipped)} places, such as {name}: {why}")
        lines += [f"  condition {name}: {state}" for name, state in self.conditions.items()]
        return "\n".join([*lines, *(f"  note: {n}" for n in self.notes)])


def readout(
    model: nn.Module, loss_fn: Any, batch: tuple[Tensor, Tensor], *, units: int = 4, scan: Sequence[float] = SCAN
) -> Readout:
    """Order, λ, m and ν of one checkpoint, or why not.

    Args:
        loss_fn: "ce", "mse", or one of torch's losses of that kind; it fixes the likelihood.
        batch: (inputs, targets); targets may be anything, the Fisher is the expected one.
        units: hidden units per pair of layers, the weakest first.

    The model is copied to float64 and left as it was.
    """
    family = check_task(loss_fn, batch)
    notes = []
    if any(p.dtype in (torch.float16, torch.bfloat16) for p in model.parameters()):
        notes.append("half precision was promoted to float64")
    twin = copy.deepcopy(model).double().eval()
    x = batch[0].double() if batch[0].is_floating_point() else batch[0]
    if x.is_floating_point() and not torch.isfinite(x).all():
        raise ValueError("the batch holds NaN or infinity: clean the data first")
    found: list[Candidate] = []
    directions, skipped = _directions(twin, x, "ce" if family == "categorical" else "mse", units)
    for name, kind, direction in directions:
        found.append(_scan(twin, x, family, name, kind, direction, scan))
    singular = [c for c in found if c.verdict == "singular"]
    triple = interval = None
    if singular:
        ks = [c.scan.order or 1 for c in singular]
        lam, m = rlct_additive(ks)
        triple = WatanabeTriple(lam, m, sum(nu(k) for k in ks))
        spread = [_contribution_range(c.scan) for c in singular]
        interval = (sum(low for low, _ in spread), sum(high for _, high in spread))
        notes.append(
            "directions are added as if they met nowhere; where two of them cross, λ is that of the crossing "
            "(singular.recover_crossing), never the ray's"
        )
    return Readout(tuple(found), triple, interval, _conditions(found), skipped, tuple(notes))


def spectrum_along(
    model: nn.Module, loss_fn: Any, batch: tuple[Tensor, Tensor], candidate: Candidate, *, samples: int = 200
) -> Classified:
    """The Fisher spectrum of the parameters that a candidate moves, along its scan, by class.

    Of a unit these are its incoming row and outgoing column, not all the weights of their layers, among whose
    eigenvalues those of one unit would hide. At most 2,000; the first ``samples`` of the batch are used.
    """
    twin = copy.deepcopy(model).double().eval()
    x = batch[0][:samples].double() if batch[0].is_floating_point() else batch[0][:samples]
    outputs, theta, v = along(twin, x, candidate.direction)
    free = v.nonzero()[:, 0]
    if len(free) > DENSE_LIMIT:
        raise ValueError(
            f"the spectrum is followed for at most {DENSE_LIMIT} parameters, this direction moves {len(free)}"
        )
    return classify_spectrum(
        lambda part: outputs(theta.index_copy(0, free, part)),
        theta[free],
        v[free],
        candidate.scan.ts.tolist(),
        likelihood=_family(loss_fn),
    )


def check_task(loss_fn: Any, batch: Any) -> str:
    """The likelihood's name; a sentence for a loss or a batch that a readout cannot use."""
    family = _family(loss_fn)
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        raise ValueError(f"the batch is a pair (inputs, targets), got {type(batch).__name__}")
    if not len(batch[0]):
        raise ValueError("the batch is empty: a readout needs inputs to see the model's answers on")
    return family


def _family(loss_fn: Any) -> str:
    names = {"ce": "categorical", "mse": "gaussian"}
    if isinstance(loss_fn, str) and loss_fn in names:
        return names[loss_fn]
    if loss_fn in (F.cross_entropy, F.nll_loss) or isinstance(loss_fn, nn.CrossEntropyLoss):
        return "categorical"
    if loss_fn is F.mse_loss or isinstance(loss_fn, nn.MSELoss):
        return "gaussian"
    raise ValueError(
        "the readout needs to know the likelihood: pass loss_fn as 'ce' or 'mse', or torch's "
        f"cross_entropy or mse_loss; got {loss_fn!r}"
    )


def _directions(
    model: nn.Module, x: Tensor, loss: str, units: int
) -> tuple[list[tuple[str, str, dict[str, Tensor]]], dict[str, str]]:
    from netvitals.anatomy.wiring import find_links, recorded

    out: list[tuple[str, str, dict[str, Tensor]]] = []  # joint modes, K-FAC bottoms, norm kernels
    with recorded(model) as runs, torch.enable_grad():
        answers = model(x)[0].numel()
    links = find_links(runs)
    uses = Counter(id(p) for _, p in model.named_parameters(remove_duplicate=False))
    skipped = dict(links.skipped)
    for link in links.links:
        first, second = (model.get_submodule(n) for n in (link.first, link.second))
        into, out_of = first.get_parameter("weight").detach(), second.get_parameter("weight").detach()
        if into.shape[0] != out_of.shape[1] or max(getattr(m, "groups", 1) for m in (first, second)) > 1:
            skipped[f"{link.first} → {link.second}"] = "joint modes are built between layers of one width, not grouped"
            continue
        if any(uses[id(m.weight)] > 1 for m in (first, second)):
            skipped[f"{link.first} → {link.second}"] = "a weight is tied to another layer: it is no unit's own"
            continue
        strength = into.flatten(1).norm(dim=1) * out_of.transpose(0, 1).flatten(1).norm(dim=1)
        for unit in torch.argsort(strength)[:units].tolist():
            out.append(
                (
                    f"{link.first} → {link.second}, unit {unit}",
                    "joint mode",
                    joint_mode(model, link.first, link.second, unit),
                )
            )
    # to find candidates, sampled labels do; the scans along them use the expected Fisher (§2.5)
    factors = kfac(model, x, loss, "expected" if answers <= ANSWERS else "monte-carlo")
    for name, factor in factors.layers.items():
        module = model.get_submodule(name)
        if isinstance(module, nn.Linear | nn.Conv1d | nn.Conv2d) and getattr(module, "groups", 1) == 1:
            bottom = kronecker_lift(factor)[0].reshape(module.weight.shape)
            out.append((name or "model", "K-FAC bottom", {f"{name}.weight".lstrip("."): bottom}))
    for name, module in model.named_modules():
        if isinstance(module, nn.LayerNorm) and module.elementwise_affine:
            reader = next(
                (
                    n
                    for n, m in model.named_modules()
                    if isinstance(m, nn.Linear)
                    and n in runs
                    and m.in_features == module.weight.numel()
                    and runs[n].u.shape[-1] == module.weight.numel()
                    and _reads(runs[n].u, module, x, model)
                ),
                None,
            )
            if reader is None or not bool((module.weight != 0).all()):
                skipped[name] = "no linear layer reads this norm directly, or a gain is zero"
                continue
            weight = model.get_submodule(reader).get_parameter("weight")
            kernel = 1 / module.weight.detach()
            row = torch.outer(torch.ones(weight.shape[0], dtype=weight.dtype), kernel / kernel.norm())
            out.append((f"{name} read by {reader}", "norm kernel", {f"{reader}.weight": row / row.norm()}))
    return out, skipped


def _reads(u: Tensor, norm: nn.LayerNorm, x: Tensor, model: nn.Module) -> bool:
    """Whether ``u`` is the norm's output, by value."""
    kept: list[Tensor] = []
    handle = norm.register_forward_hook(lambda m, a, o: kept.append(o.detach()))
    try:
        with torch.no_grad():
            model(x)
    finally:
        handle.remove()
    return bool(kept) and kept[0].shape == u.shape and torch.equal(kept[0], u.detach())


def _scan(
    model: nn.Module, x: Tensor, family: str, name: str, kind: str, direction: dict[str, Tensor], scan: Sequence[float]
) -> Candidate:
    outputs, theta, v = along(model, x, direction)
    size = max(float((theta * v / v.norm()).norm()), 1e-2 * float(theta.norm()), 1e-3)
    result = kl_order(outputs, theta, v, family, ts=[s * size for s in scan], shift=True)
    verdict = verdict_of(result)
    if verdict == "unclear" and result.fisher[0] >= NEARBY * result.fisher.max() > 0:
        verdict = "regular"  # the form does not vanish here: an exponent further out says nothing of this point
    return Candidate(name, kind, verdict, result, direction)


def _contribution_range(scan: KLOrder) -> tuple[float, float]:
    """1/(2k) over the fit's interval, widened by its distance from the whole order: the finite window's own error."""
    half = (scan.fisher_fit.interval[1] - scan.fisher_fit.interval[0]) / 4 + abs(scan.estimate - (scan.order or 1))
    return 1 / (2 * max(scan.estimate + half, 1.0)), 1 / (2 * max(scan.estimate - half, 1.0))


def _conditions(found: list[Candidate]) -> dict[str, str]:
    scans = [c.scan for c in found if c.verdict in ("singular", "unclear")]
    drifting = [s for s in scans if s.fisher_fit.flags]
    aligned = [c for c in found if c.kind == "joint mode" and c.verdict == "singular"]
    check: Callable[[bool, str], str] = lambda ok, why: "holds" if ok else f"fails: {why}"
    states = (
        "holds for the joint modes called singular" if aligned else "not checked: no singular joint mode",
        "not checked: a checkpoint does not say which optimiser made it",
        "not checked: targets without noise make the rates of G 2L higher; the orders here do not depend on it",
        check(not drifting, f"{len(drifting)} scans have drifting local slopes")
        if scans
        else "not checked: nothing to scan into",
        f"holds: {found[0].scan.estimator}" if found else "not checked: no candidate direction",
    )
    return dict(zip(CONDITIONS, states))


def distance(candidate: Candidate) -> float:
    """How far the checkpoint sits from the singular set along a candidate: the fitted shift; NaN if not singular."""
    return candidate.scan.fisher_fit.shift if candidate.verdict == "singular" else math.nan
