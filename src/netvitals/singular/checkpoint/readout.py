r"""The readout of one checkpoint: candidate dead directions, which of them are singular, and what λ, m and ν follow.

Along each candidate the directional Fisher is scanned outward; a checkpoint sits at some distance from the singular
set, so the fit carries a shift. A direction along which the divergence is zero, or whose change other weights undo, is
a gauge direction and counts for nothing. λ and m come from the neighbourhood of the singular point, never from the
order of a ray: a dead unit is always a crossing of two sheets, along which the ray says 1/4 and the truth is larger.

All of it is said for a number of samples n. A singular point counts where n samples do not tell the checkpoint from it,
n K ≤ 1 nat. λ is a limit: at n it stands only where the sampled coefficient, which knows no limit, agrees with it.
Where the neighbourhood stays open, or its limit is not reached, the sampled coefficient is λ, with its error bar.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from netvitals.capture import (
    LossFn,
    Only,
    Result,
    Task,
    batches_of,
    check_finite,
    in_double,
    inputs_of,
    likelihood_of,
    mapped,
    one_screen,
    output_tensor,
    picked,
    plain,
    undisturbed,
)
from netvitals.singular.checkpoint.candidates import candidate_directions
from netvitals.singular.checkpoint.dead_directions import DeadDirections, measure
from netvitals.singular.checkpoint.pairs import Direction
from netvitals.singular.orders import likelihood as likelihoods
from netvitals.singular.orders.nature import along_task, verdict_of
from netvitals.singular.orders.neighbourhood import LocalCoefficient, local_coefficient
from netvitals.singular.orders.order import KLOrder, Outputs, kl_order
from netvitals.singular.orders.product import product_crossing
from netvitals.singular.orders.spectrum import DENSE_LIMIT, Classified, classify_spectrum
from netvitals.singular.sampling.coefficient import LLC
from netvitals.singular.sampling.evidence import WatanabeTriple

SCAN = tuple(np.geomspace(1e-3, 1.0, 12).tolist())  # relative to the size of the weights along the direction
NEARBY = 0.1  # Fisher form at the checkpoint, over its largest on the way out: above it the point is regular
ON_THE_SET = 0.01  # the same, up to which a singular set that the scan points back to is this point's own
SAMPLES = 10_000  # n, unless it is given
TOLD_APART = 1.0  # nats of n K, above which n samples tell the checkpoint from a singular point
AGREES = 0.1  # of λ, or of 1 where λ is smaller, by which the sampled coefficient may differ beside 3 standard errors
DRAWS = 200  # of each chain of the sampled coefficient
ALONE = 600  # the same, where the neighbourhood stays open
SAMPLED = 1000  # parameters up to which it is sampled without being asked for
LADDER = 12  # parameters up to which it climbs a ladder of temperatures at once
EMPTY = {
    "joint mode": "nothing reads the unit",
    "merge": "other weights undo what the two units do differently",
    "hidden direction": "other weights undo it",
    "K-FAC bottom": "the layer's inputs do not vary along it, or its outputs are not read",
    "norm kernel": "the norm's centring takes it out",
}
NOISE_FREE = 1e-6  # of the targets' variance, up to which a residual is none
ROUNDING = 2.2e-16  # of the scores, whose squares the Fisher form sums
MARGIN = 1e3  # above the noise floor, from which a Fisher form has two digits in its slope
CONDITIONS = ("canonical alignment", "equivariant optimiser", "noise regime", "asymptotic window", "expected Fisher")


@dataclass(frozen=True, kw_only=True)
class Candidate(Result):
    """One ``direction`` of some ``kind``, by ``name``, and what was found along it: the ``scan``, the ``verdict``, and
    the coefficient of its ``own`` weights. Part of :class:`Readout`.
    """

    name: str
    kind: str  # "joint mode", "merge", "hidden direction", "K-FAC bottom", "norm kernel"
    verdict: str  # "singular", "gauge", "regular", "unclear"
    scan: KLOrder
    own: LocalCoefficient | None = None  # of the weights it is made of, all others held
    nats: float = 0.0  # n K from the checkpoint to the singular point
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
        if self.verdict == "regular" and self.nats > TOLD_APART:
            return f"a singular point is near, but {self.nats:.3g} nats away: the samples tell it from the checkpoint"
        if self.verdict == "regular":
            return f"the Fisher form here is {self.share:.0%} of its largest on the way out"
        if self.verdict == "singular":
            away = distance(self)
            where = f"the singular set is {away:.2g} away" if away > 0 else "the checkpoint lies on the singular set"
            own = f"; its own weights, the others held: {self.own}" if self.own is not None else ""
            fall = f"the Fisher form falls as t^{self.scan.slope:.2f} ± {self.scan.stderr:.2f}"
            return f"order {self.scan.order}, {fall}; {where}{own}"
        return self.scan.note or "; ".join(self.scan.fisher_fit.flags)

    def to_dict(self) -> dict[str, Any]:
        """Without the direction itself, which has as many numbers as the weights it moves."""
        found = {"name": self.name, "kind": self.kind, "verdict": self.verdict, "why": self.why}
        order = {"order": self.scan.order, "slope": plain(self.scan.slope), "stderr": plain(self.scan.stderr)}
        own = {"lambda": self.own.lam, "m": self.own.m} if self.own is not None else {"lambda": None, "m": None}
        return {**found, **order, **own, "share": plain(self.share), "nats": plain(self.nats), "skipped": {}}

    def __str__(self) -> str:
        return f"{self.verdict:9s} {self.kind:13s} {self.name}: {self.why}"


@dataclass(frozen=True, kw_only=True)
class Readout(Result):
    """Orders found at one checkpoint along ``candidates`` and the invariants that follow for the ``whole``, or why
    there are none: ``conditions``, what was ``skipped``, ``notes``. All is said for ``n`` samples; ``sampled`` is the
    coefficient there by sampling. Returned by :func:`readout`.
    """

    candidates: tuple[Candidate, ...]
    whole: LocalCoefficient  # of all parameters together at n, or why not
    limit: LocalCoefficient  # the same for n → ∞, without a look at n
    n: int  # samples for which all of it is said
    sampled: LLC | None = None  # of all parameters at the checkpoint, at n; None with the reason in ``unsampled``
    unsampled: str = ""
    conditions: dict[str, str]  # "holds", "fails: …" or "not checked: …"
    skipped: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    static: DeadDirections | None = None  # what holds in any phase of training, where it was asked for

    @property
    def triple(self) -> WatanabeTriple | None:
        """λ, m and ν of the whole model at n, NaN where one is not known; a sampled λ has its standard error.

        None where the neighbourhood stays open and sampling did not help either, with the reason in ``undetermined``.
        """
        if self.whole.lam is not None and self.whole.m is not None:
            return WatanabeTriple(self.whole.lam, self.whole.m, math.nan if self.whole.nu is None else self.whole.nu)
        if self.sampled is not None and self.sampled.ok:
            return WatanabeTriple(self.sampled.mean, math.nan, math.nan, self.sampled.stderr)
        return None

    @property
    def undetermined(self) -> str:
        """Why there is no triple; empty where there is one."""
        if self.triple is not None:
            return ""
        doubts = "; ".join(self.sampled.doubts) if self.sampled is not None else self.unsampled
        return "; ".join(dict.fromkeys(filter(None, (self.whole.why, doubts))))

    def rows(self) -> list[dict[str, Any]]:
        """One row a candidate direction."""
        return [{k: v for k, v in c.to_dict().items() if k != "skipped"} for c in self.candidates]

    def of(self, verdict: str) -> list[Candidate]:
        """The candidates with this ``verdict``: ``singular``, ``gauge``, ``regular`` or ``unclear``."""
        return [c for c in self.candidates if c.verdict == verdict]

    def __str__(self) -> str:
        counts = {v: len(self.of(v)) for v in ("singular", "gauge", "regular", "unclear")}
        tried = len(self.candidates)
        lines = [f"{tried} directions tried: " + ", ".join(f"{n} {v}" for v, n in counts.items())]
        lines[0] += f" (for n = {self.n:,} samples)"
        if not counts["singular"]:
            lines.append(f"no singular direction: none among the {tried} directions tried")
        lines += [f"  {c}" for c in self.of("singular")]
        lines.append(f"whole model: {self.whole}")
        if self.sampled is not None:
            doubt = "" if self.sampled.ok else f"; in doubt: {'; '.join(self.sampled.doubts)}"
            lines.append(f"  by sampling: λ = {self.sampled.mean:.4g} ± {self.sampled.stderr:.2g}{doubt}")
        if self.triple is not None:
            free = self.triple.free_energy(self.n)
            by = ", with the sampled λ" if self.triple.stderr else ""
            lines.append(f"  free energy of n = {self.n:,} samples: n S + {free:.4g} nats{by}")
        else:
            lines.append(f"  no λ at n = {self.n:,}: {self.undetermined}")
        if away := self.of("regular"):
            shares = [c.share for c in away]
            lines.append(
                f"  {len(away)} regular: the Fisher form at the checkpoint is {min(shares):.0%} to "
                f"{max(shares):.0%} of its largest on the way out"
            )
        for kind, why in EMPTY.items():
            if empty := [c for c in self.of("gauge") if c.kind == kind]:
                lines.append(f"  {len(empty)} gauge ({kind}), along which the model does not change: {why}")
        lines += [f"  {c}" for c in self.of("unclear")]
        if self.skipped:
            name, why = next(iter(self.skipped.items()))
            lines.append(f"  not measured: {len(self.skipped)} places, such as {name}: {why}")
        lines += [f"  condition {name}: {state}" for name, state in self.conditions.items()]
        lines += [f"  note: {n}" for n in self.notes]
        return one_screen([*lines, *(str(self.static).splitlines() if self.static is not None else [])])


@undisturbed
def readout(
    model: nn.Module,
    loss_fn: LossFn,
    batch: Any,
    *,
    only: Only = None,
    progress: Callable[[int, int], None] | None = None,
    units: int = 4,
    scan: Sequence[float] = SCAN,
    n: int = SAMPLES,
    chains: int | None = None,
    optimizer: object = None,
    static: bool = False,
) -> Readout:
    """Estimate the KL order of dead directions and the learning coefficient λ of one checkpoint, or give the reason why
    not.

    Args:
        model: the model; a copy of it in float64 is run, in eval mode.
        loss_fn: "ce", "mse", or one of torch's losses of that kind; it fixes the likelihood.
        batch: one batch as a data loader yields it, or a loader, whose first batch is taken; targets may be anything,
            the Fisher is the expected one. λ needs at least as many scores (examples times outputs) as parameters.
        only: names or patterns of layers, or a function of a name: directions that move one of them.
        progress: called with (directions scanned, all).
        units: candidates of each kind per pair of layers, the weakest first.
        scan: how far to go along a direction, relative to the size of the weights along it.
        n: the size of the data set that λ is for. More samples tell a checkpoint from a singular point that fewer do
            not; 10,000 by default, whatever the batch.
        chains: of the sampled coefficient (with the model itself as the truth) that λ must agree with at n, and that is
            λ where the neighbourhood stays open: a second of work, or ten. None is 4, and none above 1,000 parameters,
            where it takes minutes; 0 leaves it out, and there is a limit for n → ∞ but no λ.
        optimizer: what trained the model, for the condition that it respects the gauges.
        static: also what needs no rate and holds in any phase of training: kernels of norms, the stream's floor, values
            and outputs of attention by head, and shares of units.

    Returns:
        Every direction that was tried, λ, m and ν in the limit where the neighbourhood decides them, and for n where
        the limit is reached.

    >>> net = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))
    >>> with torch.no_grad():  # a unit that is dead both ways
    ...     _ = net[0].weight[0].zero_(), net[0].bias[0].zero_(), net[2].weight[:, 0].zero_()
    >>> found = readout(net, "mse", (torch.randn(32, 2), torch.randn(32, 1)), units=1)
    >>> len(found.of("singular")) > 0
    True
    """
    if n < 3 or (chains or 0) < 0:
        raise ValueError(
            f"n= is the number of samples and must be at least 3, and chains= must be at least 0, got {n} and {chains}"
        )
    family, task = check_task(model, loss_fn, batch)
    task = _in_eval(task)
    notes = []
    if any(p.dtype in (torch.float16, torch.bfloat16) for p in model.parameters()):
        notes.append("half precision was promoted to float64")
    wanted = set(picked([n for n, _ in model.named_modules()], only, "module"))
    directions, skipped = candidate_directions(task, "ce" if family == "categorical" else "mse", units)
    directions = [d for d in directions if any(name.rpartition(".")[0] in wanted for name in d.moves)]
    found: list[Candidate] = []
    for direction in directions:
        found.append(_scan(task, family, direction, scan, n))
        if progress is not None:
            progress(len(found), len(directions))
    near: dict[str, Tensor] = {}
    for candidate, direction in zip(found, directions):
        moves = direction.to_point
        if candidate.verdict == "singular" and not _overlap(near, moves):
            near |= {n: m + near[n] if n in near else m for n, m in moves.items()}
    if any(distance(c) > 0 for c in found):
        notes.append("λ is that of the singular point next to the checkpoint, where the dead weights are zero or equal")
    parts = {n: 3 * torch.ones_like(p) for n, p in task.model.named_parameters()}
    for candidate, direction in zip(found, directions):
        if candidate.verdict == "singular":  # whole weights: their directions may cross
            parts |= {n: (m.max() + 0 * m) for n, m in direction.parts.items() if n in parts}
    limit = _local(task, family, parts, near)
    count = sum(p.numel() for p in task.model.parameters())
    sampled, unsampled = None, "no chains sampled it beside"
    if chains is None and count > SAMPLED:
        unsampled = (
            f"there are {count:,} parameters, and sampling takes minutes above {SAMPLED:,}: ask for it with chains=4"
        )
    elif chains != 0:
        some = 4 if chains is None else chains
        sampled, unsampled = _sampled(task, family, limit, n, some, longer=not limit.resolved)
        if limit.resolved and sampled is not None and (not sampled.ok or _disagree(limit, sampled, n)):
            # beside a singular point no limit is reached, and what is said at n is what the chains say
            sampled, unsampled = _sampled(task, family, limit, n, some, longer=True)
    whole = limit
    if limit.resolved:
        why = _disagree(limit, sampled, n) if sampled is not None else unsampled
        whole = replace(limit, lam=None, m=None, nu=None, why=why) if why else limit
    return Readout(
        candidates=tuple(found),
        whole=whole,
        limit=limit,
        n=n,
        sampled=sampled,
        unsampled=unsampled,
        conditions=_conditions(found, task, family, optimizer),
        skipped=skipped,
        notes=tuple(notes),
        static=measure(model, loss_fn, next(batches_of(batch), batch)) if static else None,
    )


def _sampled(
    task: Task, family: str, limit: LocalCoefficient, n: int, chains: int, longer: bool
) -> tuple[LLC | None, str]:
    """The coefficient of the model, itself the truth, at n; or why there is none."""
    from netvitals.singular.sampling.data import ByRow
    from netvitals.singular.sampling.llc import learning_coefficient

    with torch.no_grad():
        truth = output_tensor(task.forward(), task.model)
    if len(truth) != task.examples or task.examples < 3:
        return None, "the outputs are not one for every example, of at least 3: λ cannot be sampled beside it"
    flat: Callable[[Tensor], Tensor] = lambda out: out.flatten(0, -2) if out.ndim > 1 else out[:, None]
    rows = torch.arange(len(truth), device=truth.device)
    if family == "gaussian":
        target = truth
        loss = lambda out, y: 0.5 * (flat(out) - flat(y)).square().sum(1).mean()
    else:
        target = truth.softmax(-1)
        loss = lambda out, y: F.cross_entropy(flat(out), flat(y))
    nbeta = n / math.log(n)
    # the arms of a crossing weigh in λ where there is little else, at the crossing and beside it, and where nothing
    # else decides it the chains must go around them: there a ladder of temperatures is worth its cost
    ladder = limit.parameters <= LADDER or longer
    try:
        found = learning_coefficient(
            ByRow(task, own_loss=False),
            loss,
            (rows, target),
            chains=chains,
            draws=ALONE if longer else DRAWS,
            nbeta=nbeta,
            rungs=None if ladder else 1,
        )
    except (RuntimeError, ValueError, NotImplementedError) as error:
        return None, f"λ could not be sampled beside it ({str(error).splitlines()[0]})"
    return found, ""


def _disagree(limit: LocalCoefficient, sampled: LLC, n: int) -> str:
    """Why the limit is not λ of n samples; "" where sampling agrees. There it is up to (m − 1)/log nβ below."""
    assert limit.lam is not None and limit.m is not None
    slack = AGREES * max(limit.lam, 1.0) + 3 * sampled.stderr
    low, high = limit.lam - (limit.m - 1) / math.log(sampled.nbeta) - slack, limit.lam + slack
    if low <= sampled.mean <= high:
        return ""
    how = "" if limit.singular else ", as at a regular point"
    doubt = "" if sampled.ok else " and in doubt"
    return (
        f"its limit is {limit.lam:g}{how}, and for n = {n:,} samples it is {sampled.mean:.4g} ± {sampled.stderr:.2g} "
        f"by sampling{doubt}: the limit is not reached"
    )


def _overlap(near: Mapping[str, Tensor], moves: Mapping[str, Tensor]) -> bool:
    return any(bool(((near[n] != 0) & (m != 0)).any()) for n, m in moves.items() if n in near)


def _local(task: Task, family: str, parts: Mapping[str, Tensor], to_point: Mapping[str, Tensor]) -> LocalCoefficient:
    """λ, m and ν of the masked parameters at the checkpoint moved to a singular point, all others held there."""
    if to_point:
        twin = in_double(task)
        known = dict(twin.model.named_parameters(remove_duplicate=False))
        with torch.no_grad():
            for name, move in to_point.items():
                known[name].add_(move)
        task = twin
    outputs, theta, mask = along_task(task, parts)
    free = mask.nonzero()[:, 0]
    block, start, sides = lambda part: outputs(theta.index_copy(0, free, part)), theta[free], mask[free]
    if not bool(start.any()) and bool((sides <= 2).all()):
        return product_crossing(block, start, sides == 1, family)
    return local_coefficient(block, start, family, sides=(sides == 1, sides == 2) if bool((sides < 3).any()) else None)


@undisturbed
def spectrum_along(
    model: nn.Module, loss_fn: LossFn, batch: Any, *, candidate: Candidate, examples: int = 200
) -> Classified:
    """The Fisher spectrum of the parameters that a candidate moves, along its scan, by class.

    Of a unit these are its incoming row and outgoing column, not all the weights of their layers, among whose
    eigenvalues those of one unit would hide. At most 2,000 are followed.

    Args:
        model: the model; a copy of it in float64 is run, in eval mode.
        loss_fn: "ce", "mse", or one of torch's losses of that kind.
        batch: one batch as a data loader yields it; a target is not used.
        candidate: one of a readout's.
        examples: the first of the batch, at most so many.

    Returns:
        Eigenvalues by class.

    >>> net = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))
    >>> batch = torch.randn(32, 2), torch.randn(32, 1)
    >>> candidate = readout(net, "mse", batch, units=1).candidates[0]
    >>> len(spectrum_along(net, "mse", batch, candidate=candidate).directions) > 0
    True
    """
    family, task = check_task(model, loss_fn, batch)
    task = _in_eval(task)
    all_of_them, first = task.examples, lambda t: t[:examples] if t.ndim and len(t) == all_of_them else t
    task = replace(task, args=mapped(task.args, first), kwargs=mapped(dict(task.kwargs), first))
    outputs, theta, v = along_task(task, candidate.direction)
    free = v.nonzero()[:, 0]
    if len(free) > DENSE_LIMIT:
        raise ValueError(
            f"eigenvalues are computed for at most {DENSE_LIMIT} parameters, but this direction moves {len(free)}: "
            "choose a direction in fewer parameters"
        )
    return classify_spectrum(
        lambda part: outputs(theta.index_copy(0, free, part)),
        theta[free],
        v[free],
        candidate.scan.ts.tolist(),
        likelihood=family,
    )


def check_task(model: nn.Module, loss_fn: LossFn, batch: Any) -> tuple[str, Task]:
    """The likelihood's name and the ``batch`` of ``model`` taken apart; a sentence for a ``loss_fn`` or a batch that a
    readout cannot use.
    """
    task = inputs_of(model, next(batches_of(batch), batch))
    kind = likelihood_of(loss_fn, task.targets[0] if task.targets else None)
    if not task.examples:
        raise ValueError("the batch is empty: give at least one example")
    check_finite((task.args, dict(task.kwargs)), "the batch")
    return {"ce": "categorical", "mse": "gaussian"}[kind], task


def _in_eval(task: Task) -> Task:
    twin = in_double(task)
    twin.model.eval()
    return twin


def _scan(task: Task, family: str, direction: Direction, scan: Sequence[float], n: int) -> Candidate:
    outputs, theta, v = along_task(task, direction.moves)
    size = max(direction.size or max(float((theta * v / v.norm()).norm()), 1e-2 * float(theta.norm())), 1e-3)
    result = kl_order(outputs, theta, v, family, ts=[s * size for s in scan], shift=True)
    verdict = verdict_of(result)
    most = {"unclear": NEARBY, "singular": ON_THE_SET}.get(verdict)
    if most is not None and result.fisher[0] >= most * result.fisher.max() > 0:
        verdict = "regular"  # the form does not vanish here: an exponent further out says nothing of this point
    own, nats = None, 0.0
    if verdict == "singular":
        back = -_shift(result) * v / v.norm()
        to = direction.to_point
        nats = n * (_way(task, family, to) if to else _kl(outputs, theta, back, family))
        if nats > TOLD_APART:
            verdict = "regular"
    if verdict == "singular" and direction.parts:
        own = _local(task, family, direction.parts, direction.to_point)
        if own.resolved and not own.singular:
            verdict = "gauge"  # the ray leaves the fibre at second order, and other weights take it back
    return Candidate(
        name=direction.name,
        kind=direction.kind,
        verdict=verdict,
        scan=result,
        own=own,
        nats=nats,
        direction=direction.moves,
    )


def _kl(outputs: Outputs, theta: Tensor, move: Tensor, family: str) -> float:
    """K from the model at ``theta`` to the one a move away."""
    with torch.no_grad():
        return float(likelihoods.get(family).kl(outputs(theta), outputs(theta + move)))


def _way(task: Task, family: str, moves: Mapping[str, Tensor]) -> float:
    outputs, theta, move = along_task(task, moves)
    return _kl(outputs, theta, move, family)


def _conditions(found: list[Candidate], task: Task, family: str, optimizer: object) -> dict[str, str]:
    """The five conditions under which rates along a trajectory are those of the theory (§12)."""
    states = (
        _aligned(found),
        _equivariant(optimizer),
        _noise(task, family),
        _window([c for c in found if c.verdict in ("singular", "unclear")]),
        f"holds: {found[0].scan.estimator}" if found else "not checked: no candidate direction",
    )
    return dict(zip(CONDITIONS, states))


def _aligned(found: list[Candidate]) -> str:
    singular = [c for c in found if c.verdict == "singular"]
    turned = [c for c in singular if c.kind not in ("joint mode", "norm kernel")]
    if turned and len(turned) == len(singular):
        return f"fails: {turned[0].name} is no unit but a mixture of them, so that rates by layer are mixed too"
    return "holds for the joint modes called singular" if singular else "not checked: no singular direction"


def _equivariant(optimizer: object) -> str:
    """Optimisers that are given gauges respect them; all others know the place on the orbit."""
    if optimizer is None:
        return "not checked: a checkpoint does not contain its optimizer; give optimizer="
    gauges, name = getattr(optimizer, "gauges", None), type(optimizer).__name__
    if gauges:
        return f"holds for the {len(gauges)} gauges of {name}"
    return f"fails: {name} steps differently at another place of the same orbit (Remark 80)"


def _noise(task: Task, family: str) -> str:
    """Whether the residual is of order one, or falls with the dead direction."""
    target = task.targets[0] if task.targets else None
    with torch.no_grad():
        out = output_tensor(task.forward(), task.model)
    if not isinstance(target, Tensor):
        return "not checked: the batch has no targets, and without noise the rates of G are 2L higher"
    if family == "categorical":
        out = out.softmax(-1)
        wanted = out.shape[:-1]
        if target.shape == wanted and not target.is_floating_point():
            keep = target.flatten() >= 0
            out = out.flatten(0, -2)[keep]
            target = F.one_hot(target.flatten()[keep], out.shape[-1])
    if target.shape != out.shape or not out.numel():
        return "not checked: the targets have a different shape from the outputs"
    target = target.to(out)
    size = (target - target.mean(0)).square().mean()
    share = float((out - target).square().mean() / size) if size > 0 else math.inf
    if share < NOISE_FREE:
        return f"fails: noise-free, the residual is {share:.1g} of the targets' variance: rates of G are 2L higher"
    return f"holds: the residual is {share:.2g} of the targets' variance"


def _window(found: list[Candidate]) -> str:
    """Whether local slopes have settled, and the Fisher form is above its noise floor (Remark 11)."""
    if not found:
        return "not checked: no direction could be scanned"
    if sunk := [c for c in found if noise_margin(c) < MARGIN]:
        worst = min(sunk, key=noise_margin)
        return (
            f"fails: {len(sunk)} scans begin at the noise floor, {worst.name} at {noise_margin(worst):.1g} times it: "
            "begin further out with scan="
        )
    if drifting := [c for c in found if c.scan.fisher_fit.flags]:
        return f"fails: {len(drifting)} scans have drifting local slopes"
    return f"holds: scans begin {min(map(noise_margin, found)):.1g} times above the noise floor or more"


def noise_margin(candidate: Candidate) -> float:
    """The Fisher form where a ``candidate``'s scan begins, over what rounding makes of its largest (Remark 11)."""
    peak = float(candidate.scan.fisher.max())
    return float(candidate.scan.fisher[0]) / (ROUNDING**2 * peak) if peak > 0 else 0.0


def distance(candidate: Candidate) -> float:
    """How far the checkpoint sits from the singular set along a ``candidate``: the shift; NaN if not singular."""
    return _shift(candidate.scan) if candidate.verdict == "singular" else math.nan


def _shift(scan: KLOrder) -> float:
    """The fitted shift; one far below the first place of the scan is zero."""
    shift = scan.fisher_fit.shift
    return shift if shift > 1e-3 * float(scan.ts[0]) else 0.0
