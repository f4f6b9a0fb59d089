"""The graph of a loss, before ``backward`` frees it: which losses it ends in, what feeds them, and with which sign.

Everything here reads ``grad_fn`` nodes. Names and shapes cost microseconds; tensors are read at the losses only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

NEAR = 400  # nodes from the root that are searched for losses
MOST = 200_000  # nodes that are counted

RESHAPES = frozenset([
    "View", "UnsafeView", "ReshapeAlias", "Squeeze", "Unsqueeze", "Transpose", "T", "Permute", "Clone", "ToCopy",
    "Slice", "Select", "Expand", "Alias", "AsStrided", "Narrow", "Contiguous", "MaskedSelect", "Index", "MaskedFill",
    "Split", "SplitWithSizes", "Unbind",
])  # fmt: skip
ACTIVATIONS = {
    "Softmax": "softmax", "LogSoftmax": "log_softmax", "Sigmoid": "sigmoid", "Relu": "relu", "Tanh": "tanh",
    "LogSigmoid": "log_sigmoid", "Hardtanh": "hardtanh", "HardSigmoid": "hardsigmoid",
    "Softplus": "softplus", "Exp": "exp", "Elu": "elu", "Silu": "silu", "Gelu": "gelu", "LeakyRelu": "leaky_relu",
}  # fmt: skip
LOSSES = {
    "NllLoss": "nll", "NllLoss2D": "nll", "BinaryCrossEntropy": "bce", "BinaryCrossEntropyWithLogits": "bce_logits",
    "MseLoss": "mse", "SmoothL1Loss": "l1", "HuberLoss": "l1", "MultiMarginLoss": "margin",
    "MultilabelMarginLoss": "margin", "SoftMarginLoss": "margin",
}  # fmt: skip
WEIGHTED = frozenset(["Addmm", "Mm", "Convolution", "Bmm", "Baddbmm", "MkldnnConvolution", "Mv", "Addmv", "SqueezeMm"])
LINEAR = (WEIGHTED | RESHAPES) | {
    "AccumulateGrad", "Add", "Sub", "Neg", "Mean", "Sum", "AvgPool2D", "AdaptiveAvgPool2D", "AdaptiveAvgPool1D",
    "AvgPool1D", "NativeBatchNorm", "NativeDropout", "Cat", "Stack", "ConstantPadNd",
}  # fmt: skip
SINGULAR = {  # functions with an infinite value or gradient, and where: at zero, or where the size is one
    "Log": 0.0, "Sqrt": 0.0, "Rsqrt": 0.0, "Reciprocal": 0.0, "Acos": 1.0, "Asin": 1.0, "Atanh": 1.0, "Div": 0.0,
    "Pow": 0.0, "Log1P": -1.0,
}  # fmt: skip
FLAT = frozenset(["Sign", "Round", "Floor", "Ceil", "Trunc", "Heaviside", "Sgn"])
STOPS = frozenset(
    ["Addmm", "Mm", "Bmm", "Convolution", "NativeBatchNorm", "NativeLayerNorm", "Embedding", "AccumulateGrad"]
)


def name_of(node: Any) -> str:
    """The operation of a node: ``LogSoftmaxBackward0`` is LogSoftmax."""
    return node.name().rpartition("::")[2].partition("Backward")[0]


def shape_of(node: Any) -> tuple[int, ...]:
    """The shape of what the node's operation returned."""
    try:
        return tuple(int(n) for n in node._input_metadata[0].shape)
    except (AttributeError, IndexError, RuntimeError):
        return ()


def saved(node: Any, name: str) -> Any:
    """What the node saved under ``name``; None where it did not, or it is gone."""
    try:
        return getattr(node, f"_saved_{name}")
    except (AttributeError, RuntimeError):
        return None


def parents(node: Any) -> list[Any]:
    """The nodes behind a node, those without a gradient left out."""
    return [fn for fn, _ in node.next_functions if fn is not None]


def source(node: Any) -> tuple[Any, list[Any]]:
    """The first operation behind ``node`` that does more than reshape, and the reshapes between."""
    between: list[Any] = []
    while node is not None and name_of(node) in RESHAPES and len(parents(node)) == 1:
        between.append(node)
        node = parents(node)[0]
    return node, between


