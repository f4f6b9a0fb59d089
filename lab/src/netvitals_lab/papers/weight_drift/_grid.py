"""The configurations of the sparsity–accuracy study (P7): architecture × activation × mechanism × level.

79 as in the paper: 56 = {MLP, residual network, vision transformer, denoiser} × 14, and 23 for the GPT. For two cores a
ladder of nine for an MLP and a plain convolutional network. The base networks carry no norm that centres (none, or root
mean square), so that a centring norm is a configuration of its own; a norm that sets the sparsity stands directly
before every activation, behind the addition of a residual block and inside the feed-forward layers of transformers too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from netvitals import activations, layers
from netvitals_lab import models
from netvitals_lab.data import Dataset

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

LADDER = (0.50, 0.75, 0.90, 0.95)
FEW = (
    ("activation", "gelu", "", None),
    ("activation", "relu", "", None),
    *(("quantile norm", "relu", f"quantile:{q:g}", q) for q in LADDER),
    *(("top-k", f"topk:gelu:{s:g}", "", s) for s in LADDER[:3]),
)

BASES = {
    "mlp": "mlp:64-64x3-10,norm=none",
    "resnet": "resnet-mini,width=8,norm=rms",
    "vit": "vit-mini,norm=rms",
    "denoiser": "denoiser,width=8,heads=2,hidden=32,norm=rms",
    "gpt": "gpt-micro,depth=3,width=64,norm=rms",
}
# of the paper's size: the GPT is printed; of the others only the kind is, so these are the usual ones for their data
FULL = {
    "mlp": "mlp:3072-512x3-10,norm=none",
    "resnet": "resnet18,norm=rms",
    "vit": "encoder,norm=rms",
    "denoiser": "denoiser-large,norm=rms",
    "gpt": "gpt-nano,norm=rms",
}
PLAIN = {"cnn": "resnet-mini,width=8,blocks=1-1,shortcut=false,norm=none"}


def points() -> list[Point]:
    """All 79, in the order of the architectures."""
    return [
        Point(architecture=architecture, act=act, norm=norm, mechanism=mechanism, level=level)
        for architecture in BASES
        for mechanism, act, norm, level in (GPT if architecture == "gpt" else SHARED)
    ]


def ladder(architecture: str) -> list[Point]:
    """Nine configurations of one architecture: the dense reference, ReLU, quantile norms and top-k at their levels."""
    return [
        Point(architecture=architecture, act=act, norm=norm, mechanism=mechanism, level=level)
        for mechanism, act, norm, level in FEW
    ]


def build(point: Point, data: Dataset, seed: int, full: bool = False) -> nn.Module:
    """The network of one configuration, its weights drawn by ``seed``; ``full`` for the paper's size."""
    spec = (FULL if full else BASES | PLAIN)[point.architecture]
    sizes = {} if point.architecture != "mlp" else {"inputs": data.sizes["inputs"], "outputs": data.sizes["outputs"]}
    net = models.build(spec, seed=seed, data=data, act=point.act, **sizes)
    if point.norm:
        norm_before_activations(net, point.norm, point.act, data.train.x[:2])
    return net


@torch.no_grad()
def norm_before_activations(net: nn.Module, norm: str, act: str, x: Tensor) -> list[str]:
    """Put a norm directly before every activation of a kind; the features of each are those of its input."""
    kind, shapes = type(activations.get(act)), dict[str, torch.Size]()
    found = {name: module for name, module in net.named_modules() if type(module) is kind}

    def seen(name: str) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        def hook(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            shapes.setdefault(name, inputs[0].shape)

        return hook

    hooks = [module.register_forward_pre_hook(seen(name)) for name, module in found.items()]
    mode = net.training
    try:
        net.eval()(x)
    finally:
        net.train(mode)
        for hook in hooks:
            hook.remove()
    spec = {"centred": "batch"}.get(norm, norm)
    for name, shape in shapes.items():
        tokens = len(shape) == 3  # (N, T, C): one statistic for all positions
        before = layers.norm(spec, shape[-1] if len(shape) < 4 else shape[1], 2 if tokens else len(shape))
        parent, _, last = name.rpartition(".")
        home = net.get_submodule(parent)
        setattr(home, last, nn.Sequential(layers.PerToken(before) if tokens else before, found[name]))
    return list(shapes)
