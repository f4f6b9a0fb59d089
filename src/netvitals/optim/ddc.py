r"""DDC and DDCAdam: Algorithm 2 of dead-directions as printed, around Adam or another base.

Every block of a rescaling has a norm $\rho_i$ and a direction. In log norms the gauge is a shift, so
$\hat g_i = \langle g_i, W_i\rangle$ splits into a radial part and gauge modes, and
$\tau_i = \rho_i (g_i - \hat g_i W_i / \rho_i^2)$ is the tangential part. None of them changes along the orbit. The base
preconditions each; the tangential step u is projected to be orthogonal to $W_i$ again, and
$W_i \leftarrow e^{\Delta \log\rho_i} W_i + \eta \rho_i u_i$.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from netvitals.optim.equivariant import CLAMP, AdamFamily, Equivariant, grad_of
from netvitals.optim.gauges import Rescale, Shift, shared_weights


class DDC(Equivariant):
    """Algorithm 2 around a base preconditioner.

    With :class:`SGDBase` and ``vertical="sgd"`` it is gradient descent on the metric that weighs a block's step by its
    squared norm, $|dW_i|^2/\\rho_i^2$, which is the same all along the orbit (Corollary 79).

    Args:
        params: parameters or groups, as for any torch optimiser; a gauge may reach over several groups.
        gauges: specs from :mod:`netvitals.optim` that share no weight, such as
            ``find_gauges(model, loss_fn, batch).disjoint()``. A channel whose block is zero stays zero.
        base: the preconditioner (``AdamBase()``, ``RMSBase()``, ``SGDBase()``, ``SignBase()``, or your own
            ``descent``).
        lr: learning rate of the radial part (of a log norm) and of the tangential one, in units of the block's norm.
        betas: decay of the running means of gradients and of their squares, as in AdamW.
        eps: small number added to the denominator, as in AdamW.
        weight_decay: decoupled weight decay, as in AdamW.
        vertical: how to move along the orbit itself: "frozen", "sgd" or "base" (which normalises round-off when the
            loss is exactly invariant).
        lr_vertical: learning rate along the symmetry; default ``lr``. A schedule of ``lr`` changes it in proportion.
        lr_radial: learning rate of the radial part; default ``lr``. A schedule of ``lr`` changes it in proportion.
        reproject: take the shift's direction out of the preconditioned step too. The paper does so for rescalings only,
            which leaves the base optimiser for shifts (erratum E10); False gives that printed version.
        maximize: maximize the loss instead of minimizing it.

    >>> from netvitals.optim import SGDBase, relu_rescale
    >>> net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
    >>> gauge = relu_rescale(net[0].weight, net[2].weight, net[0].bias)
    >>> opt = DDC(net.parameters(), gauges=[gauge], base=SGDBase(), lr=1e-2)
    >>> loss = net(torch.ones(8, 3)).square().mean()
    >>> loss.backward(); opt.step()
    >>> bool(net(torch.ones(8, 3)).square().mean() < loss)
    True
    """

    def _assign(self) -> None:
        super()._assign()
        if pair := shared_weights(self.gauges):
            raise ValueError(
                f"the gauge symmetries {pair[0]!r} and {pair[1]!r} share weights, which DDCAdam does not support. "
                "Give find_gauges(...).disjoint(), join them with chained_rescale, or use BalancedAdam"
            )
        self._shifts = [g for g in self.gauges if isinstance(g, Shift)]
        self._rescales = [g for g in self.gauges if isinstance(g, Rescale)]

    def _covered_step(self) -> None:
        for shift in self._shifts:
            if shift.param.grad is not None:
                self._shifted(shift)
        if live := [g for g in self._rescales if g.params[0].grad is not None]:
            self._rescaled(live)

    def _shifted(self, shift: Shift) -> None:
        p = shift.param
        group = self._group[p]
        grad = grad_of(p, group)
        step = self._descents([p], "horizontal", [grad - shift.vertical(grad)], group)[0]
        if group["reproject"]:
            step = step - shift.vertical(step)
        p.add_(step, alpha=group["lr"])
        if group["vertical"] != "frozen":
            p.add_(shift.broadcast(self._along(p, "vertical shift", shift.collapse(grad), group)))

    def _rescaled(self, gauges: list[Rescale]) -> None:
        """One step of all rescalings; blocks of different gauges may be parts of one parameter."""
        params = list(dict.fromkeys(p for g in gauges for p in g.params))
        grads = {p: grad_of(p, self._group[p]) for p in params}
        sizes = {p: torch.ones_like(p) for p in params}  # the norm of the block that each weight is in
        values = {p: g.clone() for p, g in grads.items()}
        growth = {p: torch.zeros_like(p) for p in params}
        for gauge in gauges:
            squares, inners = self._inners(gauge, grads)
            logs = squares.clamp_min(torch.finfo(squares.dtype).tiny).log() / 2
            basis = gauge.basis(squares)
            shares = _over(inners, squares)
            moves, turn = self._log_steps(gauge, basis @ inners)
            for b, block in enumerate(gauge.blocks):
                for i, p in enumerate(block.params):
                    sizes[p] *= block.spread(squares[b].sqrt(), i)
                    values[p] -= block.spread(shares[b], i, missing=0.0) * p
                    growth[p] += block.spread((basis.T @ moves)[b], i, missing=0.0)
            along = basis[1:].T @ (basis[1:] @ logs)  # where on the orbit the norms are: what a follower moves with
            for p, layer in gauge.followers:
                sizes[p] *= along[: layer + 1].sum().exp()
                growth[p] += (basis[1:].T @ turn)[: layer + 1].sum()
        for group in {id(g): g for g in (self._group[p] for p in params)}.values():
            mine = [p for p in params if self._group[p] is group]
            found = self._descents(mine, "tangential", [sizes[p] * values[p] for p in mine], group)
            values.update(zip(mine, found))
        for gauge in gauges:  # normalising by coordinates brought a radial part back
            squares, inners = self._inners(gauge, values)
            for block, share in zip(gauge.blocks, _over(inners, squares)):
                for i, p in enumerate(block.params):
                    values[p] = values[p] - block.spread(share, i, missing=0.0) * p
        for p in params:
            p.mul_(growth[p].exp()).add_(sizes[p] * values[p], alpha=self._group[p]["lr"])

    def _inners(self, gauge: Rescale, values: dict[Any, Tensor]) -> tuple[Tensor, Tensor]:
        """Squared norms of the blocks, and inner products of ``values`` with them, (blocks, channels)."""
        held = [[p.detach() for p in b.params] for b in gauge.blocks]
        squares = torch.stack([b.inner(h, h) for b, h in zip(gauge.blocks, held)])
        inners = [b.inner([values[p] for p in b.params], h) for b, h in zip(gauge.blocks, held)]
        return squares, torch.stack(inners)

    def _log_steps(self, gauge: Rescale, parts: Tensor) -> tuple[Tensor, Tensor]:
        """Steps of the log norms: radial first, then the gauge modes, which are also returned alone."""
        owner = gauge.params[0]
        group = self._group[owner]
        radial = self._descents([owner], f"radial {gauge.name}", [parts[0]], group)[0]
        turn = torch.zeros_like(parts[1:])
        if group["vertical"] != "frozen":
            turn = self._along(owner, f"vertical {gauge.name}", parts[1:], group).clamp(-CLAMP, CLAMP)
        return torch.cat([(group["lr"] * group["lr_radial_share"] * radial)[None], turn]), turn


class DDCAdam(AdamFamily, DDC):
    """Adam that does not move along symmetries of the loss (gauges), by Algorithm 2 of the dead-directions paper.

    Args:
        params: parameters or groups, as for any torch optimiser.
        gauges: specs from :mod:`netvitals.optim` (``relu_rescale``, ``ln_scale``, …, or
            ``find_gauges(model, loss_fn, batch).disjoint()``) that share no weight; where they do, use
            :class:`BalancedAdam`. A channel whose block is zero stays zero.
        lr: learning rate of a log norm, and of the directions in units of the block's norm: smaller than Adam's by
            about the root of the number of weights in a block.
        betas: decay of the running means of gradients and of their squares, as in AdamW.
        eps: small number added to the denominator, as in AdamW.
        weight_decay: decoupled weight decay, as in AdamW.
        vertical: how to move along the orbit itself: "frozen", "sgd" or "adam" (which normalises round-off when the
            loss is exactly invariant).
        lr_vertical: learning rate along the symmetry; default ``lr``. A schedule of ``lr`` changes it in proportion.
        lr_radial: learning rate of the radial part; default ``lr``. A schedule of ``lr`` changes it in proportion.
        reproject: take the shift's direction out of the normalised step too. The paper does so for rescalings only,
            which leaves Adam for shifts (erratum E10); False gives that printed version.
        maximize: maximize the loss instead of minimizing it.
        amsgrad: divide by the largest running mean of squares so far, as in Adam.
        foreach: accepted for compatibility with Adam; steps are always batched, with torch's fused kernel if possible.

    >>> import torch
    >>> from netvitals.optim import relu_rescale
    >>> net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
    >>> opt = DDCAdam(net.parameters(), gauges=[relu_rescale(net[0].weight, net[2].weight, net[0].bias)], lr=1e-2)
    >>> loss = net(torch.ones(8, 3)).square().mean()
    >>> loss.backward(); opt.step()
    >>> bool(net(torch.ones(8, 3)).square().mean() < loss)
    True
    """


def _over(inners: Tensor, squares: Tensor) -> Tensor:
    return torch.where(squares > 0, inners / squares.clamp_min(torch.finfo(squares.dtype).tiny), 0.0)