@dataclass(frozen=True)
class LossNode:
    """One loss in the graph."""

    kind: str  # nll, bce, bce_logits, mse, l1, margin, ctc, log_prob
    sign: int  # of its weight in the whole loss; 0 where it is not known
    reduction: str = "mean"
    activation: str = ""  # the function that feeds it
    shape: tuple[int, ...] = ()  # of what it compares
    stretched: tuple[int, ...] = ()  # the shape of the prediction, where it was broadcast to ``shape``
    prediction: Tensor | None = None
    target: Tensor | None = None
    ignored: int = -100
    weighted: bool = False
    before: str = ""  # the function before a log_softmax
    dim: int | None = None  # of the softmax that feeds the loss, and the shape of its output
    over: tuple[int, ...] = ()
    terms: int = 1
    without: int | None = None  # a class whose weight is zero; of CTC, the blank where it is a label
    share: float = 0.0  # of the entries that a clamp cuts off


@dataclass
class LossGraph:
    """What a walk through a loss found."""

    losses: list[LossNode] = field(default_factory=list)
    softmaxes: list[tuple[str, int, tuple[int, ...]]] = field(default_factory=list)  # name, dimension, shape
    leaves: list[Tensor] = field(default_factory=list)
    nodes: int = 0
    weights: int = 0  # operations with weights
    linear: bool = True  # nothing but linear operations behind the last layer
    steps: list[Any] = field(default_factory=list)  # nodes of functions whose gradient is zero everywhere
    singular: list[Any] = field(default_factory=list)  # nodes whose gradient may be infinite


def losses_of(root: Any) -> list[LossNode]:
    """The losses that ``root`` is made of.

    >>> import torch.nn.functional as F
    >>> x = torch.ones(4, 3, requires_grad=True)
    >>> loss = F.cross_entropy(x.softmax(1), torch.ones(4).long())
    >>> [(one.kind, one.before, one.sign) for one in losses_of(loss.grad_fn)]
    [('nll', 'softmax', 1)]
    """
    out: list[LossNode] = []
    todo: list[tuple[Any, int]] = [(root, 1)]
    seen: set[Any] = set()
    while todo and len(seen) < NEAR:
        node, sign = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        name = name_of(node)
        if name in STOPS:
            continue
        if name in ("Mean", "Sum", "MaskedSelect"):
            out += _stretched(node, name)
        if name in ("Clamp", "ClampMin", "ClampMax"):
            out += _clamped(node, name, scalar=sign == 1 and len(seen) < 4)
        if name == "Mul":
            out += _pattern(node)
        loss = _loss(node, name, sign) or _divergence(node, name, sign)
        if loss is not None:
            dim, over = softmax_near(node if loss.kind == "log_prob" else node.next_functions[0][0])
            out.append(replace(loss, dim=dim, over=over))
            continue
        todo += [(fn, sign * s) for fn, s in _signed(node, name)]
    return out


def _clamped(node: Any, name: str, scalar: bool) -> list[LossNode]:
    """A loss, or the errors that it averages, with an upper limit that some of them reach."""
    if shape_of(node) == ():
        return [LossNode("clamped", 0)] if scalar else []
    fn, _ = source(parents(node)[0]) if parents(node) else (None, [])
    top, values = saved(node, "max"), _tensor(saved(node, "self"))
    if name == "ClampMin" or fn is None or not isinstance(top, int | float) or values is None:
        return []
    error = name_of(fn) in LOSSES or _loss(fn, name_of(fn), 1) is not None
    share = float((values > top).float().mean()) if error else 0.0
    return [LossNode("clamped", 0, share=share)] if share > 0 else []


def _pattern(node: Any) -> list[LossNode]:
    """Products that say something of a loss: a mean times a mask, a log-probability times an advantage with a
    gradient, probabilities where a divergence expects their logarithm."""
    edges = [fn for fn, _ in node.next_functions]
    given = [fn for fn in edges if fn is not None]
    if len(given) == 1:
        inner, shape = given[0], shape_of(node)
        if _log_probability(inner):
            return [LossNode("advantage", 1)]
        if shape == () or not (name_of(inner) in LOSSES or (name_of(inner) == "Mean" and shape_of(inner) == ())):
            return []
        return [LossNode("masked", int(shape_of(inner) == shape), shape=shape)]
    if len(given) != 2 or shape_of(given[0]) != shape_of(given[1]):
        return []
    for chosen, weight in (given, given[::-1]):
        if _log_probability(chosen) and _difference_from_constant(weight):
            return [LossNode("advantage", 0)]
    return []


