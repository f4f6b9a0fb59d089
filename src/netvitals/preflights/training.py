"""Checks that train copies: on a few examples, at several learning rates, and in train and eval mode."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from netvitals.capture import mapped, tensors
from netvitals.checks import is_mean, losses_of
from netvitals.preflights.first_step import guess, without_dropout
from netvitals.preflights.result import RateRange
from netvitals.preflights.setup import Setup, examples_of, needs_closure, parts_of

if TYPE_CHECKING:
    from netvitals.preflights.run import Bench

EXAMPLES = 4  # that a copy memorises
MEMORISED = 0.3  # of what the best constant costs
STEPS = 300
RATES = (1e-2, 1e-3)  # of the Adam that memorises
FACTORS = tuple(10 ** (k / 2) for k in range(-8, 9))  # of the user's learning rate
RANGE_STEPS = 20
LOW = 0.02  # of the largest fall of the loss: rates below it hardly learn
TOO_LOW = 30.0  # times below the best rate
FALL = 0.3  # of the loss without training that the best rate must save before a lower one is called too low
APART, BEHIND = 5.0, 0.1  # a rate is too high where one so many times lower saves ten times as much
LEAST = 0.01  # of the loss without training; where no rate saves as much, rates cannot be told apart
DIVERGED = 1.5  # times the loss without training


def memorises(bench: Bench) -> None:
    """Whether a copy can fit a few examples."""
    setup = bench.setup
    if len(setup.losses) > 1:
        return bench.skip("not applicable", "with several losses none of them need fall to its lowest value")
    if bench.loop.loss is None or not math.isfinite(guess(bench.loop.loss)[0]):
        return bench.skip("not applicable", "it needs a loss whose lowest value is known, with nothing added to it")
    batch, count = _few(bench)
    if batch is None:
        return bench.skip("not enough data", "no batch has examples with different inputs and targets")
    steps = bench.affordable(STEPS * len(RATES)) // len(RATES)
    if steps < 50:
        return bench.skip("not enough data", "300 steps would take longer than the time that is allowed")
    best, cost, starved = math.inf, math.nan, ""
    for rate in RATES:
        found = _fit(setup.copy(), batch, rate, steps)
        cost = found[1]
        if found[0] < best:
            best, starved = found[0], found[2]
        if not math.isfinite(cost) or cost <= 0:
            return bench.skip("not applicable", "the targets of these examples are equal")
        if best < MEMORISED * cost:
            break
    failed = not best < MEMORISED * cost
    bench.answer(
        failed,
        f"the loss on {count} examples falls to {best:.3g}; a constant output gives {cost:.3g}"
        + (f". {starved}" if failed and starved else ""),
        healthy=f"< {MEMORISED * cost:.3g} within {steps} steps",
        why="A network that cannot fit a few examples has a bug in the model, the loss or the labels.",
        fix="Check for a detached layer, for an activation at the end of the model, and for labels that belong to "
        "other "
        "examples.",
        cost=f"up to {steps * len(RATES)} steps on {count} examples",
    )


def _few(bench: Bench) -> tuple[Any, int]:
    """Examples of the first batch with different inputs and, if possible, different targets; how many."""
    batch = bench.batch(0)
    have = examples_of(batch)
    inputs, targets = parts_of(bench.setup, batch)
    whole = all(len(t) == have for t in (*inputs, *targets) if t.ndim)
    trained = sum(p.numel() for p in bench.setup.root.parameters() if p.requires_grad)
    asked = max(1, sum(t.numel() for t in targets) // max(1, have))
    if not whole or have < 2 or not targets or trained < 20 * asked * 2:
        return None, 0
    rows: dict[Any, int] = {}
    for i in range(have):
        key = tuple(x[i].reshape(-1).tolist().__repr__() for x in inputs if x.ndim)
        rows.setdefault(key, i)
    by_label: dict[str, list[int]] = {}
    for i in rows.values():
        by_label.setdefault(repr([t[i].tolist() for t in targets]), []).append(i)
    in_turn = sorted(((place, i) for same in by_label.values() for place, i in enumerate(same)))
    chosen = [i for _, i in in_turn][: min(EXAMPLES, trained // (20 * asked))]
    if len(chosen) < 2:
        return None, 0
    at = torch.tensor(chosen)
    return mapped(batch, lambda t: t[at.to(t.device)] if t.ndim and len(t) == have else t), len(chosen)


def _fit(setup: Setup, batch: Any, rate: float, steps: int) -> tuple[float, float, str]:
    """The lowest loss of a copy on a batch, what the best constant costs there, and where the gradient is gone."""
    without_dropout(setup.root)
    held = {id(p): p for o in setup.optimizers for g in o.param_groups for p in g["params"] if p.requires_grad}
    adam = torch.optim.Adam(list(held.values()), lr=rate)
    best, cost, last = math.inf, math.nan, math.inf
    for number in range(steps):
        adam.zero_grad()
        loss = setup.loss(mapped(batch, torch.clone))
        last = float(loss.detach())
        if not number and loss.grad_fn is not None:
            found = losses_of(loss.grad_fn)
            cost = guess(found[0])[1] if len(found) == 1 and is_mean(loss.grad_fn, found[0]) else math.nan
            if not math.isfinite(cost) or cost <= 0:
                break
        if not loss.requires_grad or not math.isfinite(last):
            break
        best = min(best, last)
        if best < MEMORISED * cost:
            break
        loss.backward()
        adam.step()
    return best, cost, _starved(setup.root)


def _starved(root: nn.Module) -> str:
    """The last layer, seen from the input, whose gradient is a millionth of the largest."""
    sizes = {n: float(p.grad.double().square().mean().sqrt()) for n, p in root.named_parameters() if p.grad is not None}
    top = max(sizes.values(), default=0.0)
    gone = [n for n, size in sizes.items() if size <= 1e-6 * top]
    return f"No gradient reaches {', '.join(gone[:4])}{' and others' if len(gone) > 4 else ''}" if gone else ""


# ---------------------------------------------------------------- learning rate


def rate_range(bench: Bench) -> RateRange | None:
    """Train copies at several rates on the same batches; None where it cannot be done."""
    setup = bench.setup
    if not setup.given:
        bench.skipped["learning-rate range"] = "no optimizer was given"
        return None
    if len(setup.losses) > 1:
        bench.skipped["learning-rate range"] = "the losses of several models need not fall"
        return None
    if needs_closure(setup.optimizers) is not None:
        bench.skipped["learning-rate range"] = f"{type(setup.optimizers[0]).__name__} searches along the line itself"
        return None
    steps = min(RANGE_STEPS, bench.affordable(RANGE_STEPS * (len(FACTORS) + 1)) // (len(FACTORS) + 1))
    if steps < 5:
        bench.skipped["learning-rate range"] = "it would take longer than the time that is allowed"
        return None
    yours = _rates(setup)
    if not max(yours) > 0:
        bench.skipped["learning-rate range"] = "the learning rate is 0"
        return None
    start = _last_loss(setup, bench, [0.0 * r for r in yours], steps)
    if not math.isfinite(start):
        bench.skipped["learning-rate range"] = "the loss is not finite"
        return None
    losses = [_last_loss(setup, bench, [f * r for r in yours], steps) for f in FACTORS]
    gains = [start - loss if math.isfinite(loss) else -math.inf for loss in losses]
    rates = [f * yours[0] for f in FACTORS]
    top = max(gains)
    best = gains.index(top)
    high = next((r for r, g in zip(rates[best:], gains[best:]) if g < -(DIVERGED - 1) * abs(start)), None)
    low = next((r for r, g in zip(reversed(rates[:best]), reversed(gains[:best])) if g < LOW * top), None)
    return RateRange(tuple(rates), tuple(losses), start, yours[0], low if top > 0 else None, high, steps)


def _rates(setup: Setup) -> list[float]:
    """The rate of each group; that of before a warm-up, where a scheduler has noted it."""
    groups = [g for o in setup.optimizers for g in o.param_groups]
    rates = [max(float(g["lr"]), float(g.get("initial_lr", 0.0))) for g in groups]
    first = max(range(len(rates)), key=lambda i: sum(p.numel() for p in groups[i]["params"]), default=0)
    return [rates[first], *rates] if rates else [0.0]


def _last_loss(setup: Setup, bench: Bench, rates: list[float], steps: int) -> float:
    """The mean loss of the last third of a short training."""
    copied = setup.copy()
    torch.manual_seed(bench.seed)
    groups = [g for o in copied.optimizers for g in o.param_groups]
    for group, rate in zip(groups, rates[1:]):
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate
    losses = []
    for number in range(steps):
        losses.append(copied.step(bench.batch(number)))
        if not math.isfinite(losses[-1]):
            return math.nan
    last = losses[-max(1, steps // 3) :]
    return sum(last) / len(last)


def rate_too_high(bench: Bench) -> None:
    """Whether copies diverge at the rate of the optimizer."""
    found = bench.rates
    if found is None:
        return bench.skip("not applicable", bench.skipped["learning-rate range"])
    at = min(range(len(found.rates)), key=lambda i: abs(math.log(found.rates[i] / found.yours)))
    loss, finite = found.losses[at], [v for v in found.losses if math.isfinite(v)]
    best = min(finite, default=found.start)
    gains = best < found.start - 0.05 * abs(found.start)
    rises = gains and not loss <= found.start + (DIVERGED - 1) * abs(found.start)
    lower = [v for r, v in zip(found.rates, found.losses) if r < found.yours / APART and math.isfinite(v)]
    saved = found.start - min(lower, default=found.start)
    behind = saved > FALL * abs(found.start) and not found.start - loss > BEHIND * saved
    failed = rises or behind
    edge = f"training diverges from lr={found.high:.2g} on" if found.high is not None else "no tested rate diverges"
    rate = found.rates[found.losses.index(best)] if finite else found.yours
    bench.answer(
        failed,
        f"with lr={found.yours:.3g} the loss goes from {found.start:.3g} to {loss:.3g} in {found.steps} steps; {edge}",
        healthy="the loss falls about as far as with lower rates",
        why="With a high learning rate each step overshoots.",
        fix=f"Set lr={rate:.1g} (now {found.yours:.3g}).",
        cost=f"{found.steps * (len(found.rates) + 1)} steps",
    )


def rate_too_low(bench: Bench) -> None:
    """Whether a far larger rate than that of the optimizer learns far more."""
    found = bench.rates
    if found is None:
        return bench.skip("not applicable", bench.skipped["learning-rate range"])
    gains = [found.start - loss if math.isfinite(loss) else -math.inf for loss in found.losses]
    at = min(range(len(gains)), key=lambda i: abs(math.log(found.rates[i] / found.yours)))
    best = gains.index(max(gains))
    if gains[best] < LEAST * abs(found.start):
        return bench.skip("not enough data", f"no rate lowers the loss within {found.steps} steps")
    better = found.rates[best] / found.yours
    failed = gains[at] < LOW * gains[best] and better > TOO_LOW and gains[best] > FALL * abs(found.start)
    bench.answer(
        failed,
        f"in {found.steps} steps the loss falls by {gains[at]:.2g}; with lr={found.rates[best]:.2g} it falls by "
        f"{gains[best]:.2g}",
        healthy=f"more than {LOW:.0%} of that, or a learning rate within a factor of {TOO_LOW:g}",
        why="With a low learning rate training takes many times longer.",
        fix=f"Set lr={found.rates[best] / 3:.1g} (now {found.yours:.3g}).",
        cost=f"shared with {'learning rate too high'!r}",
    )


# ---------------------------------------------------------------- train and eval mode


def train_and_eval(bench: Bench) -> None:
    """Whether batch norm's running statistics give the loss that the batches' own give, after enough passes."""
    setup = bench.copy()
    norms = [
        m
        for m in setup.root.modules()
        if isinstance(m, nn.modules.batchnorm._BatchNorm) and m.track_running_stats and m.training
    ]
    if not norms or len(setup.losses) > 1:
        return bench.skip("not applicable", "it needs a batch norm with running statistics")
    momentum = min(m.momentum if m.momentum is not None else 0.1 for m in norms)
    passes = math.ceil(math.log(0.02) / math.log1p(-momentum)) if 0 < momentum < 1 else 50
    if bench.affordable(passes) < passes:
        return bench.skip("not enough data", f"momentum={momentum:g} needs {passes} passes")
    without_dropout(setup.root)
    with torch.no_grad():
        train = [float(setup.loss(bench.batch(i))) for i in range(passes)][-len(bench.batches) :]
        setup.root.eval()
        evaluated = [float(setup.loss(bench.batch(i))) for i in range(len(train))]
    a, b = sum(train) / len(train), sum(evaluated) / len(evaluated)
    bench.answer(
        not b <= a + max(2 * abs(a), 1.0),
        f"the loss is {a:.4g} in train mode and {b:.4g} in eval mode after {passes} passes",
        healthy=f"≤ {a + max(2 * abs(a), 1.0):.3g}",
        why="The running statistics of batch norm do not match the batches: too few batches, sorted data, or a wrong "
        "momentum.",
        fix="Use nn.BatchNorm2d(n, momentum=0.1), which TensorFlow calls 0.9. With small batches use nn.GroupNorm.",
        cost=f"{passes} passes",
    )


def ranks(bench: Bench) -> None:
    """Replicas that differ, and samplers that give the same examples to every rank."""
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
        return bench.skip("not applicable", "one process trains the model")
    sums = torch.stack([p.detach().double().sum() for p in bench.setup.root.parameters()])
    rows = torch.tensor([sum(float(t.double().sum()) for t in tensors(b)) for b in bench.batches[:1]]).to(sums.device)
    every = [torch.zeros_like(sums) for _ in range(dist.get_world_size())]
    batches = [torch.zeros_like(rows) for _ in range(dist.get_world_size())]
    dist.all_gather(every, sums)
    dist.all_gather(batches, rows)
    differ = [r for r, other in enumerate(every) if not torch.equal(other, every[0])]
    same = len(batches) > 1 and all(torch.equal(other, batches[0]) for other in batches)
    bench.answer(
        bool(differ) or same,
        f"parameters of rank {differ[0]} differ from those of rank 0"
        if differ
        else f"all {len(every)} ranks read the same first batch"
        if same
        else f"{len(every)} ranks have equal parameters and different batches",
        healthy="equal parameters, different batches",
        fix="Wrap the model in DistributedDataParallel after it is complete."
        if differ
        else "DataLoader(dataset, sampler=DistributedSampler(dataset))",
    )
