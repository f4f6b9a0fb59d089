r"""DDCAdam: an Adam whose steps respect the network's symmetries (dead-directions, Algorithm 2, corrected).

Adam's step depends on where along a gauge orbit the weights happen to sit, and drifts along it. DDCAdam splits the
gradient into orbit-invariant parts, keeps Adam's moments of those, and steps so that a rescaled network stays the
rescaled network. Parameters under no gauge take a plain AdamW step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from netvitals.optim.gauges import Gauge, Rescale, Shift

VERTICAL = ("frozen", "sgd", "adam")
_CLAMP = 0.5        # largest move of a log norm along the orbit in one step; an un-normalised 'sgd' step can diverge


class DDCAdam(Optimizer):
    """Drop-in Adam with gauges.

    Args:
        params: parameters or groups, as for any torch optimiser.
        gauges: specs from :mod:`netvitals.optim` (``relu_rescale``, ``ln_scale``, ``find_gauges(model).gauges``, …) on
            disjoint parameters, each inside one group.
        lr, betas, eps, weight_decay: as in AdamW; decay is decoupled. Under a rescale gauge the step of a block is
            ``lr`` times the block's norm, so learning rates are smaller than Adam's.
        vertical: how to move along the orbit itself: "frozen", "sgd" or "adam" (which normalises round-off when the
            loss is exactly invariant).
        lr_vertical: its learning rate; default ``lr``.
        reproject: take the orbit's direction out of the normalised step. The paper omits it for shifts, which makes the
            optimiser identical to Adam there (erratum E10); False gives that printed version.
    """

    def __init__(self, params: Iterable[Any], gauges: Sequence[Gauge] = (), lr: float = 1e-3,
                 betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0.0, *,
                 vertical: str = "frozen", lr_vertical: float | None = None, reproject: bool = True) -> None:
        if lr < 0 or eps <= 0 or weight_decay < 0 or not all(0 <= b < 1 for b in betas):
            raise ValueError(f"DDCAdam needs lr ≥ 0, eps > 0, weight_decay ≥ 0 and betas in [0, 1), got lr={lr}, "
                             f"eps={eps}, weight_decay={weight_decay}, betas={betas}")
        if vertical not in VERTICAL:
            raise ValueError(f"vertical is one of {', '.join(VERTICAL)}, got {vertical!r}")
        defaults = {"lr": lr, "betas": tuple(betas), "eps": eps, "weight_decay": weight_decay, "vertical": vertical,
                    "lr_vertical": lr_vertical, "reproject": reproject}
        super().__init__(params, defaults)
        self.gauges = list(gauges)
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
                    raise ValueError(f"gauges {taken[p]!r} and {gauge.name!r} share a parameter; overlapping "
                                     "rescalings need one joint spec (chained_rescale)")
                if p not in owner:
                    raise ValueError(f"gauge {gauge.name!r} covers a parameter this optimiser was not given")
                taken[p] = gauge.name
                groups.add(owner[p])
            if len(groups) > 1:
                raise ValueError(f"gauge {gauge.name!r} spans {len(groups)} parameter groups; put them into one")
            self._by_group[groups.pop()].append(gauge)
        self._free = [[p for p in g["params"] if p not in taken] for g in self.param_groups]

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
        for group, gauges, free in zip(self.param_groups, self._by_group, self._free):
            for gauge in gauges:
                missing = [p.grad is None for p in gauge.params]
                if all(missing):
                    continue
                if any(missing):
                    raise ValueError(f"gauge {gauge.name!r}: some of its parameters have no gradient; freeze all of "
                                     "them or none")
                if isinstance(gauge, Shift):
                    self._shift(gauge, group)
                else:
                    self._rescale(gauge, group)
            self._adamw([p for p in free if p.grad is not None], group)
        return loss

    def _adam(self, owner: Tensor, key: str, value: Tensor, group: dict[str, Any]) -> Tensor:
        r"""Bias-corrected $\hat m / (\sqrt{\hat v} + \epsilon)$ of an invariant component, in the owner's state."""
        state = self.state[owner]
        if f"{key}_avg" not in state:
            state[f"{key}_avg"], state[f"{key}_sq"] = torch.zeros_like(value), torch.zeros_like(value)
            state[f"{key}_step"] = 0
        state[f"{key}_step"] += 1
        b1, b2 = group["betas"]
        m, v, t = state[f"{key}_avg"], state[f"{key}_sq"], state[f"{key}_step"]
        m.lerp_(value, 1 - b1)
        v.mul_(b2).addcmul_(value, value, value=1 - b2)
        denominator = v.sqrt().div_(math.sqrt(1 - b2**t)).add_(group["eps"])
        return m.div(denominator).div_(1 - b1**t)

    def _shift(self, gauge: Shift, group: dict[str, Any]) -> None:
        p, lr = gauge.param, group["lr"]
        g = p.grad
        assert g is not None
        p.mul_(1 - lr * group["weight_decay"])
        q = gauge.collapse(g)
        u = self._adam(p, "horizontal", g - gauge.broadcast(q), group)
        if group["reproject"]:
            u = u - gauge.vertical(u)
        p.add_(u, alpha=-lr)
        if group["vertical"] != "frozen":
            p.add_(gauge.broadcast(self._along(p, q, group)))

    def _along(self, owner: Tensor, q: Tensor, group: dict[str, Any]) -> Tensor:
        """The step along the orbit, in its own coordinates."""
        lr = group["lr"] if group["lr_vertical"] is None else group["lr_vertical"]
        return -lr * (self._adam(owner, "vertical", q, group) if group["vertical"] == "adam" else q)

    def _rescale(self, gauge: Rescale, group: dict[str, Any]) -> None:
        lr, decay = group["lr"], 1 - group["lr"] * group["weight_decay"]
        owner = gauge.params[0]
        weights, grads, norms, inner = [], [], [], []
        for block in gauge.blocks:
            w = block.gather([p.mul_(decay) for p in block.params])
            g = block.gather([p.grad for p in block.params])        # type: ignore[misc]
            weights.append(w)
            grads.append(g)
            norms.append(w.norm(dim=1, keepdim=True).clamp_min(1e-30))
            inner.append((g * w).sum(1))
        basis = gauge.basis(weights[0])
        c = basis @ torch.stack(inner)                                  # (blocks, channels): radial, then gauge modes
        move = torch.zeros_like(c)
        move[0] = -lr * self._adam(owner, "radial", c[0], group)
        if group["vertical"] != "frozen":
            move[1:] = self._along(owner, c[1:], group).clamp(-_CLAMP, _CLAMP)
        log_step = basis.T @ move
        for i, (block, w, g, rho) in enumerate(zip(gauge.blocks, weights, grads, norms)):
            radial = (inner[i] / rho[:, 0].square())[:, None] * w
            u = self._adam(owner, f"tangential{i}", rho * (g - radial), group)
            if group["reproject"]:
                u = u - ((u * w).sum(1, keepdim=True) / rho.square()) * w
            new = log_step[i].exp()[:, None] * w - lr * rho * u
            for p, piece in zip(block.params, block.scatter(new)):
                p.copy_(piece)
        if gauge.followers:
            self._follow(gauge, torch.cat(norms, 1)[0], (basis[1:].T @ move[1:])[:, 0], group)

    def _follow(self, gauge: Rescale, norms: Tensor, vertical: Tensor, group: dict[str, Any]) -> None:
        """Biases inside a chain scale with the product R of the norms up to their layer; Adam of R·g is invariant.

        The step is measured in R·P^(−layers/n), P the invariant product of all norms: Adam's own at balanced norms.
        """
        logs, lr = norms.log(), group["lr"]
        balance = logs.mean()
        for j, (p, layer) in enumerate(gauge.followers):
            log_r = logs[:layer + 1].sum()
            p.mul_((1 - lr * group["weight_decay"]) * vertical[:layer + 1].sum().exp())
            assert p.grad is not None
            u = self._adam(gauge.params[0], f"follower{j}", log_r.exp() * p.grad, group)
            p.sub_(lr * (log_r - (layer + 1) * balance).exp() * u)

    def _adamw(self, params: list[Tensor], group: dict[str, Any]) -> None:
        """Plain AdamW for what no gauge covers, with batched (foreach) updates."""
        if not params:
            return
        grads = [p.grad for p in params if p.grad is not None]
        for p in params:
            if "exp_avg" not in self.state[p]:
                self.state[p].update(exp_avg=torch.zeros_like(p), exp_avg_sq=torch.zeros_like(p), step=0)
            self.state[p]["step"] += 1
        averages = [self.state[p]["exp_avg"] for p in params]
        squares = [self.state[p]["exp_avg_sq"] for p in params]
        (b1, b2), lr = group["betas"], group["lr"]
        torch._foreach_mul_(params, 1 - lr * group["weight_decay"])
        torch._foreach_lerp_(averages, grads, 1 - b1)
        torch._foreach_mul_(squares, b2)
        torch._foreach_addcmul_(squares, grads, grads, 1 - b2)
        steps = [self.state[p]["step"] for p in params]
        denominators = torch._foreach_sqrt(squares)
        torch._foreach_div_(denominators, [math.sqrt(1 - b2**t) for t in steps])
        torch._foreach_add_(denominators, group["eps"])
        torch._foreach_addcdiv_(params, averages, denominators, [-lr / (1 - b1**t) for t in steps])