def _divergence(node: Any, name: str, sign: int) -> LossNode | None:
    """A Kullback–Leibler divergence as ``kl_div`` computes it: a constant minus probabilities times the input."""
    product = parents(node)[0] if name == "Sub" and len(parents(node)) == 1 else None
    if product is None or node.next_functions[0][0] is not None or name_of(product) != "Mul":
        return None
    target, inputs = _tensor(saved(product, "self")), parents(product)
    if len(inputs) != 1 or target is None or target.ndim < 2 or not target.is_floating_point():
        return None
    if float(target.min()) < 0 or not any(bool(((target.sum(d) - 1).abs() < 1e-3).all()) for d in (-1, 1)):
        return None
    fn, _ = source(inputs[0])
    name = "" if fn is None else name_of(fn)
    return LossNode(
        "kl", sign, activation="logits" if name in WEIGHTED else ACTIVATIONS.get(name, ""), shape=shape_of(node)
    )


def _log_probability(node: Any) -> bool:
    """Whether a node picks the log-probabilities of actions: an index into log_softmax, or logits − logsumexp."""
    picked = False
    for _ in range(8):
        name = name_of(node)
        if name in ("Gather", "Index"):
            picked = True
        elif name in ("LogSoftmax", "Sub"):
            return picked and (name == "LogSoftmax" or any(name_of(fn) == "Logsumexp" for fn in parents(node)))
        elif name not in RESHAPES:
            return False
        if not parents(node):
            return False
        node = parents(node)[0]
    return False


def _difference_from_constant(node: Any) -> bool:
    node, _ = source(node)
    edges = [fn for fn, _ in node.next_functions] if node is not None else []
    return node is not None and name_of(node) in ("Sub", "Rsub") and len(edges) == 2 and edges.count(None) == 1


def bootstrapped(node: Any) -> bool:
    """Whether a target is a reward and a discounted maximum: its gradient flows into the network that it judges."""
    todo, steps = [node], 0
    while todo and steps < 12:
        fn, steps = todo.pop(0), steps + 1
        name = name_of(fn)
        if name in ("Max", "Amax"):
            return True
        if name in ("Add", "Sub", "Mul", "Rsub", *RESHAPES):
            todo += parents(fn)
    return False


def singular_points(nodes: list[Any]) -> dict[str, int]:
    """Functions of a graph that stand at a point where their value or gradient is infinite → how many entries."""
    out: dict[str, int] = {}
    for node in nodes:
        name = name_of(node)
        at = _tensor(saved(node, "other" if name == "Div" else "result" if name in ("Sqrt", "Rsqrt") else "self"))
        if at is None or not at.is_floating_point():
            continue
        if name == "Pow":
            exponent = saved(node, "exponent")
            if not isinstance(exponent, int | float) or not exponent < 1:
                continue
        if name == "Rsqrt":
            bad = ~torch.isfinite(at)
        else:
            edge = SINGULAR[name]
            bad = at.abs() >= 1 if edge == 1 else at <= edge if name != "Div" else at == 0
        count = int(bad.sum())
        if count:
            out[name.lower()] = out.get(name.lower(), 0) + count
    return out


def _stretched(node: Any, name: str) -> list[LossNode]:
    """A product or difference of (N,) with (N, 1) that is averaged as N × N, or a mask of another shape."""
    if name == "MaskedSelect":
        mask, own = saved(node, "mask"), shape_of(parents(node)[0]) if parents(node) else ()
        if isinstance(mask, Tensor) and len(own) == 2 and own[1] == 1 and tuple(mask.shape) == own[:1] and own[0] > 1:
            return [LossNode("broadcast", 0, shape=(own[0], own[0]), stretched=own)]
        return []
    if shape_of(node) != () or not parents(node):
        return []
    inner = parents(node)[0]
    while name_of(inner) in ("Neg", *RESHAPES) and len(parents(inner)) == 1:
        inner = parents(inner)[0]
    shape = shape_of(inner)
    if name_of(inner) not in ("Mul", "Sub", "Add", "Rsub") or len(shape) != 2 or shape[0] != shape[1] or shape[0] < 2:
        return []
    given = [shape_of(fn) for fn in parents(inner)]
    if len(given) == 1 and given[0] in ((shape[0],), (shape[0], 1)):
        return [LossNode("broadcast", 0, shape=shape, stretched=given[0])]
    return []


def _signed(node: Any, name: str) -> Iterator[tuple[Any, int]]:
    """The inputs of an operation, each with the sign of its weight."""
    edges = [fn for fn, _ in node.next_functions]
    if name == "Neg":
        signs = [-1] * len(edges)
    elif name in ("Sub", "Rsub"):
        alpha = saved(node, "alpha")
        factor = -1 if alpha is None or not isinstance(alpha, int | float) or alpha > 0 else 1
        signs = [1, factor] if name == "Sub" else [factor, 1]
    elif name in ("Mul", "Div"):
        other = saved(node, "other")
        signs = [_sign(other)] + [_sign(saved(node, "self"))] * (len(edges) - 1)
    elif name in ("Add", "Sum", "Mean", "Stack", "Cat", "Gather", "Where", *RESHAPES):
        signs = [1] * len(edges)
    else:
        signs = [0] * len(edges)
    yield from zip(edges, [*signs, *[0] * len(edges)])


