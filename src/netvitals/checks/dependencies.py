"""What an output depends on, found by changing the input: other examples, later tokens, their order, padding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from netvitals.anatomy import preserved

EQUAL = 1e-5  # of the largest output: differences below are rounding
SHIFTED = 0.9  # share of labels that are the next token
PADDED = 0.1  # of the spread between examples: an output that padding moves by more depends on it
DROPS = ("bernoulli", "native_dropout")


def dependencies(
    model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], labels: Tensor | None
) -> dict[str, Any]:
    """Run ``model`` a few times on changed copies of one batch, in eval mode; ``labels`` are class labels, if any.

    Returns one entry for each question that could be asked: whether it fails (True, or evidence), or why it could not
    be asked.
    """
    with preserved(model, train=False), torch.no_grad():
        return _Passes(model, args, kwargs).answers(labels)


class _Passes:
    """One batch, and passes of a model over changed copies of it."""

    def __init__(self, model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self.model, self.args, self.kwargs = model, args, dict(kwargs)
        self.slots: dict[Any, Tensor] = {  # place of a tensor argument → the tensor
            **{i: a for i, a in enumerate(args) if isinstance(a, Tensor)},
            **{k: v for k, v in kwargs.items() if isinstance(v, Tensor)},
        }

    def run(self, changes: Mapping[Any, Tensor] | None = None) -> Tensor | None:
        """The output, with some tensor arguments replaced."""
        changes = changes or {}
        args = tuple(changes.get(i, a) for i, a in enumerate(self.args))
        return output_of(self.model(*args, **{k: changes.get(k, v) for k, v in self.kwargs.items()}))

    def answers(self, labels: Tensor | None) -> dict[str, Any]:
        base = self.run()
        if base is None:
            return {}
        with _Operations() as operations:
            again = self.run()
        dropped = bool(operations.names & set(DROPS))
        if again is None or not _same(base, again):
            own = any(isinstance(m, nn.modules.dropout._DropoutNd) for m in self.model.modules())
            why = {"why": "two passes on the same batch differ"}
            return why | ({"dropout in eval mode": {"beside": own}} if dropped else {})
        out: dict[str, Any] = {"dropout in eval mode": False}
        out |= self._copies(labels, base)
        tokens = next_token_input(self.args, labels)
        if tokens is not None:
            out |= self._tokens(*tokens, base)
        elif (ids := self._ids()) is not None:
            out |= self._order(ids, base)
        n = len(base) if base.ndim else 0
        if n >= 4 and self._rows(n):
            out |= self._examples(n, base)
            out |= self._inputs(n, base)
        if (ids := self._ids()) is not None and len(self.slots[ids]) == n:
            out |= self._padding(ids, base)
        return out

    def _rows(self, n: int) -> bool:
        """Whether every tensor argument has one row for each of ``n`` examples, and none is the matrix of a graph."""
        return bool(self.slots) and all(
            x.ndim and len(x) == n and x.shape[:2] != (n, n) and (x.ndim > 1 or len(self.slots) == 1)
            for x in self.slots.values()
        )

    def _examples(self, n: int, base: Tensor) -> dict[str, Any]:
        """Does the output of an example change with the others? A table of each example with each other is left out."""
        if base.shape[:2] == (n, n):
            return {}
        half = n // 2
        mixed = []
        for kept, changes in (
            (
                slice(half),
                {k: torch.cat([x[:half], x[:1].expand(n - half, *x.shape[1:])]) for k, x in self.slots.items()},
            ),
            (
                slice(half, None),
                {k: torch.cat([x[-1:].expand(half, *x.shape[1:]), x[half:]]) for k, x in self.slots.items()},
            ),
        ):
            if all(torch.equal(changes[k], x) for k, x in self.slots.items()):
                return {}
            other = self.run(changes)
            mixed.append(other is None or len(other) != n or not _same(base[kept], other[kept]))
        return {"examples mixed": any(mixed)}

    def _inputs(self, n: int, base: Tensor) -> dict[str, Any]:
        """Does each input that differs between examples matter?"""
        out: dict[str, Any] = {}
        for key, x in self.slots.items():
            if not x.is_floating_point() or bool((x == x[:1]).all()):
                continue
            out.setdefault("input ignored", False)
            other = self.run({key: x.roll(1, 0)})
            if other is not None and torch.equal(other, base) and float(base.std()) > 0:
                out["input ignored"] = {"argument": key, "of": len(self.slots)}
        return out

    def _copies(self, labels: Tensor | None, base: Tensor) -> dict[str, Any]:
        """Where an argument holds the labels: does the prediction at a place depend on its own label?"""
        for key, x in self.slots.items():
            if labels is None or x.ndim != 2 or x.is_floating_point() or labels.numel() != x.numel():
                continue
            if float((labels.reshape(x.shape) == x).float().mean()) < SHIFTED or base.numel() % x.numel():
                continue
            last = x.clone()
            last[:, -1] = torch.where(x[:, -1] == x.max(), x.min(), x.max())
            other = self.run({key: last})
            if other is not None and other.shape == base.shape and not torch.equal(last, x):
                mine, theirs = (t.reshape(*x.shape, -1)[:, -1] for t in (base, other))
                return {"label is input": not _same(mine, theirs)}
        return {}

    def _ids(self) -> Any:
        """The argument that holds token ids, if there is just one."""
        places = [k for k, x in self.slots.items() if not x.is_floating_point() and x.dtype != torch.bool]
        places = [k for k in places if self.slots[k].ndim == 2 and self.slots[k].shape[1] >= 4]
        return places[0] if len(places) == 1 else None

    def _padding(self, ids: Any, base: Tensor) -> dict[str, Any]:
        """Do more padding columns change the output of an example?"""
        x = self.slots[ids]
        pad = int(x[:, -1].mode().values)
        ends = (x == pad).flip(1).cumprod(1).flip(1).bool()
        lengths = x.shape[1] - ends.sum(1)
        short = int(lengths.float().median())
        rows = lengths <= short
        if bool((x == pad)[~ends].any()) or not 2 <= short <= x.shape[1] - 2 or int(rows.sum()) < 4:
            return {}
        if any(len(s) != len(x) for s in self.slots.values()):
            return {}
        cropped = {k: s[rows][:, :short] if s.shape[:2] == x.shape else s[rows] for k, s in self.slots.items()}
        try:
            other = self.run(cropped)
        except Exception:  # a model of a fixed length
            return {}
        if other is None:
            return {}
        mine = base[rows]
        if mine.ndim >= 3 and mine.shape[1] == x.shape[1]:
            words = ~ends[rows][:, :short]
            mine, other = mine[:, :short][words], other[words] if other.shape[:2] == words.shape else other
        if mine.shape != other.shape or len(mine) < 2:
            return {}
        spread = float(mine.std(0).mean())
        moved = float((mine - other).abs().mean())
        recurrent = any(isinstance(m, nn.RNNBase) for m in self.model.modules())
        attends = any(isinstance(m, nn.MultiheadAttention) for m in self.model.modules())
        found = {"moved": moved / spread, "recurrent": recurrent} if spread > 0 and moved > PADDED * spread else False
        return {"padding changes the output": found} if recurrent or attends else {}

    def _order(self, ids: Any, base: Tensor) -> dict[str, Any]:
        """A model with attention and position encodings: does the order of the tokens between the ends matter?"""
        if not any(isinstance(m, nn.MultiheadAttention) for m in self.model.modules()):
            return {}
        stated = [
            n for n, _ in (*self.model.named_parameters(), *self.model.named_buffers(), *self.model.named_modules())
        ]
        if not any(word in f".{n.lower()}" for n in stated for word in (".pos", "_pos", ".pe.", ".wpe", "positional")):
            return {}
        x = self.slots[ids]
        turned = torch.cat([x[:, :1], x[:, 1:-1].flip(1), x[:, -1:]], 1)
        if torch.equal(turned, x):
            return {}
        other = self.run({ids: turned})
        if other is None or other.shape != base.shape:
            return {}
        if base.ndim >= 3 and base.shape[1] == x.shape[1]:
            base, other = base[:, [0, -1]], other[:, [0, -1]]
        return {"order ignored": _same(base, other)}

    def _tokens(self, at: int, x: Tensor, base: Tensor) -> dict[str, Any]:
        rows, length = x.shape[:2]
        if base.shape[:2] != (rows, length):
            if base.ndim == 2 and len(base) == rows * length:
                base = base.reshape(rows, length, -1)
            else:
                return {}

        def run(tokens: Tensor) -> Tensor | None:
            other = self.run({at: tokens})
            return None if other is None else other.reshape(base.shape)

        out: dict[str, Any] = {}
        later = x.clone()
        later[:, -1] = torch.where(later[:, -1] == x.max(), x.min(), x.max())  # another token, or a number far off
        if not torch.equal(later, x):
            other = run(later)
            out["future leak"] = other is not None and not _same(base[:, :-1], other[:, :-1])
        order = x.clone()
        order[:, :-1] = x[:, :-1].flip(1)
        if not torch.equal(order, x):
            other = run(order)
            out["order ignored"] = other is not None and _same(base[:, -1], other[:, -1])
        return out


class _Operations(TorchDispatchMode):
    """Names of the operations that run inside."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(func._schema.name.rpartition("::")[2].rstrip("_"))
        return func(*args, **(kwargs or {}))


