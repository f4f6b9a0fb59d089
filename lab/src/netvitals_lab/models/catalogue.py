"""Networks by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Protocol

import torch
from torch import nn

from netvitals_lab import spec as grammar
from netvitals_lab.device import CPU, device
from netvitals_lab.models.convnext import ConvNeXtSpec
from netvitals_lab.models.denoiser import DenoiserSpec
from netvitals_lab.models.gpt import GPTSpec
from netvitals_lab.models.mixer import MixerSpec
from netvitals_lab.models.mlp import MLPSpec
from netvitals_lab.models.resnet import ResNetSpec
from netvitals_lab.models.toys import PositionMLPSpec, ToyAttentionSpec
from netvitals_lab.models.transformer import ViTSpec
from netvitals_lab.models.vgg import VGGSpec


class ModelSpec(Protocol):
    """A frozen dataclass that says everything about a network and can build it."""

    def build(self) -> nn.Module: ...


class Sized(Protocol):
    """Anything that knows the sizes a network must have to fit it, such as a dataset."""

    @property
    def sizes(self) -> Mapping[str, int]: ...


@dataclass(frozen=True)
class _Entry:
    spec: Any
    about: str


_CATALOGUE: dict[str, _Entry] = {
    "mlp": _Entry(MLPSpec(), "perceptron, sizes as 64-128x3-10; kind=plain|residual|bottleneck|diamond"),
    "resnet18": _Entry(ResNetSpec(), "18-layer residual network for small images"),
    "resnet50": _Entry(ResNetSpec(blocks=(3, 4, 6, 3), bottleneck=True), "50-layer residual network"),
    "resnet18-large": _Entry(ResNetSpec(stem="large"), "18 layers behind a 7×7 stem and max-pool"),
    "resnet-mini": _Entry(ResNetSpec(channels=1, width=16, blocks=(1, 1, 1)), "three residual blocks, any width"),
    "vgg11": _Entry(VGGSpec(), "eight convolutions with max-pools"),
    "vgg-mini": _Entry(VGGSpec(channels=1, side=8, width=8), "VGG-11 at an eighth of the width"),
    "convnext-tiny": _Entry(ConvNeXtSpec(), "ConvNeXt of 28.6 million parameters at 1000 classes"),
    "convnext-mini": _Entry(ConvNeXtSpec(width=16, blocks=(1, 1, 1), patch=2), "three ConvNeXt blocks, sides from 8"),
    "mixer": _Entry(MixerSpec(), "MLP-Mixer of about a million parameters"),
    "mixer-mini": _Entry(
        MixerSpec(channels=1, side=8, patch=2, depth=2, width=32, tokens=16, mixing=64),
        "two mixer blocks for 8×8 images",
    ),
    "encoder": _Entry(ViTSpec(), "transformer encoder on patches, about 0.8 million parameters"),
    "vit-mini": _Entry(
        ViTSpec(channels=1, side=8, patch=2, depth=2, heads=2, width=32, hidden=64), "two encoder blocks for 8×8 images"
    ),
    "vit-b16": _Entry(
        ViTSpec(side=224, patch=16, classes=1000, depth=12, heads=12, width=768, hidden=3072),
        "the base vision transformer",
    ),
    "gpt-micro": _Entry(GPTSpec(), "byte-level GPT: 6 layers, width 128, context 64"),
    "gpt-nano": _Entry(
        GPTSpec(vocab=50_257, context=2048, depth=12, heads=12, width=768, fused=True), "GPT of 124 million parameters"
    ),
    "denoiser": _Entry(DenoiserSpec(), "denoiser of spectrograms: convolutions and attention"),
    "denoiser-large": _Entry(
        DenoiserSpec(width=128, depth=4, hidden=256, dilations=(1, 2, 4, 8)),
        "the denoiser at the 2.3 million parameters of published speech networks",
    ),
    "toy-attention": _Entry(ToyAttentionSpec(), "one attention head over short sequences"),
    "position-mlp": _Entry(PositionMLPSpec(), "a perceptron shared by the positions of a short sequence"),
}


def names() -> list[str]:
    """Every network that :func:`build` knows.

    >>> "gpt-micro" in names()
    True
    """
    return list(_CATALOGUE)


def about(name: str) -> str:
    """One line on a network of the catalogue."""
    return _entry(name).about


def parse(spec: str, data: Sized | None = None, **overrides: Any) -> Any:
    """Read a spec string into the dataclass of its network.

    Sizes that neither the string nor the overrides give are taken from ``data`` (its ``sizes``), if there is one.

    >>> parse("mlp:64-128x3-10,act=softplus:20,norm=batch").hidden
    (128, 128, 128)
    """
    name, sizes, options = grammar.split(spec)
    start = _entry(name).spec
    given: dict[str, Any] = dict(options)
    if sizes:
        if not isinstance(start, MLPSpec):
            raise ValueError(
                f"only mlp takes sizes after the colon; give {name} its sizes as options, "
                f"as in '{name},{fields(start)[0].name}=...' (got {spec!r})"
            )
        numbers = grammar.widths(sizes)
        if len(numbers) < 3:
            raise ValueError(f"an MLP has at least an input, a hidden and an output size, got {sizes!r}")
        given = {"inputs": numbers[0], "hidden": numbers[1:-1], "outputs": numbers[-1], **given}
    given.update(overrides)
    if data is not None:
        known = {f.name for f in fields(start)}
        given = {**{k: v for k, v in data.sizes.items() if k in known}, **given}
    return replace(start, **grammar.values(type(start), given, name))


def build(spec: str | ModelSpec, *, seed: int | None = None, data: Sized | None = None, **overrides: Any) -> nn.Module:
    """Build a network from ``NAME[:SIZES][,key=value]...`` or from its dataclass, on the device of the trial.

    >>> sum(p.numel() for p in build("mlp:64-32-10").parameters())
    2410
    """
    if isinstance(spec, str):
        wanted = parse(spec, data, **overrides)
    elif is_dataclass(spec) and hasattr(spec, "build"):
        wanted = replace(spec, **grammar.values(type(spec), overrides, type(spec).__name__))
    else:
        raise TypeError(f"a network is built from a spec string or its dataclass, got {type(spec).__name__}")
    if seed is None:
        return _placed(wanted.build())
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return _placed(wanted.build())


def _placed(network: nn.Module) -> nn.Module:
    """On the device of the trial; drawn on the processor, so that a seed gives the same weights anywhere."""
    return network if device().type == CPU else network.to(device())


def _entry(name: str) -> _Entry:
    if name not in _CATALOGUE:
        raise ValueError(f"there is no network {name!r}; did you mean {grammar.nearest(name, _CATALOGUE)}?")
    return _CATALOGUE[name]
