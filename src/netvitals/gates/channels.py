"""Scores of the channels of a network, by gate density, by the norm of their filters, or at random."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from netvitals._plot import Plot, Series
from netvitals.anatomy import Anatomy, Layer, chart
from netvitals.capture import Mode, Only, Result, Site, inputs_of, one_screen, picked, skipped_lines
from netvitals.gates.measurement import measure

Score = Literal["gate", "magnitude", "random"]
SCORES: tuple[Score, ...] = ("gate", "magnitude", "random")
SHOWN = 24


@dataclass(frozen=True, kw_only=True)
class ChannelScores(Result):
    """Scores of the channels of every activation whose input comes from a single layer.

    Returned by :func:`channel_scores`.

    Attributes:
        score: ``gate``, ``magnitude`` or ``random``.
        sites: activation -> scores of its channels; the lowest would be pruned first.
        layers: activation -> the linear or convolution layer that makes its channels.
        places: activation -> where it is.
        skipped: activation whose channels do not come from a single layer → reason.
    """

    score: Score
    sites: dict[str, np.ndarray]
    layers: dict[str, str]
    places: dict[str, Site] = field(repr=False)
    skipped: Mapping[str, str] = field(default_factory=dict)

    def lowest(self, ratio: float, seed: int = 0) -> dict[str, np.ndarray]:
        """Select the channels with the lowest scores over all sites, as one boolean mask per site.

        Args:
            ratio: fraction of channels.
            seed: seed of the random order of equal scores; gate densities of exactly 1 are common.
        """
        if not 0 <= ratio < 1:
            raise ValueError(f"ratio= is the fraction of pruned channels and must lie in [0, 1), got {ratio}")
        flat = np.concatenate(list(self.sites.values()))
        shuffled = np.random.default_rng(seed).permutation(flat.size)
        order = shuffled[np.argsort(flat[shuffled], kind="stable")]
        low = np.zeros(flat.size, dtype=bool)
        low[order[: round(ratio * flat.size)]] = True
        ends = np.cumsum([s.size for s in self.sites.values()])[:-1]
        return dict(zip(self.sites, np.split(low, ends)))

    @contextmanager
    def silenced(self, model: nn.Module, ratio: float, seed: int = 0) -> Iterator[nn.Module]:
        """Set the activations of the lowest-scoring channels to zero inside a ``with`` block.

        Args:
            model: the model that was scored.
            ratio: fraction of channels.
            seed: seed of the random order of equal scores.
        """
        low = self.lowest(ratio, seed)
        modules = dict(model.named_modules())
        functions = [name for name, mask in low.items() if mask.any() and name not in modules]
        if functions:
            raise ValueError(
                f"{functions[0]} is a function call and not a module, so its channels cannot be set to zero; leave it "
                "out with only="
            )
        handles = []
        try:
            for name, mask in low.items():
                keep, dim = torch.from_numpy(~mask), self.places[name].channel_dim

                def silence(_: Any, args: Any, out: torch.Tensor, keep: Any = keep, dim: int = dim) -> torch.Tensor:
                    shape = [1] * out.ndim
                    shape[dim] = -1
                    return out * keep.to(out).view(shape)

                handles.append(modules[name].register_forward_hook(silence))
            yield model
        finally:
            for handle in handles:
                handle.remove()

    def rows(self) -> list[dict[str, Any]]:
        """One row per channel, with its activation, layer and score."""
        return [
            {"site": name, "layer": self.layers[name], "channel": c, self.score: float(v)}
            for name, values in self.sites.items()
            for c, v in enumerate(values)
        ]

    def plot(self) -> Plot:
        """Plot the sorted channel scores of every site."""
        series = []
        for name, values in list(self.sites.items())[:8]:
            ranks = (np.arange(values.size) + 0.5) / values.size
            series.append(Series(name, ranks.tolist(), np.sort(values).tolist(), line=values.size > 1))
        return Plot("share of channels", f"{self.score} score", series)

    def __str__(self) -> str:
        total = sum(s.size for s in self.sites.values())
        lines = [f"{total:,} channels by {self.score}:"]
        lines += [
            f"  {name} (made by {self.layers[name]}): {s.size} channels, {s.min():.3g} to {s.max():.3g}, median "
            f"{np.median(s):.3g}"
            for name, s in list(self.sites.items())[:SHOWN]
        ]
        return one_screen(lines + skipped_lines(self.skipped))


def channel_scores(
    model: nn.Module,
    batch: Any,
    *,
    mode: Mode = "as_is",
    only: Only = None,
    seed: int = 0,
    score: Score = "gate",
    theta: float = 0.01,
) -> ChannelScores:
    """Score every channel of a convolution or linear layer that is followed by an activation.

    **Do not prune by gate density.** Pruning by gate density is a negative result of the paper, and our reproduction
    agrees. With smooth activations (GELU, SiLU, Mish), pruning by gate density loses more accuracy than random pruning,
    and far more than pruning by filter norm. With ReLU, pruning by gate density and pruning by filter norm lose about
    the same accuracy. Use the gate score to find channels that receive no gradient.

    Args:
        model: any model; it is not changed.
        batch: one batch as a data loader yields it; a target in it is not used.
        mode: ``"as_is"``, ``"train"`` (batch statistics) or ``"eval"``: the mode that gates are measured in.
        only: activations to score: names or patterns, or a function of a name.
        seed: seed of the random score, and of the random numbers that the model draws.
        score: ``"gate"``, the share of open gates; ``"magnitude"``, the Euclidean norm of the filter; ``"random"``.
        theta: a gate is open where |f'| > theta.

    Returns:
        The scores, the layer behind each activation, and the activations that no single layer feeds, with the reason.

    >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> found = channel_scores(net, torch.randn(16, 4), score="magnitude")
    >>> found.layers, found.sites["1"].shape
    ({'1': '0'}, (8,))
    """
    if score not in SCORES:
        raise ValueError(f"there is no score {score!r}; there are {', '.join(SCORES)}")
    report = measure(model, batch, mode=mode, seed=seed, thetas=theta)
    task = inputs_of(model, batch)
    anatomy = chart(model, dict(task.kwargs) or (task.args if len(task.args) > 1 else task.args[0]))
    regions = {r.name: r for r in anatomy.activations}
    calls = Counter((r.module, r.call) for r in anatomy.activations)
    for r in anatomy.activations:  # the site of an activation module has the name of the module
        if calls[r.module, r.call] == 1:
            regions.setdefault(r.module + (f"#{r.call}" if r.call > 1 else ""), r)
    skipped = dict(report.skipped)
    found: dict[str, Layer] = {}
    for name, site in report.sites.items():
        region = regions.get(name)
        layer = "its place in the graph is not known" if region is None else _maker(anatomy, region.root)
        if isinstance(layer, Layer) and (why := _why_not(model, layer, site.channels)):
            layer = why
        if isinstance(layer, str):
            skipped[name] = layer
        else:
            found[name] = layer
    if not found:
        why = "; ".join(f"{n}: {reason}" for n, reason in list(skipped.items())[:3])
        raise ValueError(
            "channel scores need an activation whose input channels come from one layer, and this model has none "
            f"({why})"
        )
    names = picked(list(found), only, "activation")
    generator = torch.Generator().manual_seed(seed)
    sites: dict[str, np.ndarray] = {}
    for name in names:
        channels = report.sites[name].channels
        if score == "gate":
            sites[name] = next(iter(report.sites[name].channel_densities.values()))
        elif score == "random":
            sites[name] = torch.rand(channels, generator=generator, dtype=torch.float64).numpy()
        else:
            weight = model.get_parameter(found[name].weight).detach().double()
            sites[name] = weight.movedim(found[name].out_dim, 0).flatten(1).norm(dim=1).cpu().numpy()
    return ChannelScores(
        score=score,
        sites=sites,
        layers={name: found[name].name for name in names},
        places={name: report.sites[name].site for name in names},
        skipped=skipped,
    )


def _maker(anatomy: Anatomy, value: int) -> Layer | str:
    """The layer that makes the channels of a value, through norms, pooling and dropout; else what is in the way."""
    layers = {layer.output: layer for layer in anatomy.layers}
    norms = {norm.output: norm.input for norm in anatomy.norms}
    while True:
        if value in layers:
            return layers[value]
        op = anatomy.producers(value)
        if value in norms:
            value = norms[value]
        elif op is None:
            return "it reads the model's input"
        elif "pool" in op.name or "dropout" in op.name or op.kind == "view":
            value = op.inputs[0]
        elif op.name.rstrip("_") in ("add", "sub"):
            return "its input is a sum, whose channels belong to several layers"
        else:
            return f"its input is made by {op.name}, not by a layer"


def _why_not(model: nn.Module, layer: Layer, channels: int) -> str:
    if layer.reparametrised:
        return f"the weight of {layer.name} is computed from {', '.join(layer.reparametrised)}"
    if layer.part.index:
        return f"{layer.name} is a part of a larger parameter"
    if layer.calls > 1:
        return f"{layer.name} is used {layer.calls} times: its channels feed several places"
    if model.get_parameter(layer.weight).shape[layer.out_dim] != channels:
        return f"{layer.name} makes another number of channels than its input has"
    return ""
