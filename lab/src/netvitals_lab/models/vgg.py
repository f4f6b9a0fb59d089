"""VGG-11 for small images, of any width."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from netvitals_lab.models.parts import activation, conv, he_convolutions, norm


@dataclass(frozen=True)
class VGGSpec:
    """Eight 3×3 convolutions (widths 1, 2, 4, 4, 8, 8, 8, 8 times ``width``) with five 2×2 max-pools.

    Pools are left out once the side is 1, so that small images work. ``hidden`` adds dense layers before the head
    (``hidden=512`` gives the nine-activation variant).
    """

    channels: int = 3
    side: int = 32
    classes: int = 10
    width: int = 64
    hidden: tuple[int, ...] = ()
    act: str = "relu"
    norm: str = "batch"
    dropout: float = 0.0

    def build(self) -> nn.Module:
        return VGG(self)


_PLAN = ((1,), (2,), (4, 4), (8, 8), (8, 8))  # multiples of the width between max-pools


class VGG(nn.Module):
    """``features`` (convolution, norm, activation, pool), ``dense``, ``head``."""

    def __init__(self, spec: VGGSpec):
        super().__init__()
        self.spec = spec
        features: list[nn.Module] = []
        n_in, side = spec.channels, spec.side
        for group in _PLAN:
            for multiple in group:
                n_out = spec.width * multiple
                features += [
                    conv(n_in, n_out, 3, bias=spec.norm == "none"),
                    norm(spec.norm, n_out, 4),
                    activation(spec.act),
                ]
                n_in = n_out
            if side > 1:
                features.append(nn.MaxPool2d(2))
                side //= 2
        self.features = nn.Sequential(*features)
        dense: list[nn.Module] = []
        n_in *= side * side
        for n_out in spec.hidden:
            dense += [nn.Linear(n_in, n_out), activation(spec.act)]
            n_in = n_out
        if spec.dropout:
            dense.append(nn.Dropout(spec.dropout))
        self.dense = nn.Sequential(*dense)
        self.head = nn.Linear(n_in, spec.classes)
        he_convolutions(self)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.dense(self.features(x).flatten(1)))
