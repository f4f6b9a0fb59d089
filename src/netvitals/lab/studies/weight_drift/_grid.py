"""The 79 configurations of the sparsity–accuracy study (P7): architecture × activation × mechanism × level.

56 = {MLP, residual network, vision transformer, denoiser} × 14, and 23 for the GPT. The base networks carry no norm
that centres (none, or root mean square), so that a centring norm is a configuration of its own; norms that set the
sparsity stand directly before the activation, also inside the feed-forward layers of transformers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import nn

from netvitals import layers
from netvitals.lab import models
from netvitals.lab.data import Dataset

LEVELS = (0.10, 0.25, 0.50, 0.75, 0.90)
REFERENCE = "gelu"  # the dense configuration that every architecture is normalised to


@dataclass(frozen=True)
class Point:
    """One configuration: what is trained, and how its sparsity is set."""

    architecture: str
    act: str
    norm: str = ""  # "" for the base network's own
    mechanism: str = "activation"  # activation, norm, quantile norm, top-k
    level: float | None = None

    @property
    def name(self) -> str:
        """
        >>> Point("mlp", "relu", "quantile:0.75", "quantile norm", 0.75).name
        'relu quantile:0.75'
        """
        return f"{self.act} {self.norm}".strip()


SHARED = (
    *(
        ("activation", a, "", None)
        for a in ("relu", "gelu", "silu", "relu2", "relu2:15", "gelu2", "noisy_relu", "sugar_b_silu")
    ),
    ("norm", "relu", "centred", None),
    *(("quantile norm", "relu", f"quantile:{q:g}", q) for q in LEVELS[1:]),
    ("top-k", "topk:gelu:0.75", "", 0.75),
)

GPT = (
    *(
        ("activation", a, "", None)
        for a in (
            "relu",
            "gelu",
            "noisy_relu",
            "sugar_b_silu",
            "relu2",
            "gelu2",
            "relu2:15",
            "relu2:50",
            "b_silu",
            "silu",
            "gelu2:15",
        )
    ),
    *(("top-k", f"topk:gelu:{s:g}", "", s) for s in LEVELS),
    ("norm", "relu", "layer", None),
    *(("quantile norm", "relu", f"quantile:{q:g}", q) for q in LEVELS),
    ("norm", "relu2:15", "layer", None),
)

BASES = {
    "mlp": "mlp:64-64x3-10,norm=none",
    "resnet": "resnet-mini,width=8,norm=rms",
    "vit": "vit-mini,norm=rms",
    "denoiser": "denoiser,width=8,heads=2,hidden=32,norm=rms",
    "gpt": "gpt-micro,depth=3,width=64,norm=rms",
}


def points() -> list[Point]:
    """All 79, in the order of the architectures."""
    return [*_points()]


def _points() -> Iterator[Point]:
    for architecture in BASES:
        for mechanism, act, norm, level in GPT if architecture == "gpt" else SHARED:
            yield Point(architecture=architecture, act=act, norm=norm, mechanism=mechanism, level=level)


def build(point: Point, data: Dataset, seed: int) -> nn.Module:
    """The network of one configuration, its weights drawn by ``seed``."""
    spec = BASES[point.architecture]
    norm = {"centred": "batch"}.get(point.norm, point.norm)
    if not norm:
        return models.build(spec, seed=seed, data=data, act=point.act)
    if point.architecture in ("mlp", "resnet", "gpt"):
        return models.build(spec, seed=seed, data=data, act=point.act, norm=norm)
    net = models.build(spec, seed=seed, data=data, act=point.act)
    for module in net.modules():
        up, act = getattr(module, "up", None), getattr(module, "act", None)
        if isinstance(up, nn.Linear) and isinstance(act, nn.Module):  # a feed-forward layer
            before = layers.PerToken(layers.norm(norm, up.out_features, 2))
            module.act = nn.Sequential(before, act)
        elif isinstance(act, nn.Module) and isinstance(getattr(module, "conv", None), nn.Conv2d):
            module.norm = layers.norm(norm, module.conv.out_channels, 4)  # type: ignore[union-attr, arg-type]
    return net
