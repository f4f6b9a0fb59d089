r"""DDC: a preconditioned optimiser made to respect gauges (dead-directions §4.9, extended to gauges that overlap).

Every parameter is $W = e^{\psi}\tilde W$ with $\tilde W$ on the balanced network of its orbit (``optim.balance``). The
gradient in balanced coordinates, $e^{\psi} g$, does not change along the orbit; a base preconditioner turns it into a
direction u, and the weights move by $\eta\, e^{\psi} u$: a rescaled network stays the rescaled network, and where the
network is balanced the step is the base's own. What moved along the orbit is undone every tenth step, which leaves the
function as it is, or it has a rate of its own; and so may the part that lengthens a block, the radial one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from netvitals.optim.balance import Balance
from netvitals.optim.gauges import Gauge, Rescale, Shift
from netvitals.optim.precondition import AdamBase, Preconditioner

VERTICAL = ("frozen", "sgd", "base")
_CLAMP = 0.5  # largest move of a log norm along the orbit in one step; an un-normalised 'sgd' step can diverge
_EVERY = 10  # steps between corrections of the balance


class DDC(Optimizer):
    """A base preconditioner made equivariant.

    Args:
        params: parameters or groups, as for any torch optimiser; a gauge may reach over several groups.
        gauges: specs from :mod:`netvitals.optim` (``relu_rescale``, ``ln_scale``, …, or
            ``find_gauges(model, loss_fn, batch).gauges``); they may share parameters.
        base: the preconditioner (``AdamBase()``, ``RMSBase()``, ``SignBase()``, or your own ``descent``).
        lr: learning rate, that of the base optimiser on a balanced network.
        betas: decay of the running means of gradients and of their squares, as in AdamW.
        eps: added to the root of the squares, as in AdamW.
        weight_decay: as in AdamW, decoupled.
        vertical: how to move along the orbit itself: "frozen", "sgd" or "base" (which normalises round-off when the
            loss is exactly invariant).
        lr_vertical: its learning rate; default ``lr``. A schedule of ``lr`` changes it in proportion.
        lr_radial: learning rate of the part that lengthens or shortens a gauge's blocks; default ``lr``. A schedule of
            ``lr`` changes it in proportion.
        reproject: take the orbit's direction out of the preconditioned step. The paper omits it for shifts, which
            leaves the base optimiser there (erratum E10); False gives that printed version.
        maximize: go uphill.

    >>> from netvitals.optim import SignBase
    >>> net = torch.nn.Linear(3, 1)
    >>> opt = DDC(net.parameters(), gauges=[], base=SignBase(), lr=1e-2)
    >>> loss = net(torch.ones(8, 3)).square().mean()
    >>> loss.backward(); opt.step()
    >>> bool(net(torch.ones(8, 3)).square().mean() < loss)
    True
    """

    def __init__(
        self,
        params: Iterable[Any],
        gauges: Sequence[Gauge],
        base: Preconditioner,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        vertical: str = "frozen",
        lr_vertical: float | None = None,
        lr_radial: float | None = None,
        reproject: bool = True,
        maximize: bool = False,
        **more: Any,
    ) -> None:
        name = type(self).__name__
        rates = (lr, weight_decay, *(r for r in (lr_vertical, lr_radial) if r is not None))
        if not (all(r >= 0 for r in rates) and eps > 0 and len(betas) == 2 and all(0 <= b < 1 for b in betas)):
            raise ValueError(
                f"{name} needs lr, lr_vertical, lr_radial and weight_decay ≥ 0, eps > 0 and two betas in [0, 1), got "
                f"lr={lr}, lr_vertical={lr_vertical}, lr_radial={lr_radial}, weight_decay={weight_decay}, eps={eps}, "
                f"betas={betas}"
            )
        if vertical not in self.verticals:
            raise ValueError(f"vertical is one of {', '.join(self.verticals)}, got {vertical!r}")
        if isinstance(base, type) or not callable(getattr(base, "descent", None)):
            raise TypeError(
                f"a base preconditioner has a method descent(value, state, group), got "
                f"{base.__name__ + ' itself, not one of it' if isinstance(base, type) else base!r}"
            )
        if wrong := [g for g in gauges if not isinstance(g, Shift | Rescale)]:
            raise TypeError(
                f"gauges come from find_gauges or the specs of netvitals.optim, got {type(wrong[0]).__name__}"
            )
        defaults = {
            "lr": lr,
            "betas": tuple(betas),
            "eps": eps,
            "weight_decay": weight_decay,
            "vertical": vertical,
            "lr_vertical": lr_vertical,
            "lr_radial": lr_radial,
            "reproject": reproject,
            "maximize": maximize,
            **more,
        }
        super().__init__(params, defaults)
        self.base = base
        self.gauges = list(gauges)
        self._assign()

    @property
    def verticals(self) -> tuple[str, ...]:
        return VERTICAL

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        for name in ("lr_vertical", "lr_radial"):  # kept as a share of lr, so that it follows a schedule
            rate = group[name]
            group[f"{name}_share"] = 1.0 if rate is None or not group["lr"] else float(rate / group["lr"])
        if "gauges" in self.__dict__:  # after construction: the new parameters take part from the next step
            self._assign()

    def _assign(self) -> None:
        """Looked up on every step, so made once: the group of each parameter, and gauges that hang together."""
        self._group: dict[Tensor, dict[str, Any]] = {p: g for g in self.param_groups for p in g["params"]}
        self._rooms: dict[tuple[Any, ...], Tensor] = {}
        shifts: dict[Tensor, Shift] = {}
        clusters: list[tuple[list[Gauge], set[Tensor]]] = []
        for gauge in self.gauges:
            gauge.check()
            if any(p not in self._group for p in gauge.params):
                raise ValueError(f"gauge {gauge.name!r} covers a parameter this optimiser was not given")
            if isinstance(gauge, Shift):
                shifts[gauge.param] = gauge
            joined: tuple[list[Gauge], set[Tensor]] = ([], set(gauge.params))
            for other in [c for c in clusters if c[1] & joined[1]]:
                clusters.remove(other)
                joined[0].extend(other[0])
                joined[1].update(other[1])
            joined[0].append(gauge)
            clusters.append(joined)
        self._clusters = [
            (Balance([g for g in gauges if isinstance(g, Rescale)], shifts), list(dict.fromkeys(_params(gauges))))
            for gauges, _ in clusters
        ]
        covered = {p for _, params in self._clusters for p in params}
        self._free = [[p for p in g["params"] if p not in covered] for g in self.param_groups]

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "base": self.base, "gauges": self.gauges}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "gauges" in self.__dict__:  # a copy, a pickle, or a loaded state with groups of its own
            self._assign()

    def state_dict(self) -> dict[str, Any]:
        out = super().state_dict()
        out["gauges"] = [str(g) for g in self.gauges]
        return out

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        state_dict = dict(state_dict)
        theirs, ours = state_dict.pop("gauges", []), [str(g) for g in self.gauges]
        if theirs != ours:
            raise ValueError(f"this state belongs to other gauges: it was saved with {theirs}, this one has {ours}")
        super().load_state_dict(state_dict)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        # all are checked before the first is moved, so that a refusal leaves the parameters as they were
        for gauge in self.gauges:
            _check_gradients(gauge)
        for group in self.param_groups:
            moving = [p for p in group["params"] if p.grad is not None]
            if group["weight_decay"] and moving:
                torch._foreach_mul_(moving, 1 - group["lr"] * group["weight_decay"])
        for balance, params in self._clusters:
            if live := [p for p in params if p.grad is not None]:
                self._covered(balance, live)
        for group, free in zip(self.param_groups, self._free):
            if plain := [p for p in free if p.grad is not None]:
                self._plain(plain, group)
        return loss

    def _plain(self, params: list[Tensor], group: dict[str, Any]) -> None:
        """What no gauge covers: the base optimiser itself."""
        grads = [_grad(p, group) for p in params]
        for p, step in zip(params, self._descents(params, "plain", grads, group)):
            p.add_(step, alpha=group["lr"])

    def _descents(
        self,
        owners: Sequence[Tensor],
        key: str,
        values: list[Tensor],
        group: dict[str, Any],
        out: list[Tensor] | None = None,
    ) -> list[Tensor]:
        states = [self.state[owner].setdefault(key, {}) for owner in owners]
        if isinstance(self.base, AdamBase):
            return self.base.descents(values, states, group, out)
        several = getattr(self.base, "descents", None)
        if several is not None:
            return several(values, states, group)
        return [self.base.descent(v, s, group) for v, s in zip(values, states)]

    def _covered(self, balance: Balance, params: list[Tensor]) -> None:
        """One step of parameters whose gauges hang together."""
        due = self._restore(balance, params[0])
        steps: dict[Tensor, Tensor] = {}
        for group in {id(g): g for g in (self._group[p] for p in params)}.values():
            mine = [p for p in params if self._group[p] is group]
            values = [self._balanced(balance, i, p, group) for i, p in enumerate(mine)]
            rooms = [self._room("step", i, p) for i, p in enumerate(mine)]
            for p, step in zip(mine, self._descents(mine, "balanced", values, group, rooms)):
                if p in balance.shifts and group["reproject"]:
                    step -= balance.shifts[p].vertical(step)
                first, *rest = *balance.factors(p), group["lr"]
                step *= first * group["lr"] if rest else first  # factors are small, parameters are not
                for factor in rest[:-1]:
                    step *= factor
                steps[p] = step
        for k, gauge in enumerate(balance.gauges):
            options = self._group[gauge.params[0]]
            if gauge.params[0] in steps and (options["vertical"] != "frozen" or options["lr_radial"] is not None):
                self._correct(balance, k, steps)
        for p, shift in balance.shifts.items():
            if p in steps and (group := self._group[p])["vertical"] != "frozen":
                q = shift.collapse(_grad(p, group))
                steps[p] = steps[p] + shift.broadcast(self._along(p, "vertical shift", q, group))
        torch._foreach_add_(list(steps), list(steps.values()))
        if due and self._group[params[0]]["vertical"] == "frozen" and self._group[params[0]]["reproject"]:
            balance.retract()
        elif due:
            balance.correct()

    def _restore(self, balance: Balance, owner: Tensor) -> bool:
        """The potentials live in the state, to be saved with it; whether it is time to correct them."""
        if not balance.gauges:
            return False
        state = self.state[owner].setdefault("balance", {"age": 0})
        if "potentials" not in state:
            balance.find()
            state["potentials"] = balance.potentials
        elif balance.potentials is not state["potentials"]:
            balance.potentials = state["potentials"]
            balance.spread()
        state["age"] += 1
        return state["age"] % _EVERY == 0

    def _balanced(self, balance: Balance, i: int, p: Tensor, group: dict[str, Any]) -> Tensor:
        """The gradient in balanced coordinates, without what a logit shift cannot see."""
        first, *rest = balance.factors(p) or [p.new_ones(())]
        value = torch.mul(_grad(p, group), first, out=self._room("gradient", i, p))
        for factor in rest:
            value *= factor
        if p in balance.shifts:
            value -= balance.shifts[p].vertical(value)
        return value

    def _correct(self, balance: Balance, k: int, steps: dict[Tensor, Tensor]) -> None:
        """Take the step's part along the orbit of gauge k out, or give it a rate of its own; and the radial part."""
        gauge = balance.gauges[k]
        group = self._group[gauge.params[0]]
        along, lengths, values = [], [], []
        for block in gauge.blocks:
            held = [balance.centred(p) for p in block.params]
            weighed = []
            for i, (p, value) in enumerate(zip(block.params, held)):
                for factor in balance.factors(p, but=k):  # inner products are those of the balanced network
                    value = torch.div(value, factor.square(), out=self._room("weighed", i, p))
                weighed.append(value)
            along.append(block.inner([steps[p] for p in block.params], weighed))
            lengths.append(block.inner(held, weighed))
            values.append(held)
        squares = torch.stack(lengths)
        basis = gauge.basis(squares)
        found = basis @ torch.where(squares > 0, torch.stack(along) / squares, torch.zeros_like(squares))
        wanted = found.clone()
        if group["lr_radial"] is not None:
            wanted[0] *= group["lr_radial_share"]
        if group["reproject"]:
            wanted[1:] = 0.0
        turn = torch.zeros_like(wanted)
        if group["vertical"] != "frozen":
            inners = [b.inner([_grad(p, group) for p in b.params], held) for b, held in zip(gauge.blocks, values)]
            modes = (basis @ torch.stack(inners))[1:]
            turn[1:] = self._along(gauge.params[0], f"vertical {gauge.name}", modes, group).clamp_(-_CLAMP, _CLAMP)
        moves = basis.T @ turn
        for block, held, change in zip(gauge.blocks, values, basis.T @ (wanted - found) + moves.expm1()):
            for i, (p, value) in enumerate(zip(block.params, held)):
                steps[p].addcmul_(value, block.spread(change, i, missing=0.0))
        for p, layer in gauge.followers:
            steps[p].add_(p * moves[: layer + 1].sum().expm1())

    def _along(self, owner: Tensor, key: str, q: Tensor, group: dict[str, Any]) -> Tensor:
        """The step along the orbit, in its own coordinates."""
        return (
            group["lr"]
            * group["lr_vertical_share"]
            * (-q if group["vertical"] == "sgd" else self._descents([owner], key, [q], group)[0])
        )

    def _room(self, name: str, place: int, like: Tensor) -> Tensor:
        """Memory for intermediates, used again by the next: fresh memory costs more than the sums in it."""
        key = (name, place, like.shape, like.dtype, like.device)
        if key not in self._rooms:
            self._rooms[key] = torch.empty(like.shape, dtype=like.dtype, device=like.device)
        return self._rooms[key]


def _params(gauges: Iterable[Gauge]) -> Iterable[Tensor]:
    return (p for gauge in gauges for p in gauge.params)


def _check_gradients(gauge: Gauge) -> None:
    missing = [p.grad is None for p in gauge.params]
    if any(missing) and not all(missing):
        raise ValueError(f"gauge {gauge.name!r}: some of its parameters have no gradient; freeze all of them or none")


def _grad(p: Tensor, group: dict[str, Any]) -> Tensor:
    assert p.grad is not None
    return -p.grad if group["maximize"] else p.grad
