r"""DDCAdam: an Adam whose steps respect the network's symmetries (dead-directions, Algorithm 2, corrected).

Adam's step depends on where along a gauge orbit the weights happen to sit, and drifts along it. DDCAdam splits the
gradient into orbit-invariant parts, keeps Adam's moments of those, and steps so that a rescaled network stays the
rescaled network: it is Adam on the balanced network of the orbit. Parameters under no gauge take a plain AdamW step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from torch import Tensor

from netvitals.optim.ddc import DDC
from netvitals.optim.gauges import Gauge
from netvitals.optim.precondition import AdamBase, adam_step, begin


class DDCAdam(DDC):
    """Drop-in Adam with gauges.

    Args:
        params: parameters or groups, as for any torch optimiser.
        gauges: specs from :mod:`netvitals.optim` (``relu_rescale``, ``ln_scale``, …, or
            ``find_gauges(model, loss_fn, batch).gauges``); they may share parameters and reach over groups.
        lr: learning rate, that of Adam on the balanced network.
        betas: decay of the running means of gradients and of their squares, as in AdamW.
        eps: added to the root of the squares, as in AdamW.
        weight_decay: as in AdamW, decoupled.
        vertical: how to move along the orbit itself: "frozen", "sgd" or "adam" (which normalises round-off when the
            loss is exactly invariant).
        lr_vertical: its learning rate; default ``lr``. A schedule of ``lr`` changes it in proportion.
        lr_radial: learning rate of the part that lengthens or shortens a gauge's blocks; default ``lr``. A schedule of
            ``lr`` changes it in proportion.
        reproject: take the orbit's direction out of the normalised step. The paper omits it for shifts, which makes the
            optimiser identical to Adam there (erratum E10); False gives that printed version.
        maximize: go uphill.
        amsgrad: divide by the largest running mean of squares so far, as in Adam.
        foreach: accepted for Adam's sake; steps are batched, with torch's fused kernel where it can be used.

    >>> import torch
    >>> from netvitals.optim import relu_rescale
    >>> net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
    >>> opt = DDCAdam(net.parameters(), gauges=[relu_rescale(net[0].weight, net[2].weight, net[0].bias)], lr=1e-2)
    >>> loss = net(torch.ones(8, 3)).square().mean()
    >>> loss.backward(); opt.step()
    >>> bool(net(torch.ones(8, 3)).square().mean() < loss)
    True
    """

    def __init__(
        self,
        params: Iterable[Any],
        gauges: Sequence[Gauge] = (),
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
        amsgrad: bool = False,
        foreach: bool | None = None,
    ) -> None:
        super().__init__(
            params,
            gauges,
            AdamBase(),
            lr,
            betas,
            eps,
            weight_decay,
            vertical=vertical,
            lr_vertical=lr_vertical,
            lr_radial=lr_radial,
            reproject=reproject,
            maximize=maximize,
            amsgrad=amsgrad,
            foreach=foreach,
        )

    @property
    def verticals(self) -> tuple[str, ...]:
        return ("frozen", "sgd", "adam")

    def _plain(self, params: list[Tensor], group: dict[str, Any]) -> None:
        """Plain AdamW for what no gauge covers, in one batched update."""
        states = [self.state[p] for p in params]
        begin(states, params, group)
        grads = [p.grad for p in params if p.grad is not None]
        adam_step(params, [-g for g in grads] if group["maximize"] else grads, states, group, group["lr"])