def next_token_input(args: tuple[Any, ...], labels: Tensor | None) -> tuple[int, Tensor] | None:
    """Which argument holds the tokens whose next ones are the labels."""
    if labels is None:
        return None
    for i, x in enumerate(args):
        if isinstance(x, Tensor) and x.ndim in (2, 3) and x.shape[1] >= 4:
            for y in _aligned(labels, x):
                following, now = x[:, 1 : y.shape[1]], y[:, :-1]
                told = following != following.reshape(-1, *following.shape[2:]).mode(0).values  # padding says nothing
                if bool(told.any()) and float((now == following)[told].float().mean()) > SHIFTED:
                    return i, x
    return None


def _aligned(labels: Tensor, x: Tensor) -> list[Tensor]:
    if labels.numel() == x.numel():
        return [labels.reshape(x.shape)]
    if labels.numel() == x[:, 1:].numel():
        shifted = labels.reshape(x[:, 1:].shape)
        return [shifted] if not torch.equal(shifted, x[:, :-1]) else []
    return []


def output_of(value: Any) -> Tensor | None:
    """The first floating tensor of an output."""
    if isinstance(value, Tensor):
        return value.float() if value.is_floating_point() else None
    if isinstance(value, Mapping):
        if isinstance(value.get("logits"), Tensor):
            return value["logits"].float()
        value = list(value.values())
    if isinstance(value, list | tuple):
        return next((t for v in value if (t := output_of(v)) is not None), None)
    return output_of(value.logits) if isinstance(getattr(value, "logits", None), Tensor) else None


def _same(a: Tensor, b: Tensor) -> bool:
    """Equal within rounding; −∞ is what masks write."""
    if a.shape != b.shape or bool(a.isnan().any()) or not torch.equal(a.isinf(), b.isinf()):
        return False
    a, b = a[~a.isinf()], b[~b.isinf()]
    return not a.numel() or float((a - b).abs().max()) <= EQUAL * float(a.abs().max())
