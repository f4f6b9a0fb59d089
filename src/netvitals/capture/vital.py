"""The shape every vital sign has. A user's own class needs only a name and the methods it cares about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from netvitals.capture.reading import Recorder
from netvitals.capture.views import ActivationView, LinearView, ParameterView, TensorView

KINDS = ("activation", "linear", "norm", "attention", "stream", "output")


class Vital:
    """One vital sign. The engine calls the methods below on measured steps only, with autograd switched off.

    Write reductions to the recorder as device tensors; never call ``.item()`` or ``.cpu()`` here. State that lives
    from step to step belongs to the instance. A method that raises is reported once, and this vital sign is
    switched off at that site; the user's training goes on.
    """

    name: str = ""
    every: int = 1  # looks on every n-th measured step; costly vital signs raise it
    every_by_method: ClassVar[Mapping[str, int]] = {}  # the same for single methods by name, on top of it
    min_steps: int = 1  # and on steps that are at least so many training steps apart; slow ones raise it
    tensors_of: tuple[str, ...] = KINDS  # kinds of sites that ``tensor`` is shown
    gradients_of: tuple[str, ...] = KINDS  # kinds of sites whose ``gradient`` it is shown

    def activation(self, recorder: Recorder, view: ActivationView) -> None:
        """Right after an activation ran in the measured forward pass."""

    def linear(self, recorder: Recorder, view: LinearView) -> None:
        """Right after a linear or convolution layer ran."""

    def tensor(self, recorder: Recorder, view: TensorView) -> None:
        """Right after a norm, attention, residual block or the whole model produced its output."""

    def gradient(self, recorder: Recorder, view: Any, g: Tensor) -> None:
        """When the gradient of the loss with respect to that site's output arrives in the backward pass."""

    def parameters(self, recorder: Recorder, view: ParameterView) -> None:
        """Once at the end of a measured step, after the optimizer moved."""
