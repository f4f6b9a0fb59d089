r"""Gauge drift: how far the optimiser has carried the weights along directions that change nothing.

Of a rescale $(W_1, W_2) \to (cW_1, W_2/c)$: the Noether charge $\|W_2\|^2 - \|W_1\|^2$, which gradient flow conserves,
and the position on the orbit $\frac12\log(\rho_1/\rho_2)$. Of a shift of all logits: the mean over classes. SGD moves
none of them but for its step size; Adam does, though no gradient points there (dead-directions Remark 81, X27).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor, nn

from netvitals._help import hint
from netvitals.capture import Metric, ParameterView, Recorder, Vital, WatchContext

if TYPE_CHECKING:
    from netvitals.optim import Gauge, GaugeDrift, Gauges


class GaugeCharges(Vital):
    """``charge``, ``charge_moved`` and ``orbit_moved`` of every gauge, at a site with the gauge's name.

    Args:
        gauges: from :func:`netvitals.optim.find_gauges`, or specs of one's own; or the model, in which they are looked
            for with a guessed input. Left out, they are looked for in the watched model, on the watch's probe if it has
            one.

    >>> import netvitals, torch
    >>> from torch import nn
    >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> opt = torch.optim.SGD(net.parameters(), lr=0.1)
    >>> with netvitals.watch(net, opt, every=1, vitals=[GaugeCharges(net)]) as seen:
    ...     for _ in range(2):
    ...         loss = net(torch.randn(16, 4)).square().mean()
    ...         opt.zero_grad(); loss.backward(); opt.step()
    >>> sorted({r.site for r in seen.measurements})
    ['logit shift 2.bias', 'logit shift 2.weight', 'rescale 0 → 2']
    """

    name = "gauge_charges"
    title = "Gauge drift"
    meaning = "How far the optimizer has moved along gauge symmetries, which leave the loss unchanged."
    metrics: ClassVar = {
        "charge": Metric("quantity that gradient flow conserves because of this symmetry", "weight²"),
        "charge_moved": Metric("relative change of the conserved quantity"),
        "orbit_moved": Metric(
            "change of the position along the symmetry since the start: log of the scale factor, or mean of the logits"
        ),
    }
    headline = ("orbit_moved",)
    needs = "a model with gauge symmetries, and probe= if netvitals cannot guess an input"

    def __init__(self, gauges: Gauges | Iterable[Gauge] | nn.Module | None = None) -> None:
        self.gauges: tuple[Gauge, ...] = ()
        self._start: list[tuple[Tensor, Tensor]] = []
        self._given = gauges is not None
        if isinstance(gauges, nn.Module):
            from netvitals.optim import find_gauges

            self._take(find_gauges(gauges))
        elif gauges is not None:
            self._take(gauges)

    def begin(self, context: WatchContext) -> None:
        if self._given:
            return
        from netvitals.optim import find_gauges

        if context.probe is None:
            try:
                self._take(find_gauges(context.model))
            except ValueError as error:
                raise ValueError(f"{error} (in watch, pass probe=(x, y, loss_fn)) {hint('needs-probe')}") from error
            return
        x, y, loss_fn = context.probe
        guess = "ce" if isinstance(y, Tensor) and not y.is_floating_point() else "mse"
        self._take(find_gauges(context.model, guess if loss_fn is None else loss_fn, (x, y)))

    def _take(self, gauges: Iterable[Gauge]) -> None:
        from netvitals.optim import orbit_position

        self.gauges = tuple(gauges)
        if not self.gauges:
            raise ValueError(
                "this model has no gauge symmetry, so there is no drift to measure; find_gauges(model, loss_fn, "
                f"batch).skipped gives the reasons {hint('needs-probe')}"
            )
        self._start = [(g.charge().clone(), orbit_position(g).clone()) for g in self.gauges]

    def drifts(self) -> tuple[GaugeDrift, ...]:
        """All gauges now, against when they were taken."""
        from netvitals.optim import GaugeDrift

        rows = torch.stack([self._row(i) for i in range(len(self.gauges))]).tolist()
        return tuple(GaugeDrift(g.name, *row) for g, row in zip(self.gauges, rows))

    def _row(self, i: int) -> Tensor:
        from netvitals.optim import gauge_energy, orbit_position

        gauge, (charge, place) = self.gauges[i], self._start[i]
        now, here = gauge.charge(), orbit_position(gauge)
        shifted = (now - charge).square().mean().sqrt() / gauge_energy(gauge).clamp_min(1e-30)
        return torch.stack([now.square().mean().sqrt(), shifted, (here - place).square().mean().sqrt()]).float()

    def parameters(self, recorder: Recorder, view: ParameterView) -> None:
        rows = torch.stack([self._row(i) for i in range(len(self.gauges))])
        recorder.write([g.name for g in self.gauges], tuple(self.metrics), rows)