def _sign(value: Any) -> int:
    if isinstance(value, int | float):
        return 1 if value > 0 else -1 if value < 0 else 0
    if isinstance(value, Tensor) and value.numel():
        low, high = (float(v) for v in torch.aminmax(value.detach().float()))
        return 1 if low >= 0 < high else -1 if high <= 0 > low else 0
    return 0


def _loss(node: Any, name: str, sign: int) -> LossNode | None:
    kind = LOSSES.get(name)
    if name.endswith("Target") or (kind in ("bce", "bce_logits") and node.next_functions[0][0] is None):
        return LossNode("swapped", 0)
    if kind is not None:
        prediction, target = _tensor(saved(node, "self")), _tensor(saved(node, "target"))
        feed = node.next_functions[0][0] if node.next_functions else None
        fn, between = source(feed)
        stretch = next((shape_of(parents(b)[0]) for b in between if name_of(b) == "Expand" and parents(b)), ())
        activation = ACTIVATIONS.get(name_of(fn), "") if fn is not None else ""
        before = ""
        if activation == "log_softmax":
            inner, _ = source(parents(fn)[0]) if parents(fn) else (None, [])
            before = ACTIVATIONS.get(name_of(inner), "") if inner is not None else ""
        reduction = {0: "none", 1: "mean", 2: "sum"}.get(saved(node, "reduction"), "mean")
        ignored = _ignored(node)
        weight = saved(node, "weight")
        weighted = isinstance(weight, Tensor) or isinstance(saved(node, "pos_weight"), Tensor)
        zero = None
        if kind == "nll" and isinstance(weight, Tensor) and target is not None and not bool(weight.all()):
            labels = torch.unique(target[target != _ignored(node)])
            labels = labels[(labels >= 0) & (labels < len(weight))]
            zero = next((int(k) for k in labels if not bool(weight[k])), None)
        shape = tuple(prediction.shape) if prediction is not None else shape_of(feed) if feed is not None else ()
        return LossNode(
            kind,
            sign,
            reduction,
            activation,
            shape,
            stretch,
            prediction,
            target,
            ignored,
            weighted,
            before,
            without=zero,
        )
    if name == "CtcLoss":
        values, labels = _tensor(saved(node, "log_probs")), _tensor(saved(node, "targets"))
        lengths, blank = saved(node, "target_lengths"), saved(node, "blank")
        zero = None
        if labels is not None and labels.ndim == 2 and isinstance(lengths, list | tuple):
            rows = zip(labels, lengths)
            zero = blank if any(bool((row[:n] == blank).any()) for row, n in rows) else None
        return LossNode("ctc", sign, prediction=values, without=zero)
    if name in ("Pow", "Abs") and (name == "Abs" or saved(node, "exponent") == 2):
        return _difference(node, "mse" if name == "Pow" else "l1", sign)
    if name in ("Mul",) and len(parents(node)) == 2 and parents(node)[0] is parents(node)[1]:
        return _difference(node, "mse", sign)
    if name in ("LogSoftmax", "LogSigmoid") or (name == "Log" and _probability(node)):
        inner, _ = source(parents(node)[0]) if parents(node) else (None, [])
        for _ in range(3):  # a limit, or 1 − p, between the probability and its logarithm
            if name == "Log" and inner is not None and name_of(inner) in ("Clamp", "Add", "Rsub") and parents(inner):
                inner, _ = source(parents(inner)[0])
        before = ACTIVATIONS.get(name_of(inner), "") if inner is not None else ""
        return LossNode("log_prob", sign, activation=ACTIVATIONS.get(name, "log"), shape=shape_of(node), before=before)
    return None


def _ignored(node: Any) -> int:
    ignored = saved(node, "ignore_index")
    return -100 if ignored is None else ignored - (1 << 64) if ignored > 1 << 62 else ignored


def _probability(node: Any) -> bool:
    fn, _ = source(parents(node)[0]) if parents(node) else (None, [])
    if fn is None or name_of(fn) not in ("Softmax", "Sigmoid", "Gather", "Clamp", "Add", "Rsub"):
        return False
    values = _tensor(saved(node, "self"))
    return values is None or not bool((values > 1.001).any())  # a sum that a score is divided by is none


