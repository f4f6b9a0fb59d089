"""The shape every vital sign has. A user's own class needs only a name and the methods it cares about."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from torch import Tensor, nn
from torch.optim.optimizer import Optimizer

from netvitals._help import hint
from netvitals.capture.recorder import Recorder
from netvitals.capture.views import (
    ActivationView,
    HeadsView,
    LinearView,
    ParameterView,
    ProductView,
    RouterView,
    TensorView,
)

KINDS = ("activation", "product", "heads", "router", "linear", "norm", "attention", "stream", "output")


class Metric(NamedTuple):
    """The meaning and unit of one number that a vital sign measures.

    Attributes:
        meaning: one phrase that says what the number is.
        unit: its unit; empty for a pure number.

    >>> Metric("share of gates above the threshold", "share").unit
    'share'
    """

    meaning: str
    unit: str = ""


@dataclass(frozen=True, kw_only=True)
class WatchContext:
    """What a vital sign can use before training: the model, its optimizers, its scheduler and a fixed batch.

    Args:
        model: the watched model, uncompiled.
        optimizers: the optimizers that were passed to the watch.
        probe: inputs, targets and loss function (or None) of the fixed batch, if there is one.
        training: True in training; False in a checkup, which measures once.
        scheduler: learning-rate scheduler or schedulers, if the user passed any.
        total_steps: number of training steps, if the user passed it.
        found: function that returns the optimizers detected so far, if none was passed.
        given: tensors that are trained instead of the model's own parameters, by name.

    >>> WatchContext(model=nn.Linear(2, 1)).known_optimizers()
    ()
    """

    model: nn.Module
    optimizers: tuple[Optimizer, ...] = ()
    probe: tuple[Any, Any, Callable[..., Tensor] | None] | None = None
    training: bool = True
    scheduler: Any = None
    total_steps: int | None = None
    found: Callable[[], Sequence[Optimizer]] | None = None
    given: Mapping[str, Tensor] = field(default_factory=dict)

    def parameters(self) -> dict[str, Tensor]:
        """Return all tensors that are trained, by name."""
        return {**dict(self.model.named_parameters()), **self.given}

    def known_optimizers(self) -> tuple[Optimizer, ...]:
        """Return the optimizers passed to the watch, or else those detected in the training loop so far."""
        return self.optimizers or tuple(self.found() if self.found is not None else ())

    def fixed_batch(self, vital: str) -> tuple[Callable[..., Tensor], tuple[Any, Any]]:
        """Return loss function, inputs and targets of the fixed batch, or raise an error that says what is missing.

        Args:
            vital: name of the vital sign, for the error message.
        """
        if self.probe is None:
            raise ValueError(
                f"the vital sign {vital!r} is measured on a fixed batch, but none was given: pass probe=(x, y, "
                f"loss_fn) to watch {hint('needs-probe')}"
            )
        x, y, loss_fn = self.probe
        if loss_fn is None:
            raise ValueError(
                f"the vital sign {vital!r} needs a loss, but probe= has no loss function: pass probe=(x, y, loss_fn) "
                f"to watch {hint('needs-probe')}"
            )
        return loss_fn, (x, y)

    def optimizer(self, vital: str) -> Optimizer | None:
        """Return the optimizer, or None in a checkup; raise an error if a watch has none or several.

        Args:
            vital: name of the vital sign, for the error message.
        """
        if not self.training:
            return None
        if len(self.optimizers) != 1:
            count = f"{len(self.optimizers)} were" if self.optimizers else "none was"
            raise ValueError(
                f"the vital sign {vital!r} needs exactly one optimizer that updates the whole model, and {count} "
                f"given: pass optimizer= to watch {hint('needs-probe')}"
            )
        return self.optimizers[0]


class Vital:
    """Base class of vital signs. The methods below are called on measured steps only, with autograd switched off.

    Write reductions to the recorder as device tensors; never call ``.item()`` or ``.cpu()`` in these methods. Keep
    state between steps in attributes of the instance. If a method raises, the error is reported once and the vital sign
    is turned off at that site; training continues.

    ``title``, ``meaning`` and ``metrics`` appear in the report, in docs/vital-signs.md and in ``netvitals vitals``. A
    metric's name may contain a placeholder for a value, as in ``density@{theta}``.

    >>> import netvitals, torch
    >>> class Largest(Vital):
    ...     name, title, meaning = "largest", "Largest entry", "How large activations get."
    ...     metrics = {"max": Metric("largest output", "activation")}
    ...     def activation(self, recorder, view):
    ...         recorder.write(view.site, ["max"], view.a.max())
    >>> net = nn.Sequential(nn.Linear(4, 8), nn.Sigmoid(), nn.Linear(8, 1))
    >>> seen = netvitals.checkup(net, nn.MSELoss(), (torch.randn(16, 4), torch.randn(16, 1)), vitals=[Largest()],
    ...                          curvature=False)
    >>> [0.5 < r.value < 1 for r in seen.measurements if r.metric == "max"]
    [True]
    """

    name: str = ""
    title: str = ""
    meaning: str = ""  # one sentence or two
    metrics: ClassVar[Mapping[str, Metric]] = {}
    headline: tuple[str, ...] = ()  # the first of these that was recorded is shown first
    default: bool = False  # on when the user chooses nothing
    training_only: bool = False  # a checkup, which trains nothing, leaves it out of the default ones
    needs: str = ""  # what ``watch`` has to be given for it, beyond the model
    absent: str = ""  # why it wrote nothing where nothing failed: what it looks for and the model has not
    every: int = 1  # looks on every n-th measured step; costly vital signs raise it
    later_every: int = 1  # the same after the first looks, if it is more: for what is mostly wrong from the start
    every_by_method: ClassVar[Mapping[str, int]] = {}  # the same for single methods by name, on top of it
    min_steps: int = 1  # and on steps that are at least so many training steps apart; slow ones raise it
    tensors_of: tuple[str, ...] = KINDS  # kinds of sites that ``tensor`` is shown
    reads_steps: bool = True  # ``parameters`` reads gradients and values before the step, which have to be kept for it
    takes_pieces: bool = False  # ``parameters`` may be shown tensors of which each rank has a piece
    gradients_of: tuple[str, ...] = KINDS  # kinds of sites whose ``gradient`` it is shown

    @classmethod
    def described(cls, metric: str) -> str | None:
        """The entry of ``metrics`` that a recorded name belongs to; what follows a colon is the kind of average.

        Args:
            metric: a name as it was recorded.

        >>> class Heat(Vital):
        ...     metrics = {"above@{limit}": Metric("share of entries above the limit", "share")}
        >>> Heat.described("above@0.1:site"), Heat.described("below@0.1")
        ('above@{limit}', None)
        """
        for name in (metric, metric.split(":")[0]):
            for pattern in cls.metrics:
                if name == pattern or re.fullmatch(re.sub(r"\\\{\w+\\\}", r"[^:@]+", re.escape(pattern)), name):
                    return pattern
        return None

    def begin(self, context: WatchContext) -> None:
        """Prepare the vital sign, once before training. Take what you need from ``context``, or raise an error that
        says what is missing.

        Args:
            context: model, optimizers and probe of the watch.
        """

    def activation(self, recorder: Recorder, view: ActivationView) -> None:
        """Called right after an activation function in a measured forward pass.

        Args:
            recorder: the recorder to which numbers are written.
            view: input, output and function of the activation.
        """

    def product(self, recorder: Recorder, view: ProductView) -> None:
        """Called right after an elementwise product of two branches, as in a gated linear unit.

        Args:
            recorder: the recorder to which numbers are written.
            view: the two factors.
        """

    def heads(self, recorder: Recorder, view: HeadsView) -> None:
        """Called right after an attention block in a measured forward pass.

        Args:
            recorder: the recorder to which numbers are written.
            view: queries, keys and values by head.
        """

    def router(self, recorder: Recorder, view: RouterView) -> None:
        """Called right after the router of a mixture of experts has chosen experts.

        Args:
            recorder: the recorder to which numbers are written.
            view: the router's logits and what was chosen.
        """

    def linear(self, recorder: Recorder, view: LinearView) -> None:
        """Called right after a linear or convolution layer in a measured forward pass.

        Args:
            recorder: the recorder to which numbers are written.
            view: input, output and weight of the layer.
        """

    def tensor(self, recorder: Recorder, view: TensorView) -> None:
        """Called right after a norm, attention block, residual block or the whole model has produced its output.

        Args:
            recorder: the recorder to which numbers are written.
            view: the output.
        """

    def gradient(self, recorder: Recorder, view: Any, g: Tensor) -> None:
        """Called in the backward pass, with the gradient of the loss with respect to a site's output.

        Args:
            recorder: the recorder to which numbers are written.
            view: the view of this site in the forward pass.
            g: the gradient, shaped like the site's output.
        """

    def parameters(self, recorder: Recorder, view: ParameterView) -> None:
        """Called once at the end of a measured step, after the optimizer has updated the parameters.

        Args:
            recorder: the recorder to which numbers are written.
            view: values, gradients and updates by name.
        """
