"""Which places of a model are nodes: found by one look at a forward pass, chosen by name, glob, rule or default."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from netvitals._help import hint
from netvitals.anatomy import Anatomy, named_tensors
from netvitals.curvature.engine.layout import Place, charted, coarsest, doubled_batch, float_tensors, layout_of
from netvitals.curvature.engine.problem import Problem, float_outputs

Choice = None | str | Sequence[str] | Callable[[str, nn.Module], bool]
_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
_PARAMETRIC = (nn.Linear, nn.modules.conv._ConvNd, nn.Embedding, nn.MultiheadAttention, nn.RNNBase, nn.Bilinear)
_NORMS = (nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, nn.modules.batchnorm._NormBase)
MOST = 12  # more default nodes than this make a picture nobody reads
MOST_BRANCHING = 60  # of blocks and the branches inside them


@dataclass(frozen=True)
class CurvatureNode:
    """One node: a call of a module (activation space) or a module's parameters (parameter space).

    The second call of a module in one forward pass is ``name#2``.
    """

    name: str
    module: str
    call: int  # 1 for the first call of the module
    op: str  # class of the module
    shape: tuple[int, ...]  # of the (first) output with its batch dimension, or (p_v,)
    size: int  # d_v per example, or p_v
    places: tuple[Place, ...] = ()  # how examples lie in each floating tensor of the output


def parameter_node(name: str, shape: tuple[int, ...], op: str = "Parameter") -> CurvatureNode:
    """A node ``name`` of parameter space, with as many coordinates as ``shape`` has; ``op`` is its kind."""
    return CurvatureNode(name=name, module=name, call=1, op=op, shape=shape, size=math.prod(shape))


@dataclass
class NodeSurvey:
    """What one forward pass showed: every call of a module in order, and how much memory the graph keeps."""

    calls: list[CurvatureNode] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)  # call -> why it cannot be a node
    outputs: list[Tensor] = field(default_factory=list)
    final: set[str] = field(default_factory=set)  # calls that return the model's own output
    kept_bytes: int = 0
    anatomy: Anatomy | None = None  # None where the model cannot be traced


def survey(problem: Problem, memory: int, calls: bool = True) -> NodeSurvey:
    """Run the model of ``problem`` once and note modules' ``calls``; a sentence when the graph outgrows ``memory``."""
    seen = NodeSurvey(anatomy=charted(problem.task) if calls else None)
    doubled = _doubled_shapes(problem, seen.anatomy)
    counts: dict[str, int] = {}
    results: list[tuple[str, Tensor]] = []
    stores = {p.untyped_storage().data_ptr() for p in problem.model.parameters()}
    computed = 0

    def note(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def hook(module: nn.Module, args: Any, out: Any) -> None:
            nonlocal computed
            counts[name] = counts.get(name, 0) + 1
            call = name if counts[name] == 1 else f"{name}#{counts[name]}"
            values = float_tensors(out)
            if not values:
                seen.skipped[call] = f"returns {_what(out)}, which cannot be differentiated"
                return
            shapes = [tuple(v.shape) for v in values]
            long = doubled.get((name, counts[name]))
            known = long is not None and len(long) == len(shapes)
            places = tuple(
                layout_of(s, long[i] if known and long else None, problem.examples) for i, s in enumerate(shapes)
            )
            node = CurvatureNode(
                name=call,
                module=name,
                call=counts[name],
                op=type(module).__name__,
                shape=shapes[0],
                size=sum(p.size(s, problem.examples) for p, s in zip(places, shapes)),
                places=places,
            )
            seen.calls.append(node)
            results.extend((call, value) for value in values)
            if not any(True for _ in module.children()):
                computed += sum(v.numel() * v.element_size() for v in values)

        return hook

    def pack(t: Tensor) -> None:
        """Count what would be kept and keep nothing: no backward follows, and a kept output would hold itself alive."""
        store = t.untyped_storage()
        if store.data_ptr() not in stores:
            stores.add(store.data_ptr())
            seen.kept_bytes += store.nbytes()
            if 3 * seen.kept_bytes > memory:
                raise MemoryError(too_large(3 * seen.kept_bytes, memory, problem.examples))

    handles = [m.register_forward_hook(note(name)) for name, m in problem.model.named_modules() if name and calls]
    try:
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda kept: kept):
            outputs = problem.outputs()
    finally:
        for handle in handles:
            handle.remove()
    seen.outputs = [t.detach() for t in float_outputs(outputs)[0]]
    kept = {id(t) for t in float_outputs(outputs)[0]}
    seen.final = {call for call, value in results if id(value) in kept}
    seen.kept_bytes = max(seen.kept_bytes, computed)
    if 3 * seen.kept_bytes > memory:
        raise MemoryError(too_large(3 * seen.kept_bytes, memory, problem.examples))
    return seen


