"""Checks of the untrained model: its first loss, its first outputs, its first update, its own gradients."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from netvitals.capture import mapped
from netvitals.checks import LossNode
from netvitals.preflights.setup import output

if TYPE_CHECKING:
    from netvitals.preflights.run import Bench

HIGH = 3.0  # times what guessing costs
TARGETS = 100.0  # times what the best constant costs, for a squared error
FLAT = 1e-4  # spread of the outputs between examples, against their size
LARGE = 0.5  # of the weights: the median first update
WRONG = 0.05  # relative difference of a derivative from its numeric value


def guess(loss: LossNode) -> tuple[float, float]:
    """What guessing costs, and what the best constant output costs on these targets; NaN where it is not known.

    >>> import torch
    >>> cost, best = guess(LossNode("bce_logits", 1, target=torch.tensor([0.0, 1.0])))
    >>> round(cost, 3), round(best, 3)
    (0.693, 0.693)
    """
    target = loss.target
    if target is None or not target.numel():
        return math.nan, math.nan
    if loss.kind == "nll" and len(loss.shape) > 1:
        used = target[target != loss.ignored].reshape(-1)
        if not used.numel():
            return math.nan, math.nan
        p = torch.bincount(used.cpu()).double() / used.numel()
        return math.log(loss.shape[1]), float(-torch.xlogy(p, p).sum())
    y = target.double()
    if not bool(torch.isfinite(y).all()):
        return math.nan, math.nan
    mean = y.mean(0) if y.ndim > 1 else y.mean()
    if loss.kind in ("bce", "bce_logits") and float(y.min()) >= 0 and float(y.max()) <= 1:
        return math.log(2), float(-(torch.xlogy(mean, mean) + torch.xlogy(1 - mean, 1 - mean)).mean())
    if loss.kind == "mse":
        return float(y.square().mean()), float((y - mean).square().mean())
    if loss.kind == "l1":
        middle = y.median(0).values if y.ndim > 1 else y.median()
        return float(y.abs().mean()), float((y - middle).abs().mean())
    return math.nan, math.nan


def loss_at_initialisation(bench: Bench) -> None:
    """The first loss beside what guessing costs."""
    loss = bench.loop.loss
    cost, best = guess(loss) if loss is not None else (math.nan, math.nan)
    if loss is None or not math.isfinite(cost) or cost <= 0:
        return bench.skip("not applicable", "it needs a cross-entropy or a regression loss, and nothing added to it")
    if not all(p.requires_grad for p in bench.setup.root.parameters() if p.ndim >= 2):
        return bench.skip("not applicable", "part of the model is frozen, so it has been trained before")
    first = bench.loop.losses[0]
    words = f"the first loss is {first:.4g}; guessing gives {cost:.4g}, the best constant output {best:.4g}"
    classified = loss.kind in ("nll", "bce", "bce_logits")
    limit = max(HIGH * cost, cost + 2) if classified else max(HIGH * cost, TARGETS * best if best > 0 else HIGH * cost)
    over = first > limit
    far = not classified and 0 < best < cost / TARGETS and first > best * TARGETS
    bench.answer(
        over or far,
        words,
        healthy=f"≤ {limit:.3g}",
        why="The targets are far from 0, but the first outputs are near 0."
        if far and not over
        else "The first outputs are far too large, so the first steps only shrink them.",
        fix="Standardise the targets: y = (y - y_train.mean()) / y_train.std()."
        if far and not over
        else "Keep PyTorch's initialisation, or shrink the last layer: model.head.weight.data.mul_(0.01). "
        "Check the scale of the inputs.",
    )


def vanishing_signal(bench: Bench) -> None:
    """How much the first output differs between examples."""
    with torch.no_grad():
        found = output(bench.copy(), bench.batch(0))
    if found is None or found.ndim < 1 or len(found) < 4:
        return bench.skip("not applicable", "it needs a model with one output tensor and four examples")
    size = float(found.double().square().mean().sqrt())
    spread = float(found.double().std(0).square().mean().sqrt())
    zeros = any(not bool(p.any()) for p in bench.setup.root.parameters() if p.ndim >= 2)
    if not math.isfinite(size) or size == 0 or (spread == 0 and zeros):
        return bench.skip("not applicable", "the output is zero, not finite, or behind a layer of zeros")
    bench.answer(
        spread < FLAT * size,
        f"the spread of outputs over examples is {spread / size:.2g} of their size",
        healthy=f"> {FLAT:g}",
        why="An output that hardly depends on the input gives almost no gradient.",
        fix="Use nn.LayerNorm between layers or skip connections, and ReLU or GELU instead of sigmoid or tanh.",
    )


def update_size(bench: Bench) -> None:
    """The size of the first update of each weight matrix against the matrix."""
    if not bench.setup.given:
        return bench.skip("not applicable", "no optimizer was given")
    ratios = sorted(v for v in bench.loop.moved.values() if math.isfinite(v))
    if not ratios:
        return bench.skip("not enough data", "no weight matrix got a gradient")
    middle = ratios[len(ratios) // 2]
    rate = max(float(g["lr"]) for o in bench.setup.optimizers for g in o.param_groups)
    bench.answer(
        middle > LARGE,
        f"the median update/weight ratio of the first step is {middle:.2g}",
        healthy=f"< {LARGE:g}; about 0.001 is usual",
        why="Updates this large overwrite the initial weights.",
        fix=f"Set lr={rate * 1e-2 / middle:.1g} (now {rate:.3g}), or warm up.",
    )


def custom_gradient(bench: Bench) -> None:
    """Custom autograd functions: whether backward is the derivative of forward.

    Functions that pass their input on (gradient reversal) or are constant nearly everywhere (straight-through
    estimators) mean what they do, and are left out.
    """
    found = _applied(bench)
    if not found:
        return bench.skip("not applicable", "the loss has no custom autograd function")
    wrong, right = {}, 0
    torch.manual_seed(0)
    for name, function, args in found:
        verdict = _derivative(function, args)
        if verdict is None:
            continue
        right += 1
        analytic, numeric = verdict
        if abs(analytic - numeric) > WRONG * max(abs(analytic), abs(numeric)):
            wrong[name] = verdict
    if not right:
        return bench.skip("not applicable", "its functions are identities, steps, or have no floating-point input")
    first = next(iter(wrong), "")
    bench.answer(
        bool(wrong),
        f"{first}.backward gives {wrong[first][0]:.4g}, but the numeric derivative is {wrong[first][1]:.4g}"
        if wrong
        else f"{right} custom {'function' if right == 1 else 'functions'} agree with their numeric derivative",
        healthy=f"equal within {WRONG:.0%}",
        why="With a wrong derivative the optimizer does not minimise the loss.",
        fix=f"Run torch.autograd.gradcheck({first or 'Function'}.apply, inputs.double()) to find the wrong entry.",
    )


def _applied(bench: Bench) -> list[tuple[str, Any, tuple[Any, ...]]]:
    """Custom functions in the graph of the first loss, with the inputs of their first call."""
    setup = bench.copy()
    loss = setup.loss(bench.batch(0))
    classes: dict[type, None] = {}
    todo, seen = [loss.grad_fn], {loss.grad_fn}
    while todo and len(seen) < 100_000:
        node = todo.pop()
        owner = getattr(node, "_forward_cls", None)
        if owner is not None and not str(owner.__module__).startswith(("torch.", "netvitals.")):
            classes[owner] = None
        for fn, _ in node.next_functions if node is not None else ():
            if fn is not None and fn not in seen:
                seen.add(fn)
                todo.append(fn)
    inputs: dict[type, tuple[Any, ...]] = {}
    originals = {owner: vars(owner).get("forward") for owner in classes}

    def recording(owner: type, original: Any) -> Any:
        function = original.__func__ if isinstance(original, staticmethod) else original
        base: Any = torch.autograd.Function
        begin = int(getattr(owner, "setup_context", None) is base.setup_context)  # forward gets a context

        def forward(*args: Any) -> Any:
            own = args[begin:]
            inputs.setdefault(owner, mapped(own, lambda t: t.detach().clone()))
            return function(*args)

        return staticmethod(forward)

    try:
        for owner, original in originals.items():
            if original is not None:
                owner.forward = recording(owner, original)  # type: ignore[attr-defined]
        setup.loss(bench.batch(0))
    finally:
        for owner, original in originals.items():
            if original is not None:
                owner.forward = original  # type: ignore[attr-defined]
    return [(owner.__name__, owner, args) for owner, args in inputs.items()]


def _derivative(function: Any, args: tuple[Any, ...]) -> tuple[float, float] | None:
    """⟨g, d⟩ and the numeric derivative along a random direction d, in float64; None where it is not asked."""
    double = [a.double() if isinstance(a, Tensor) and a.is_floating_point() else a for a in args]
    places = [i for i, a in enumerate(double) if isinstance(a, Tensor) and a.is_floating_point()]
    if not places:
        return None
    ways = {i: torch.randn_like(double[i]) for i in places}

    def along(t: float) -> Any:
        moved = [a + t * ways[i] if i in ways else a for i, a in enumerate(double)]
        out = function.apply(*moved)
        return out[0] if isinstance(out, tuple) else out

    base = along(0.0)
    if any(double[i].shape == base.shape and torch.equal(double[i], base) for i in places):
        return None
    weight = torch.randn_like(base)
    step = 1e-6 * max(float(double[i].abs().max()) for i in places) or 1e-6
    numeric = float(((along(step) - along(-step)) / (2 * step) * weight).sum())
    coarse = float(((along(8 * step) - along(-8 * step)) / (16 * step) * weight).sum())
    if abs(numeric - coarse) > WRONG * max(abs(numeric), abs(coarse)) or numeric == 0:
        return None  # steps and kinks
    leaves = [a.clone().requires_grad_() if i in ways else a for i, a in enumerate(double)]
    out = function.apply(*leaves)
    out = out[0] if isinstance(out, tuple) else out
    if not out.requires_grad:
        return 0.0, numeric
    grads = torch.autograd.grad((out * weight).sum(), [leaves[i] for i in places], allow_unused=True)
    return sum(float((g * ways[i]).sum()) for i, g in zip(places, grads) if g is not None), numeric


def without_dropout(root: nn.Module) -> None:
    """Switch dropout off."""
    for module in root.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            module.eval()
