r"""A preconditioned optimiser on the balanced network of the orbit: equivariant, also where gauges overlap.

It is not Algorithm 2 of dead-directions, which is :class:`~netvitals.optim.DDCAdam`.

Every parameter is $W = e^{\psi}\tilde W$ with $\tilde W$ on the balanced network of its orbit (``optim.balance``). The
gradient in balanced coordinates, $e^{\psi} g$, does not change along the orbit; a base preconditioner turns it into a
direction u, and the weights move by $\eta\, e^{\psi} u$: a rescaled network stays the rescaled network, and where the
network is balanced the step is the base's own. What moved along the orbit is undone every tenth step, which leaves the
function as it is, or it has a rate of its own; and so may the part that lengthens a block, the radial one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from netvitals.optim.balance import Balance
from netvitals.optim.equivariant import CLAMP, AdamFamily, Equivariant, grad_of
from netvitals.optim.gauges import Gauge, Rescale, Shift

_EVERY = 10  # steps between corrections of the balance


class Balanced(Equivariant):
    """A base preconditioner on the balanced network.

    Args:
        params: parameters or groups, as for any torch optimiser; a gauge may reach over several groups.
        gauges: specs from :mod:`netvitals.optim` (``relu_rescale``, ``ln_scale``, …, or
            ``find_gauges(model, loss_fn, batch).gauges``); they may share parameters.
        base: the preconditioner (``AdamBase()``, ``RMSBase()``, ``SGDBase()``, ``SignBase()``, or any with
            ``descent``).
        lr: learning rate, that of the base optimiser on a balanced network.
        betas: decay of the running means of gradients and of their squares, as in AdamW.
        eps: small number added to the denominator, as in AdamW.
        weight_decay: decoupled weight decay, as in AdamW.
        vertical: how to move along the orbit itself: "frozen", "sgd" or "base" (which normalises round-off when the
            loss is exactly invariant).
        lr_vertical: learning rate along the symmetry; default ``lr``. A schedule of ``lr`` changes it in proportion.
        lr_radial: learning rate of the part that lengthens or shortens a gauge's blocks; default ``lr``. A schedule of
            ``lr`` changes it in proportion.
        reproject: take the orbit's direction out of the preconditioned step.
        maximize: maximize the loss instead of minimizing it.

    >>> from netvitals.optim import SignBase
    >>> net = torch.nn.Linear(3, 1)
    >>> opt = Balanced(net.parameters(), gauges=[], base=SignBase(), lr=1e-2)
    >>> loss = net(torch.ones(8, 3)).square().mean()
    >>> loss.backward(); opt.step()
    >>> bool(net(torch.ones(8, 3)).square().mean() < loss)
    True
    """

    def _assign(self) -> None:
        """Gauges that hang together are stepped together."""
        super()._assign()
        self._rooms: dict[tuple[Any, ...], Tensor] = {}
        shifts: dict[Tensor, Shift] = {}
        clusters: list[tuple[list[Gauge], set[Tensor]]] = []
        for gauge in self.gauges:
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

    def _covered_step(self) -> None:
        for balance, params in self._clusters:
            if live := [p for p in params if p.grad is not None]:
                self._covered(balance, live)

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
                q = shift.collapse(grad_of(p, group))
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
        value = torch.mul(grad_of(p, group), first, out=self._room("gradient", i, p))
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
            inners = [b.inner([grad_of(p, group) for p in b.params], held) for b, held in zip(gauge.blocks, values)]
            modes = (basis @ torch.stack(inners))[1:]
            turn[1:] = self._along(gauge.params[0], f"vertical {gauge.name}", modes, group).clamp_(-CLAMP, CLAMP)
        moves = basis.T @ turn
        for block, held, change in zip(gauge.blocks, values, basis.T @ (wanted - found) + moves.expm1()):
            for i, (p, value) in enumerate(zip(block.params, held)):
                steps[p].addcmul_(value, block.spread(change, i, missing=0.0))
        for p, layer in gauge.followers:
            steps[p].add_(p * moves[: layer + 1].sum().expm1())

    def _room(self, name: str, place: int, like: Tensor) -> Tensor:
        """Memory for intermediates, used again by the next: fresh memory costs more than the sums in it."""
        key = (name, place, like.shape, like.dtype, like.device)
        if key not in self._rooms:
            self._rooms[key] = torch.empty(like.shape, dtype=like.dtype, device=like.device)
        return self._rooms[key]


def _params(gauges: Iterable[Gauge]) -> Iterable[Tensor]:
    return (p for gauge in gauges for p in gauge.params)


class BalancedAdam(AdamFamily, Balanced):
    """Drop-in replacement for Adam that is equivariant under symmetries of the loss (gauges).

    Args:
        params: parameters or groups, as for any torch optimiser.
        gauges: specs from :mod:`netvitals.optim` (``relu_rescale``, ``ln_scale``, …, or
            ``find_gauges(model, loss_fn, batch).gauges``); they may share parameters and reach over groups.
        lr: learning rate, that of Adam on the balanced network.
        betas: decay of the running means of gradients and of their squares, as in AdamW.
        eps: small number added to the denominator, as in AdamW.
        weight_decay: decoupled weight decay, as in AdamW.
        vertical: how to move along the orbit itself: "frozen", "sgd" or "adam" (which normalises round-off when the
            loss is exactly invariant).
        lr_vertical: learning rate along the symmetry; default ``lr``. A schedule of ``lr`` changes it in proportion.
        lr_radial: learning rate of the part that lengthens or shortens a gauge's blocks; default ``lr``. A schedule of
            ``lr`` changes it in proportion.
        reproject: take the orbit's direction out of the normalised step.
        maximize: maximize the loss instead of minimizing it.
        amsgrad: divide by the largest running mean of squares so far, as in Adam.
        foreach: accepted for compatibility with Adam; steps are always batched, with torch's fused kernel if possible.

    >>> import torch
    >>> from netvitals.optim import relu_rescale
    >>> net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
    >>> opt = BalancedAdam(net.parameters(), gauges=[relu_rescale(net[0].weight, net[2].weight, net[0].bias)], lr=1e-2)
    >>> loss = net(torch.ones(8, 3)).square().mean()
    >>> loss.backward(); opt.step()
    >>> bool(net(torch.ones(8, 3)).square().mean() < loss)
    True
    """