def too_large(needed: int, memory: int, examples: int) -> str:
    """The sentence of a ``MemoryError``: bytes ``needed``, bytes allowed (``memory``), ``examples`` that would fit."""
    fit = max(1, int(examples * memory / needed))
    return (
        f"a batch of {examples} needs at least {needed / 2**20:.3g} MiB for its graph, the budget is "
        f"{memory / 2**20:.3g} MiB: pass about {fit} examples, or raise memory= {hint('no-memory')}"
    )


def _what(out: Any) -> str:
    """What a module returned, for a sentence."""
    kinds = [str(v.dtype).removeprefix("torch.") for _, v in named_tensors("output", out)]
    return f"{type(out).__name__} of {kinds[0]}" if kinds else type(out).__name__


def _doubled_shapes(problem: Problem, anatomy: Anatomy | None) -> dict[tuple[str, int], list[tuple[int, ...]]]:
    """For every call of a module, the shapes of its floating outputs for a batch of twice the length."""
    if anatomy is None:
        return {}
    problem.narrowest = coarsest(anatomy) or problem.narrowest
    examples, long = doubled_batch(problem.task, anatomy)
    if examples is not None:
        problem.examples = examples
    if long is None:
        return {}
    counts: dict[str, int] = {}
    found: dict[tuple[str, int], list[tuple[int, ...]]] = {}

    def note(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def hook(module: nn.Module, args: Any, out: Any) -> None:
            counts[name] = counts.get(name, 0) + 1
            found[name, counts[name]] = [tuple(v.shape) for v in float_tensors(out)]

        return hook

    handles = [m.register_forward_hook(note(name)) for name, m in problem.model.named_modules() if name]
    try:
        with torch.no_grad():
            long.forward()
    except Exception:  # a model that takes batches of one length only
        return {}
    finally:
        for handle in handles:
            handle.remove()
    return found


def choose(
    problem: Problem, seen: NodeSurvey, nodes: Choice, space: str
) -> tuple[list[CurvatureNode], str, dict[str, str]]:
    """The ``nodes`` of ``space`` to measure in ``problem``, of those ``seen``, in order; how they were chosen; what
    not.
    """
    modules = dict(problem.model.named_modules())
    if nodes is None:
        return _default(problem, seen, space)
    if callable(nodes):
        names = [name for name, m in modules.items() if name and nodes(name, m)]
        if not names:
            raise ValueError("the function given as nodes= selected none of the model's modules")
    else:
        patterns = [nodes] if isinstance(nodes, str) else list(nodes)
        if not patterns:
            raise ValueError("nodes=[] is empty: pass names of submodules, or None for the default blocks")
        weights = [n for n, p in problem.model.named_parameters() if p.requires_grad] if space == "parameter" else []
        names = _matching(patterns, [n for n in modules if n] + weights, seen)
    for name in names:
        if space == "activation" and not any(name in (c.name, c.module) for c in seen.calls):
            why = seen.skipped.get(name, "is not called in the forward pass")
            raise ValueError(f"node {name!r} {why}: choose another module")
    picked = _of_space(problem, seen, names, space)
    return picked, f"{len(picked)} nodes as given", {}


def _default(problem: Problem, seen: NodeSurvey, space: str) -> tuple[list[CurvatureNode], str, dict[str, str]]:
    names, why = _blocks(problem.model, seen) if space == "activation" else _owners(problem.model)
    picked = _of_space(problem, seen, names, space)
    if not picked:
        raise ValueError(
            f"no repeated block was found in {type(problem.model).__name__}: name the layers to measure, for example "
            f"nodes={[c.name for c in seen.calls[:3]]}"
        )
    skipped = dict(seen.skipped) if space == "activation" else _vectors(problem.model, names)
    if len(picked) > MOST:
        step = (len(picked) - 1) / (MOST - 1)
        keep = sorted({round(i * step) for i in range(MOST)})
        why += f", {MOST} of {len(picked)} evenly spaced"
        thinned = f"left out, {MOST} of {len(picked)} nodes are measured by default: name it in nodes="
        skipped |= {n.name: thinned for i, n in enumerate(picked) if i not in keep}
        picked = [picked[i] for i in keep]
    return picked, f"{len(picked)} nodes by default ({why}): {', '.join(n.name for n in picked)}", skipped


def branching(problem: Problem, seen: NodeSurvey) -> tuple[list[CurvatureNode], str, dict[str, str]]:
    """The model's blocks, and the layers that write into its residual streams: the two ways of a skip connection."""
    blocks, why = _blocks(problem.model, seen)
    streams = seen.anatomy.streams if seen.anatomy is not None else ()
    writers = [name for stream in streams for addition in stream.additions for name in addition.writers]
    writers += [name for stream in streams[1:] for name in stream.origin_writers]  # a shortcut that changes the width
    known = {c.module for c in seen.calls}
    names = [n for n in dict.fromkeys([*blocks, *writers]) if n in known]
    picked = _of_space(problem, seen, names, "activation")
    if not writers or not picked or len(picked) > MOST_BRANCHING:
        return _default(problem, seen, "activation")
    return picked, f"{len(picked)} nodes by default ({why}, and the ends of their branches)", dict(seen.skipped)


def _of_space(problem: Problem, seen: NodeSurvey, names: Iterable[str], space: str) -> list[CurvatureNode]:
    wanted = list(dict.fromkeys(names))
    if space == "activation":
        return [c for c in seen.calls if c.name in wanted or c.module in wanted]
    first = {c.module: i for i, c in reversed(list(enumerate(seen.calls)))}
    out = []
    for name in sorted(wanted, key=lambda n: first.get(n, first.get(n.rpartition(".")[0], len(first)))):
        size = sum(p.numel() for p in parameters_of(problem.model, name))
        if size == 0:
            raise ValueError(f"module {name!r} has no trainable parameter: leave it out of nodes=, or unfreeze it")
        op = type(problem.model.get_submodule(name)).__name__ if name in first else "Parameter"
        out.append(parameter_node(name, (size,), op))
    return out


def parameters_of(model: nn.Module, name: str) -> list[nn.Parameter]:
    """The trainable parameters of the submodule ``name`` of ``model``, or the one parameter of that name."""
    weights = dict(model.named_parameters())
    if name in weights:
        return [weights[name]] if weights[name].requires_grad else []
    return [p for p in model.get_submodule(name).parameters() if p.requires_grad]


@lru_cache(maxsize=256)
def _glob(pattern: str) -> re.Pattern[str]:
    """``*`` and ``?`` stay within one part of a dotted name, ``**`` crosses dots: ``blocks.*.attn``, ``**.linear``.

    >>> bool(_glob("stages.*").fullmatch("stages.0")), bool(_glob("stages.*").fullmatch("stages.0.conv"))
    (True, False)
    """
    parts = re.split(r"(\*\*|\*|\?)", pattern)
    wild = {"**": ".*", "*": "[^.]*", "?": "[^.]"}
    return re.compile("".join(wild.get(p, re.escape(p)) for p in parts))


def _matching(patterns: list[str], names: list[str], seen: NodeSurvey) -> list[str]:
    known = names + [c.name for c in seen.calls if c.call > 1]
    out: list[str] = []
    for pattern in patterns:
        hits = [n for n in known if n == pattern] or [n for n in names if _glob(pattern).fullmatch(n)]
        if not hits:
            near = difflib.get_close_matches(pattern, known, n=3) or known[:5]
            raise ValueError(f"no module matches {pattern!r}; did you mean {', '.join(near)}?")
        out += hits
    return out


def _blocks(model: nn.Module, seen: NodeSurvey) -> tuple[list[str], str]:
    """Outputs of the model's blocks before its head; a lone backbone is opened until its own blocks show."""
    called = {c.module: i for i, c in reversed(list(enumerate(seen.calls)))}
    tops = _expand("", model)
    while True:
        ordered = sorted((t for t in tops if t[0] in called), key=lambda t: called[t[0]])
        kept = _before_the_head(_by_weight_matrix(ordered), ordered, seen)
        lone = len(kept) < 2
        wanted = [name for name, m in tops if len(ordered) < 2 or (lone and _holds_blocks(m))]
        deeper = [pair for name, m in tops for pair in (name in wanted and _expand(name, m)) or [(name, m)]]
        if [n for n, _ in deeper] == [n for n, _ in tops]:
            return kept, "blocks before the head"
        tops = deeper


def _by_weight_matrix(ordered: Sequence[tuple[str, nn.Module]]) -> list[str]:
    """Blocks stand for themselves; a run of plain layers is one node per weight matrix and what follows it."""
    names: list[str] = []
    run: list[str] = []  # plain layers since the last weight matrix, which is the first of them

    def flush() -> None:
        """The last layer of the run stands for it."""
        names.extend(run[-1:])
        run.clear()

    for name, m in ordered:
        if not _heavy(m):
            if run:
                run.append(name)
        elif any(True for _ in m.children()) and not isinstance(m, _PARAMETRIC):  # a block of its own
            flush()
            names.append(name)
        else:
            flush()
            run.append(name)
    flush()
    return names


def _before_the_head(names: list[str], ordered: Sequence[tuple[str, nn.Module]], seen: NodeSurvey) -> list[str]:
    last = {c.module for c in seen.calls if c.name in seen.final}
    inner = [n for n in names if n not in last]
    place = {name: i for i, (name, _) in enumerate(ordered)}
    return [n for n in inner if any(_heavy(m) for _, m in ordered[place[n] + 1 :])] or inner or names


def _holds_blocks(m: nn.Module) -> bool:
    return any(isinstance(c, _CONTAINERS) and len(c) > 1 for c in m.modules())


def _heavy(m: nn.Module) -> bool:
    """Holds a weight matrix, in a layer of torch or in one of the user's."""
    return any(
        isinstance(c, _PARAMETRIC)
        or (not isinstance(c, _NORMS) and any(p.ndim > 1 for p in c.parameters(recurse=False)))
        for c in m.modules()
    )


def _expand(prefix: str, module: nn.Module) -> list[tuple[str, nn.Module]]:
    out: list[tuple[str, nn.Module]] = []
    for name, child in module.named_children():
        full = f"{prefix}.{name}" if prefix else name
        out += _expand(full, child) if isinstance(child, _CONTAINERS) else [(full, child)]
    return out


def _owners(model: nn.Module) -> tuple[list[str], str]:
    """Modules that hold weights themselves; norms and lone vectors are left to the caller."""
    heavy = [
        n
        for n, m in model.named_modules()
        if n and any(p.requires_grad and p.ndim > 1 for p in m.parameters(recurse=False))
    ]
    return heavy, "modules with a weight matrix"


def _vectors(model: nn.Module, chosen: Iterable[str]) -> dict[str, str]:
    """Modules with parameters that are no default node of parameter space, and why."""
    taken = set(chosen)
    return {
        n: "frozen" if not any(p.requires_grad for p in m.parameters(recurse=False)) else "holds only vectors"
        for n, m in model.named_modules()
        if n and n not in taken and any(True for _ in m.parameters(recurse=False))
    }