def _difference(node: Any, kind: str, sign: int) -> LossNode | None:
    """A squared or absolute difference written out by hand."""
    minus, _ = source(parents(node)[0]) if parents(node) else (None, [])
    if minus is None or name_of(minus) not in ("Sub", "Rsub"):
        return None
    difference = _tensor(saved(node, "self"))
    edges = [fn for fn, _ in minus.next_functions]
    given = [fn for fn in edges if fn is not None]
    if difference is None or not given:
        return None
    if len(given) == 2:  # both depend on parameters: a distance, not a comparison with a target
        return LossNode(kind, sign, "mean", "", tuple(difference.shape), terms=2)
    fn, _ = source(given[0])
    activation = ACTIVATIONS.get(name_of(fn), "") if fn is not None else ""
    output = _tensor(saved(fn, "result")) if activation in ("sigmoid", "tanh", "relu", "softmax") else None
    shape, own = tuple(difference.shape), shape_of(given[0])
    prediction = target = None
    if output is not None and output.numel() == difference.numel():
        prediction = output.reshape(difference.shape)
        forward = (edges[0] is not None) == (name_of(minus) == "Sub")
        target = prediction - difference if forward else prediction + difference
    return LossNode(kind, sign, "mean", activation, shape, own if own != shape else (), prediction, target)


def _tensor(value: Any) -> Tensor | None:
    return value.detach() if isinstance(value, Tensor) else None


def _cut_off(root: Any, flat: set[Any], leaves: list[Tensor]) -> list[Tensor]:
    """Leaves that are reached through functions with zero gradient only."""
    todo, seen, reached = [root], {root}, set()
    while todo:
        node = todo.pop()
        if name_of(node) == "AccumulateGrad":
            reached.add(id(node.variable))
        for fn, _ in node.next_functions:
            if fn is not None and fn not in seen and fn not in flat:
                seen.add(fn)
                todo.append(fn)
    return [p for p in leaves if id(p) not in reached]


def softmax_near(node: Any) -> tuple[int | None, tuple[int, ...]]:
    """Dimension and shape of the softmax that ``node`` is, or that feeds it; None where there is none."""
    for _ in range(4):
        if node is None:
            break
        name = name_of(node)
        if name in ("Softmax", "LogSoftmax"):
            dim, shape = saved(node, "dim"), shape_of(node)
            if isinstance(dim, int) and shape:
                return (dim - (1 << 64) if dim > 1 << 62 else dim) % len(shape), shape
            break
        if name not in ("Log", "Gather", *RESHAPES) or not parents(node):
            break
        node = parents(node)[0]
    return None, ()


def is_mean(root: Any, loss: LossNode) -> bool:
    """Whether ``root`` is this loss, as a mean without weights."""
    name = name_of(root)
    return not loss.weighted and ((name in LOSSES and loss.reduction == "mean") or (name == "Mean" and loss.sign == 1))


def examples_summed(root: Any, examples: int) -> int:
    """Over how many examples a scalar loss is a sum that nothing divides; 0 where it is not one."""
    node = root
    for _ in range(6):
        name = name_of(node)
        if name == "Sum" and parents(node):
            shape = shape_of(parents(node)[0])
            return examples if shape and shape[0] == examples and examples >= 4 else 0
        if name not in ("Neg", *RESHAPES) or len(parents(node)) != 1:
            return 0
        node = parents(node)[0]
    return 0


def walk(root: Any) -> LossGraph:
    """The whole graph: its leaves, how many nodes it has, and every softmax in it."""
    graph = LossGraph()
    todo, seen, below = [root], {root}, set[Any]()
    while todo and len(seen) < MOST:
        node = todo.pop()
        name = name_of(node)
        graph.weights += name in WEIGHTED
        if name in WEIGHTED or node in below:  # what lies behind a layer, seen from the loss
            below.update(fn for fn, _ in node.next_functions if fn is not None)
            graph.linear = graph.linear and name in LINEAR
        if name in FLAT:
            graph.steps.append(node)
        if name in SINGULAR and len(graph.singular) < 100:
            graph.singular.append(node)
        if name == "AccumulateGrad":
            graph.leaves.append(node.variable)
        elif name in ("Softmax", "LogSoftmax"):
            dim, shape = saved(node, "dim"), shape_of(node)
            if isinstance(dim, int) and shape:
                dim = dim - (1 << 64) if dim > 1 << 62 else dim
                graph.softmaxes.append((name, dim % len(shape), shape))
        for fn, _ in node.next_functions:
            if fn is not None and fn not in seen:
                seen.add(fn)
                todo.append(fn)
    graph.nodes = len(seen)
    if graph.steps:
        graph.steps = [_cut_off(root, set(graph.steps), graph.leaves)]
    return graph
