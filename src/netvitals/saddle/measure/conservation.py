r"""What gradient flow conserves in a real network: pairs of layers, attention, gated MLPs, norms, forks, streams.

A layer that writes $z = Wu + b$ has $\langle W, g_W\rangle + \langle b, g_b\rangle = \sum\langle z, \delta_z\rangle$,
one that reads $u$ has $\langle W, g_W\rangle = \sum\langle u, \delta_u\rangle$. Where the readers' inputs are a
function of the writers' outputs that is homogeneous of degree one (Euler), both sums agree, and with $\dot W = -g$

$$\Delta = \sum_{readers}\lVert W\rVert^2 - \sum_{writers}\big(\lVert W\rVert^2 + \lVert b\rVert^2\big),\qquad
  \dot\Delta = 0.$$

Attention scores are bilinear in queries and keys, so $\lVert Q\rVert^2-\lVert K\rVert^2$ (with biases) stays; its
output is linear in the values, so O minus V stays; a gated MLP is linear in its value branch; a norm writes
$\gamma\hat x+\beta$. Every law is checked on the network at hand: its rate must vanish against the terms that cancel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from netvitals.anatomy import Anatomy, ParameterPart, Projection, chart, find_links, why_not_alone
from netvitals.capture import LossFn, Mode, Result, in_double, in_mode, preserved, skipped_lines, task_of
from netvitals.saddle.measure.pairs import imbalance_of

Kind = Literal["pair", "query–key", "value–output", "gated", "norm", "fork", "stream"]
SHOWN = 32
RATE = "saddle.imbalance has what moves it"


@dataclass(frozen=True, kw_only=True)
class Law(Result):
    """One Δ: which parts of parameters enter with + (readers) and − (writers)."""

    name: str
    kind: Kind
    plus: tuple[ParameterPart, ...]
    minus: tuple[ParameterPart, ...]
    delta: float = 0.0
    rate: float = 0.0  # dΔ/dt under gradient flow
    scale: float = 0.0  # size of the terms that cancel in it

    @property
    def defect(self) -> float:
        """|dΔ/dt| over the terms that cancel in it: 0 for a law that holds."""
        return abs(self.rate) / self.scale if self.scale else abs(self.rate)

    def value(self, parameters: Mapping[str, Tensor]) -> Tensor:
        """Δ of these parameters, by name: follow it through training."""
        parts = (*self.plus, *self.minus)
        terms = {i: 1.0 if i < len(self.plus) else -1.0 for i in range(len(parts))}
        square = lambda i: parts[i].of(parameters[parts[i].parameter]).detach().double().square().sum()
        return torch.as_tensor(imbalance_of(terms, square))

    def __str__(self) -> str:
        return f"{self.name} ({self.kind}): Δ = {self.delta:.6g}, dΔ/dt = {self.rate:.1e}, defect {self.defect:.1e}"


@dataclass(frozen=True, kw_only=True)
class ConservationLaws(Result):
    """The laws that hold on a network, and those that were tried and why they do not.

    Returned by :func:`conserved`.

    Attributes:
        laws: quantities that gradient flow conserves here, each with its value and drift.
        skipped: law that was tried → why it does not hold.
    """

    laws: tuple[Law, ...]
    skipped: Mapping[str, str] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Law:
        found = next((law for law in self.laws if law.name == name), None)
        if found is None:
            raise KeyError(
                f"there is no conserved quantity {name!r}; there are {', '.join(law.name for law in self.laws)}"
            )
        return found

    def rows(self) -> list[dict[str, Any]]:
        """One row a law."""
        return [
            {"law": w.name, "kind": w.kind, "delta": w.delta, "rate": w.rate, "scale": w.scale, "defect": w.defect}
            for w in self.laws
        ]

    def __str__(self) -> str:
        more = [f"… and {len(self.laws) - SHOWN} more"] * (len(self.laws) > SHOWN)
        return "\n".join([*map(str, self.laws[:SHOWN]), *more, *skipped_lines(self.skipped)])


def conserved(
    model: nn.Module,
    loss_fn: LossFn,
    batch: Any,
    *,
    mode: Mode = "as_is",
    seed: int = 0,
    precise: bool = False,
    anatomy: Anatomy | None = None,
) -> ConservationLaws:
    """Find the quantities that gradient flow conserves in a network, and check each of them on a batch.

    The imbalance of two layers with an activation between them is not conserved; :func:`imbalance` gives its exact rate
    of change.

    Args:
        model: any module; it is not changed.
        loss_fn: a function of (output, target), its name, or None if the model's output contains its own loss.
        batch: one batch as a data loader yields it.
        mode: ``"as_is"``, ``"train"`` or ``"eval"``.
        seed: seed of the random numbers that the model draws.
        precise: check on a float64 copy of the model.
        anatomy: the result of ``anatomy.chart`` for this model; computed if left out.

    Returns:
        The quantities that are conserved up to rounding, with value and rate; the others are in ``skipped`` with the
        reason.

    >>> _ = torch.manual_seed(0)
    >>> layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True).double()
    >>> found = conserved(layer, lambda o, y: o.square().mean(), (torch.randn(3, 5, 8).double(), None))
    >>> [law.name for law in found.laws if law.kind in ("query–key", "value–output")][0]
    'self_attn Q − K'
    """
    task = task_of(model, loss_fn, batch)
    if precise:
        task = in_double(task)
    model = task.model
    named = dict(model.named_parameters(remove_duplicate=False))
    frozen = {name for name, p in named.items() if not p.requires_grad}
    with preserved(model), in_mode(model, mode), torch.enable_grad():
        torch.manual_seed(seed)
        anatomy = chart(model, task.inputs) if anatomy is None else anatomy
        for p in model.parameters():
            p.requires_grad_(p.is_floating_point())
        loss = task.loss(task.forward())
        leaves = [p for p in model.parameters() if p.requires_grad]
        found = torch.autograd.grad(loss, leaves, allow_unused=True)
        of = {id(p): g for p, g in zip(leaves, found)}
        grads = {name: of.get(id(p)) for name, p in named.items()}
        values = {name: p.detach() for name, p in named.items()}
    shared = {
        part
        for layer in anatomy.layers
        if why_not_alone(layer, anatomy) and not layer.part.index
        for part in (layer.weight, layer.bias)
    } - {""}
    links = find_links(anatomy)
    between = {_pair(link.first, link.second): ", ".join(link.between) or "nothing" for link in links.links}
    laws, tried, skipped = [], set[str](), {}
    exact = 1e-9 if next(iter(values.values())).dtype == torch.float64 else 1e-4
    for law in candidate_laws(anatomy):
        tried |= {part.parameter for part in (*law.plus, *law.minus)}
        why = _unfit(law, values, grads, frozen, shared)
        measured = law if why else _measured(law, values, grads)
        if not why and not measured.defect <= exact:
            cause = "norms forget its scale only up to their eps" if not law.plus else "something else reads or writes"
            if law.kind == "pair":
                cause = f"what lies between ({between[law.name]}) is not homogeneous of degree one; " + RATE
            why = f"Δ moves (by {measured.defect:.1e} of the terms that should cancel): {cause}"
        if why:
            skipped[law.name] = why
        else:
            laws.append(measured)
    for layer in anatomy.layers:
        if layer.weight not in tried:
            skipped[layer.name] = links.skipped.get(layer.name, "no other layer is connected to it")
    return ConservationLaws(laws=tuple(laws), skipped=skipped)


def candidate_laws(anatomy: Anatomy) -> Iterator[Law]:
    """Every law that the anatomy suggests, before it is checked."""
    layers = {layer.name: layer for layer in anatomy.layers}
    bias = lambda name: (ParameterPart(parameter=name),) if name else ()
    for link in find_links(anatomy).links:
        a, b = layers[link.first], layers[link.second]
        yield Law(name=_pair(a.name, b.name), kind="pair", plus=(b.part,), minus=(a.part, *bias(a.bias)))
    for heads in anatomy.heads:
        if heads.q is not None and heads.k is not None and not heads.qk_norm:
            yield Law(name=f"{heads.name} Q − K", kind="query–key", plus=_whole(heads.q), minus=_whole(heads.k))
        if heads.v is not None and heads.o is not None:
            yield Law(name=f"{heads.name} O − V", kind="value–output", plus=(heads.o.weight,), minus=_whole(heads.v))
    for gated in anatomy.gated:
        plus = tuple(out.weight for out in gated.out)
        yield Law(name=f"{gated.name} out − value", kind="gated", plus=plus, minus=_whole(gated.value))
    norms = {norm.name: norm for norm in anatomy.norms}
    for reading in anatomy.norm_readers:
        norm = norms[reading.writer]
        if norm.weight and reading.readers and not reading.blocked:
            plus = tuple(layers[n].part for n in reading.readers)
            minus = (ParameterPart(parameter=norm.weight), *bias(norm.bias))
            yield Law(name=f"readers of {norm.name}", kind="norm", plus=plus, minus=minus)
    for connection in anatomy.connections:
        if connection.clean and len(connection.readers) > 1:
            writer = layers[connection.writer]
            plus = tuple(layers[n].part for n in connection.readers)
            yield Law(name=f"readers of {writer.name}", kind="fork", plus=plus, minus=(writer.part, *bias(writer.bias)))
    for stream in anatomy.streams:
        writers = [layers[n] for n in (*stream.origin_writers, *stream.writers) if n in layers]
        readers = [layers[n] for n in stream.readers if n in layers]
        minus = tuple(part for w in dict.fromkeys(writers) for part in (w.part, *bias(w.bias)))
        if minus:
            plus = tuple(dict.fromkeys(r.part for r in readers))
            yield Law(name=f"stream of width {stream.width}", kind="stream", plus=plus, minus=minus)


def _pair(first: str, second: str) -> str:
    return f"{first} → {second}"


def _whole(projection: Projection) -> tuple[ParameterPart, ...]:
    return (projection.weight,) if projection.bias is None else (projection.weight, projection.bias)


def _unfit(
    law: Law,
    values: Mapping[str, Tensor],
    grads: Mapping[str, Tensor | None],
    frozen: set[str],
    shared: set[str],
) -> str:
    """Why a law cannot hold, whatever the numbers are; empty where it can."""
    names = [p.parameter for p in (*law.plus, *law.minus)]
    if lost := [n for n in names if n not in values]:
        return f"{', '.join(lost)} is computed from other parameters"
    if still := [n for n in dict.fromkeys(names) if n in frozen]:
        return f"{', '.join(still)} is frozen"
    if twice := [n for n in dict.fromkeys(names) if n in shared]:
        return f"{', '.join(twice)} is used more than once"
    if idle := [n for n in dict.fromkeys(names) if grads[n] is None]:
        return f"{', '.join(idle)} does not reach the loss"
    return ""


def _measured(law: Law, values: Mapping[str, Tensor], grads: Mapping[str, Tensor | None]) -> Law:
    def terms(parts: tuple[ParameterPart, ...]) -> list[Tensor]:
        return [
            p.of(values[p.parameter]).double() * p.of(g).double()
            for p in parts
            if (g := grads[p.parameter]) is not None
        ]

    up, down = terms(law.plus), terms(law.minus)
    rate = 2 * (sum(float(t.sum()) for t in down) - sum(float(t.sum()) for t in up))
    scale = 2 * max((float(t.abs().sum()) for t in up + down), default=0.0)
    return replace(law, delta=float(law.value(values)), rate=rate, scale=scale)
