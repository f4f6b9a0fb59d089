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
    """What one number of a vital sign is, and what it is counted in (empty for a pure number).

    Attributes:
        meaning: one phrase that says what is counted.
        unit: what it is counted in; empty for a pure number.

    >>> Metric("share of gates above the threshold", "share").unit
    'share'
    """

    meaning: str
    unit: str = ""


@dataclass(frozen=True, kw_only=True)
class WatchContext:
    """What a vital sign may know before the first look: the model, who trains it, and a batch to try it on.

    Args:
        model: the watched model, uncompiled.
        optimizers: those the watch was given.
        probe: inputs, targets and loss function (or None) of the fixed batch, if there is one.
        training: whether steps follow; False in a checkup, which looks once.
        scheduler: of the learning rate, where the user gave one (or several).
        total_steps: how long training goes on, where the user says so.
        found: asks for optimizers that were seen at work, where none was given.
        given: tensors that are trained in the place of the model's own, by name.

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
        """What is trained, by name."""
        return {**dict(self.model.named_parameters()), **self.given}

    def known_optimizers(self) -> tuple[Optimizer, ...]:
        """Those that were given, or else those seen at work so far."""
        return self.optimizers or tuple(self.found() if self.found is not None else ())

    def fixed_batch(self, vital: str) -> tuple[Callable[..., Tensor], tuple[Any, Any]]:
        """The loss function and the batch (inputs, targets) of the probe; a sentence where one is missing.

        Args:
            vital: name of the vital sign that asks, for the sentence.
        """
        if self.probe is None:
            raise ValueError(
                f"the vital sign {vital!r} looks at a fixed batch, and none was given: "
                f"pass probe=(x, y, loss_fn) to watch {hint('needs-probe')}"
            )
        x, y, loss_fn = self.probe
        if loss_fn is None:
            raise ValueError(
                f"the vital sign {vital!r} needs a loss, and the probe has none: pass probe=(x, y, loss_fn) to watch "
                f"{hint('needs-probe')}"
            )
        return loss_fn, (x, y)

    def optimizer(self, vital: str) -> Optimizer | None:
        """The optimizer, None where no step follows; a sentence where a watch was given none, or several.

        Args:
            vital: name of the vital sign that asks, for the sentence.
        """
        if not self.training:
            return None
        if len(self.optimizers) != 1:
            count = f"{len(self.optimizers)} were" if self.optimizers else "none was"
            raise ValueError(
                f"the vital sign {vital!r} needs the optimizer's rule and learning rate, and {count} given: "
                f"pass optimizer= to watch, one that moves the whole model {hint('needs-probe')}"
            )
        return self.optimizers[0]


class Vital:
    """One vital sign. The engine calls the methods below on measured steps only, with autograd switched off.

    Write reductions to the recorder as device tensors; never call ``.item()`` or ``.cpu()`` here. State that lives
    from step to step belongs to the instance. A method that raises is reported once, and this vital sign is
    switched off at that site; the user's training goes on.

    ``title``, ``meaning`` and ``metrics`` introduce it to people: the report's glossary, docs/vital-signs.md and
    ``netvitals vitals`` are made of them. A metric's name may hold a place for a value, as in ``density@{theta}``.

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
        """Once, before the first look. Take what is needed from ``context``, or raise a sentence that says what is
        missing: nothing has been trained yet.

        Args:
            context: model, optimizers and probe of the watch.
        """

    def activation(self, recorder: Recorder, view: ActivationView) -> None:
        """Right after an activation ran in the measured forward pass.

        Args:
            recorder: where numbers are written.
            view: input, output and function of the activation.
        """

    def product(self, recorder: Recorder, view: ProductView) -> None:
        """Right after two branches were multiplied element by element, as a gated linear unit does.

        Args:
            recorder: where numbers are written.
            view: the two factors.
        """

    def heads(self, recorder: Recorder, view: HeadsView) -> None:
        """Right after an attention block ran.

        Args:
            recorder: where numbers are written.
            view: queries, keys and values by head.
        """

    def router(self, recorder: Recorder, view: RouterView) -> None:
        """Right after the experts of a mixture were chosen.

        Args:
            recorder: where numbers are written.
            view: the router's logits and what was chosen.
        """

    def linear(self, recorder: Recorder, view: LinearView) -> None:
        """Right after a linear or convolution layer ran.

        Args:
            recorder: where numbers are written.
            view: input, output and weight of the layer.
        """

    def tensor(self, recorder: Recorder, view: TensorView) -> None:
        """Right after a norm, attention, residual block or the whole model produced its output.

        Args:
            recorder: where numbers are written.
            view: the output.
        """

    def gradient(self, recorder: Recorder, view: Any, g: Tensor) -> None:
        """When the gradient of the loss with respect to that site's output arrives in the backward pass.

        Args:
            recorder: where numbers are written.
            view: what the forward pass showed of this site.
            g: the gradient, shaped like the site's output.
        """

    def parameters(self, recorder: Recorder, view: ParameterView) -> None:
        """Once at the end of a measured step, after the optimizer moved.

        Args:
            recorder: where numbers are written.
            view: values, gradients and updates by name.
        """
