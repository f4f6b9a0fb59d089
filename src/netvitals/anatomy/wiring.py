"""Links of a real model: pairs of layers where the second sees nothing but a function of the first.

A link is (A, B): A and B are Linear or convolution modules, B's input is F(A's output) for some F (an activation,
pooling, reshaping, a norm), A's output goes nowhere else, and both run once per forward pass. On every link the
imbalance identity holds. Chains are maximal runs of links.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


@dataclass
class LayerRun:
    """One layer as it ran: its input ``u`` and its output ``z``, both in the autograd graph."""

    name: str
    module: nn.Module
    u: Tensor
    z: Tensor
    calls: int = 1

    @property
    def weight(self) -> Tensor:
        return self.module.get_parameter("weight")

    @property
    def bias(self) -> Tensor | None:
        return None if getattr(self.module, "bias", None) is None else self.module.get_parameter("bias")

    @property
    def grouped(self) -> bool:
        return getattr(self.module, "groups", 1) != 1

    @property
    def channel(self) -> int:
        return -1 if isinstance(self.module, nn.Linear) else 1


@dataclass(frozen=True)
class Link:
    """Layer ``first`` feeds layer ``second`` through ``between`` (names of autograd operations)."""

    first: str
    second: str
    between: tuple[str, ...]


@dataclass(frozen=True)
class Links:
    """All links of a model, and for every other layer pair what was in the way."""

    links: tuple[Link, ...]
    skipped: dict[str, str] = field(default_factory=dict)

    @property
    def chains(self) -> tuple[tuple[str, ...], ...]:
        """Maximal runs of linked layers, by name."""
        after = {link.first: link.second for link in self.links}
        starts = [a for a in after if a not in set(after.values())]
        chains = []
        for name in starts:
            chain = [name]
            while chain[-1] in after:
                chain.append(after[chain[-1]])
            chains.append(tuple(chain))
        return tuple(chains)

    def __str__(self) -> str:
        lines = [" → ".join(chain) for chain in self.chains] or ["no chain found"]
        return "\n".join(lines + [f"{name}: {why}" for name, why in self.skipped.items()])


@contextmanager
def recorded(model: nn.Module) -> Iterator[dict[str, LayerRun]]:
    """Within the block, forward passes note input and output of every Linear and convolution layer."""
    runs: dict[str, LayerRun] = {}
    handles = []

    def hook_for(name: str) -> Any:
        def hook(module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> Tensor:
            if name in runs:
                runs[name].calls += 1
                return output
            runs[name] = LayerRun(name, module, inputs[0], output)
            return output.clone()  # an in-place activation must not overwrite what was noted

        return hook

    for name, module in model.named_modules():
        if isinstance(module, LAYERS):
            handles.append(module.register_forward_hook(hook_for(name)))
    try:
        yield runs
    finally:
        for handle in handles:
            handle.remove()


def find_links(runs: dict[str, LayerRun]) -> Links:
    """Links among recorded layers, by walking the autograd graph from each layer's input back to other layers."""
    outputs = {id(run.z.grad_fn): name for name, run in runs.items() if run.z.grad_fn is not None}
    sources: dict[str, tuple[set[str], list[str]]] = {}
    for name, run in runs.items():
        sources[name] = _sources(run.u, outputs) if run.u.grad_fn is not None else (set(), [])
    readers: dict[str, list[str]] = {name: [] for name in runs}
    for name, (found, _) in sources.items():
        for source in found:
            readers[source].append(name)
    links, skipped = [], {}
    for name, run in runs.items():
        found, between = sources[name]
        if run.calls > 1:
            skipped[name] = f"runs {run.calls} times per forward pass: its weight gradient mixes several inputs"
        elif len(found) > 1:
            skipped[name] = f"its input mixes {', '.join(sorted(found))}: more than one layer"
        elif len(found) == 1:
            (source,) = found
            if runs[source].calls > 1:
                skipped[name] = f"{source} before it runs {runs[source].calls} times per forward pass"
            elif len(readers[source]) > 1:
                skipped[name] = f"{source} before it feeds {', '.join(sorted(readers[source]))} as well"
            else:
                links.append(Link(source, name, tuple(between)))
    return Links(tuple(links), skipped)


def _sources(u: Tensor, outputs: dict[int, str]) -> tuple[set[str], list[str]]:
    """Layers whose output reaches ``u`` without passing another layer, and the operations on the way."""
    found: set[str] = set()
    between: list[str] = []
    stack: list[Any] = [u.grad_fn]
    seen: set[int] = set()
    while stack:
        node = stack.pop()
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        if id(node) in outputs:
            found.add(outputs[id(node)])
            continue
        kind = node.name()
        if kind != "torch::autograd::AccumulateGrad" and kind != "CloneBackward0":
            between.append(kind.replace("Backward0", "").replace("Backward1", ""))
        stack.extend(parent for parent, _ in node.next_functions)
    return found, between[::-1]
