r"""DDC: the decomposition that makes a preconditioned optimiser respect gauges (dead-directions §4.9).

The gradient is split into parts that do not change along the orbit: of a rescale with blocks $W_i$, norms $\rho_i$ and
$\hat g_i = \langle g_i, W_i\rangle$, the radial $\sum\hat g_i/\sqrt n$, the gauge modes, and the tangential
$\tau_i = \rho_i(g_i - \hat g_i W_i/\rho_i^2)$. A base preconditioner turns each part into a direction, and the step is
put together so that a rescaled network stays the rescaled network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from netvitals.optim.gauges import Gauge, GaugeBlock, Rescale, Shift
from netvitals.optim.precondition import AdamBase, Preconditioner

VERTICAL = ("frozen", "sgd", "base")
_CLAMP = 0.5  # largest move of a log norm along the orbit in one step; an un-normalised 'sgd' step can diverge
_TINY = 1e-30


class DDC(Optimizer):
    """A base preconditioner made equivariant.

    Args:
        params: parameters or groups, as for any torch optimiser.
        gauges: specs from :mod:`netvitals.optim` (``relu_rescale``, ``ln_scale``, …, or
            ``find_gauges(model, loss_fn, batch).gauges``) on disjoint parameters, each inside one group.
        base: the preconditioner (``AdamBase()``, ``RMSBase()``, ``SignBase()``, or your own ``descent``).
        lr: learning rate. Under a rescale gauge the step of a block is ``lr`` times the block's norm, so learning rates
            are smaller than the base optimiser's.
        betas: decay of the running means of gradients and of their squares, as in AdamW.
        eps: added to the root of the squares, as in AdamW.
        weight_decay: as in AdamW, decoupled.
        vertical: how to move along the orbit itself: "frozen", "sgd" or "base" (which normalises round-off when the
            loss is exactly invariant).
        lr_vertical: its learning rate; default ``lr``.
        reproject: take the orbit's direction out of the preconditioned step. The paper omits it for shifts, which
            leaves the base optimiser there (erratum E10); False gives that printed version.
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
        reproject: bool = True,
    ) -> None:
        name = type(self).__name__
        if not (
            lr >= 0
            and eps > 0
            and weight_decay >= 0
            and len(betas) == 2
            and all(0 <= b < 1 for b in betas)
            and (lr_vertical is None or lr_vertical >= 0)
        ):
            raise ValueError(
                f"{name} needs lr, lr_vertical and weight_decay ≥ 0, eps > 0 and two betas in [0, 1), got "
                f"lr={lr}, lr_vertical={lr_vertical}, weight_decay={weight_decay}, eps={eps}, "
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
            "reproject": reproject,
        }
        super().__init__(params, defaults)
        self.base = base
        self.gauges = list(gauges)
        self._bases: dict[tuple[int, torch.dtype, torch.device], Tensor] = {}
        self._rooms: dict[tuple[Any, ...], Tensor] = {}
        self._assign()

    @property
    def verticals(self) -> tuple[str, ...]:
        return VERTICAL

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        super().add_param_group(param_group)
        if "gauges" in self.__dict__:  # after construction: the new parameters take part from the next step
            self._assign()

    def _assign(self) -> None:
        owner: dict[Tensor, int] = {p: i for i, g in enumerate(self.param_groups) for p in g["params"]}
        taken: dict[Tensor, str] = {}
        self._by_group: list[list[Gauge]] = [[] for _ in self.param_groups]
        for gauge in self.gauges:
            gauge.check()
            groups = set()
            for p in gauge.params:
                if p in taken:
                    raise ValueError(
                        f"gauges {taken[p]!r} and {gauge.name!r} share a parameter; overlapping "
                        "rescalings need one joint spec (chained_rescale)"
                    )
                if p not in owner:
                    raise ValueError(f"gauge {gauge.name!r} covers a parameter this optimiser was not given")
                taken[p] = gauge.name
                groups.add(owner[p])
            if len(groups) > 1:
                raise ValueError(f"gauge {gauge.name!r} spans {len(groups)} parameter groups; put them into one")
            self._by_group[groups.pop()].append(gauge)
        self._free = [[p for p in g["params"] if p not in taken] for g in self.param_groups]
        # looked up on every step, so made once: shifts, and rescalings with equally many blocks and channels together
        self._plans: list[list[list[tuple[Gauge, list[Tensor]]]]] = []
        for gauges in self._by_group:
            alike: dict[tuple[Any, ...], list[tuple[Gauge, list[Tensor]]]] = {}
            for gauge in gauges:
                p = gauge.params[0]
                kind = (len(gauge.blocks), gauge.channels) if isinstance(gauge, Rescale) else ()
                alike.setdefault((kind, p.dtype, p.device), []).append((gauge, list(gauge.params)))
            self._plans.append(list(alike.values()))

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "base": self.base, "gauges": self.gauges}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "gauges" in state:  # a copy or a pickle; load_state_dict comes here without them
            self._bases, self._rooms = {}, {}
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
        ready_plans = [
            [[(gauge, params) for gauge, params in alike if _has_gradients(gauge, params)] for alike in plans]
            for plans in self._plans
        ]
        for group, plans, free in zip(self.param_groups, ready_plans, self._free):
            for ready in plans:
                if not ready:
                    continue
                if group["weight_decay"]:
                    torch._foreach_mul_([p for _, ps in ready for p in ps], 1 - group["lr"] * group["weight_decay"])
                for gauge, _ in ready:
                    if isinstance(gauge, Shift):
                        self._shift(gauge, group)
                if scaled := [gauge for gauge, _ in ready if isinstance(gauge, Rescale)]:
                    self._rescale(scaled, [params[0] for _, params in ready], group)
            if plain := [p for p in free if p.grad is not None]:
                self._plain(plain, group)
        return loss

    def _plain(self, params: list[Tensor], group: dict[str, Any]) -> None:
        """What no gauge covers: the base optimiser itself."""
        if group["weight_decay"]:
            torch._foreach_mul_(params, 1 - group["lr"] * group["weight_decay"])
        for p in params:
            assert p.grad is not None
            p.add_(self._descent(p, "plain", p.grad, group), alpha=group["lr"])

    def _descent(self, owner: Tensor, key: str, value: Tensor, group: dict[str, Any]) -> Tensor:
        return self._descents([owner], key, [value], group)[0]

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

    def _along(self, owner: Tensor, q: Tensor, group: dict[str, Any]) -> Tensor:
        """The step along the orbit, in its own coordinates."""
        lr = group["lr"] if group["lr_vertical"] is None else group["lr_vertical"]
        return lr * (-q if group["vertical"] == "sgd" else self._descent(owner, "vertical", q, group))

    def _shift(self, gauge: Shift, group: dict[str, Any]) -> None:
        p = gauge.param
        assert p.grad is not None
        q = gauge.collapse(p.grad)
        s = self._descent(p, "horizontal", p.grad - gauge.broadcast(q), group)
        if group["reproject"]:
            s = s - gauge.vertical(s)
        p.add_(s, alpha=group["lr"])
        if group["vertical"] != "frozen":
            p.add_(gauge.broadcast(self._along(p, q, group)))

    def _rescale(self, gauges: list[Rescale], owners: list[Tensor], group: dict[str, Any]) -> None:
        """Gauges with equally many blocks and channels: what is small is computed for all of them at once."""
        lr = group["lr"]
        squares, inners = (
            torch.stack([torch.stack([_total(b.inner(_of(b, what))) for b in g.blocks]) for g in gauges])
            for what in ("value", "grad")
        )  # (gauges, blocks, channels)
        squares.clamp_min_(_TINY**2)
        norms = squares.sqrt().clamp_min_(_TINY)
        basis = self._basis(gauges[0], squares)
        c = basis @ inners  # radial, then gauge modes
        move = torch.zeros_like(c)
        move[:, 0] = lr * torch.stack(self._descents(owners, "radial", list(c[:, 0].unbind()), group))
        if group["vertical"] != "frozen":
            for i, owner in enumerate(owners):
                move[i, 1:] = self._along(owner, c[i, 1:], group).clamp_(-_CLAMP, _CLAMP)
        factors, shares = (basis.T @ move).exp(), inners / squares
        for gauge, rho, share, factor, moved in zip(gauges, *(t.unbind() for t in (norms, shares, factors, move))):
            rhos, owns, scales = list(rho.unbind()), share.unbind(), list(factor.unbind())
            params: list[Tensor] = []
            tangents: list[Tensor] = []
            for block, r, own in zip(gauge.blocks, rhos, owns):
                for p, d in zip(block.params, block.dims):
                    room = self._room("tangent", len(params), p)
                    params.append(p)
                    tangents.append(
                        torch.addcmul(_grad(p), p, spread(own, p, d), value=-1, out=room).mul_(spread(r, p, d))
                    )
            rooms = [self._room("step", i, p) for i, p in enumerate(params)]
            steps = self._descents(params, "tangential", tangents, group, rooms)
            at = 0
            for block, r, scale in zip(gauge.blocks, rhos, scales):
                mine = steps[at : at + len(block.params)]
                at += len(mine)
                if group["reproject"]:
                    scale = scale - lr * _total(block.inner(mine)) / r
                for p, d, step in zip(block.params, block.dims, mine):
                    p.mul_(spread(scale, p, d)).addcmul_(step, spread(r, p, d), value=lr)
            if gauge.followers:
                self._follow(gauge, rho[:, 0], (basis[1:].T @ moved[1:])[:, 0], group)

    def _follow(self, gauge: Rescale, norms: Tensor, vertical: Tensor, group: dict[str, Any]) -> None:
        """Biases inside a chain scale with the product R of the norms up to their layer; R·g is invariant.

        The step is measured in R·P^(−layers/n), P the invariant product of all norms: the base's own at balanced norms.
        """
        logs = norms.log()
        balance = logs.mean()
        for p, layer in gauge.followers:
            assert p.grad is not None
            log_r = logs[: layer + 1].sum()
            if group["vertical"] != "frozen":
                p.mul_(vertical[: layer + 1].sum().exp())
            s = self._descent(p, "follower", log_r.exp() * p.grad, group)
            p.addcmul_(s, (log_r - (layer + 1) * balance).exp(), value=group["lr"])

    def _room(self, name: str, place: int, like: Tensor) -> Tensor:
        """Memory for one gauge's intermediates, used again by the next: fresh memory costs more than the sums in it."""
        key = (name, place, like.shape, like.dtype, like.device)
        if key not in self._rooms:
            self._rooms[key] = torch.empty(like.shape, dtype=like.dtype, device=like.device)
        return self._rooms[key]

    def _basis(self, gauge: Rescale, like: Tensor) -> Tensor:
        key = (len(gauge.blocks), like.dtype, like.device)
        if key not in self._bases:
            self._bases[key] = gauge.basis(like)
        return self._bases[key]


def spread(values: Tensor, p: Tensor, dim: int | None) -> Tensor:
    """One number per channel in the shape that multiplies ``p``; a block that scales as a whole has one."""
    if dim is None:
        return values.reshape(())
    return values.reshape([-1 if j == dim % p.ndim else 1 for j in range(p.ndim)])


def _has_gradients(gauge: Gauge, params: list[Tensor]) -> bool:
    missing = [p.grad is None for p in params]
    if any(missing) and not all(missing):
        raise ValueError(f"gauge {gauge.name!r}: some of its parameters have no gradient; freeze all of them or none")
    return not any(missing)


def _of(block: GaugeBlock, what: str) -> list[Tensor]:
    return list(block.params) if what == "value" else [_grad(p) for p in block.params]


def _grad(p: Tensor) -> Tensor:
    assert p.grad is not None
    return p.grad


def _total(pieces: list[Tensor]) -> Tensor:
    return pieces[0] if len(pieces) == 1 else torch.stack(pieces).sum(0)
