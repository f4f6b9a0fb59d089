"""Runs the checks before training: exact ones on a few steps of a copy, then those that need more copies."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import Optimizer

from netvitals.capture import LossFn, mapped, preserved
from netvitals.checks import CHECKS, THINGS, Answer, answers
from netvitals.findings import asked, failures, told
from netvitals.preflights import data, first_step, training
from netvitals.preflights.loader import draw
from netvitals.preflights.loop import Loop, train_briefly
from netvitals.preflights.result import Preflight, PreflightCheck, RateRange
from netvitals.preflights.setup import Setup, modules_in, moved_to, setup_of

STEPS = 24  # of the copy that the exact checks follow
# questions about the user's own loop, which a preflight does not see
OF_THE_LOOP = frozenset({
    "no optimizer step", "gradients gone", "gradients carried over", "gradients of another loss", "optimizer recreated",
    "train mode in evaluation", "evaluation on another scale", "left in eval mode", "graph grows",
    "teacher in train mode", "step before backward",
})  # fmt: skip
OF_THE_OPTIMIZER = frozenset({"not in the optimizer", "stale parameters", "update lost"})
# reports of what a check decides, where it is no bug of the benchmark
REPORTS = {
    "ranks": "https://github.com/openspeech-team/openspeech/issues/149",
    "input not finite": "https://github.com/fxia22/pointnet.pytorch/issues/58",
    "overlap": "https://github.com/zalandoresearch/fashion-mnist/issues/44",
    "workers repeat": "https://github.com/Project-MONAI/MONAI/issues/1068",
    "custom gradient": "https://github.com/pytorch/pytorch/issues/4355",
    "train and eval": "https://github.com/Cadene/pretrained-models.pytorch/issues/5",
}
EXACT = "exact check without a threshold"
OF_ONE_LOSS = frozenset({"constant labels", "sorted labels", "regression on classes"})
OWN: dict[str, tuple[str, Callable[[Bench], None]]] = {
    "ranks": ("Do all ranks have equal parameters and different data?", training.ranks),
    "input not finite": ("Are all inputs finite?", data.input_not_finite),
    "unnormalised input": ("Are the inputs normalised?", data.unnormalised_input),
    "overlap": ("Does the second loader contain only new examples?", data.overlap),
    "workers repeat": ("Do loader workers use different random augmentations?", data.workers_repeat),
    "custom gradient": ("Does the backward of each custom function match its forward?", first_step.custom_gradient),
    "vanishing signal": ("Does the output depend on the input?", first_step.vanishing_signal),
    "loss at initialisation": ("Is the first loss close to the loss of guessing?", first_step.loss_at_initialisation),
    "update size": ("Is the first update small compared with the weights?", first_step.update_size),
    "learning rate too high": ("Is the learning rate low enough?", training.rate_too_high),
    "learning rate too low": ("Is the learning rate high enough?", training.rate_too_low),
    "imbalanced labels": ("Are both classes frequent enough?", data.imbalanced_labels),
    "train and eval": ("Do train and eval mode give similar losses?", training.train_and_eval),
    "memorises one batch": ("Can a copy memorise a few examples?", training.memorises),
}


class Bench:
    """What the checks share: the setup, batches, what the first steps showed, and the answers so far."""

    def __init__(self, setup: Setup, batches: tuple[Any, ...], loader: Any, seed: int, seconds: float) -> None:
        self.setup, self.batches, self.loader, self.seed = setup, batches, loader, seed
        self.validation: tuple[Any, ...] | None = None
        self.loop = Loop(setup)
        self.rates: RateRange | None = None
        self.features: tuple[tuple[float, float], ...] = ()
        self.skipped: dict[str, str] = {}
        self.answers: list[PreflightCheck] = []
        self._asked = ("", "")
        self._end = time.perf_counter() + seconds

    def batch(self, number: int) -> Any:
        """One of the batches, as a copy that may be changed."""
        return mapped(self.batches[number % len(self.batches)], torch.clone)

    def copy(self) -> Setup:
        """A fresh copy of what will be trained."""
        torch.manual_seed(self.seed)
        return self.setup.copy()

    def affordable(self, steps: int) -> int:
        """How many of ``steps`` training steps half of the time that is left has room for."""
        left = self._end - time.perf_counter()
        return max(0, min(steps, int(0.5 * left / max(self.loop.step_seconds, 1e-6))))

    def ask(self, name: str, question: str, check: Callable[[Bench], None]) -> None:
        """Put a question; what a check raises is why there is not enough data."""
        self._asked = (name, question)
        try:
            check(self)
        except Exception as error:  # a model that cannot be asked one thing can still be asked the others
            self.skip("not enough data", _words(error))

    def answer(
        self, failed: bool, measured: str, *, healthy: str = "", why: str = "", fix: str = "", cost: str = "1 pass"
    ) -> None:
        """Answer the question that was put."""
        self.answers.append(
            PreflightCheck(
                *self._asked,
                "failed" if failed else "passed",
                why=why if failed else "",
                measured=measured,
                healthy=healthy,
                fix=fix if failed else "",
                cost=cost,
            )
        )

    def skip(self, status: Answer, why: str) -> None:
        """Say why the question that was put has no answer."""
        self.answers.append(PreflightCheck(*self._asked, status, why=why))


def preflight(
    model: nn.Module | Sequence[nn.Module] | dict[str, nn.Module],
    loss_fn: LossFn | Sequence[Callable[..., Any]],
    loader: Any,
    optimizer: Optimizer | Sequence[Optimizer] | None = None,
    *,
    validation: Any = None,
    forward: Callable[[nn.Module, Any], Any] | None = None,
    batches: int = 24,
    seconds: float = 60.0,
    seed: int = 0,
) -> Preflight:
    """Check data, loss, gradients, memory and learning rate before training, and report what would spoil it.

    Copies of model and optimizer are trained for a few steps on batches of ``loader``. Model, optimizer, gradients,
    buffers, modes and random generators are left as they were, also after an error.

    Args:
        model: the model as training would begin with it; a LightningModule; or several models in a list or dict.
        loss_fn: a function of (output, target), its name, or None where the model's output holds its own loss (Hugging
            Face, Lightning). With several models, a function of (models, batch), or a list of them, one for each
            optimizer.
        loader: what the loop iterates over, or one batch.
        optimizer: the optimizer, or several. Without it nothing can be said of learning rates and parameter groups.
        validation: a second loader, which should hold other examples.
        forward: how to run the model on a batch of any other kind, ``forward(model, batch)``; ``loss_fn`` is a function
            of (output, batch) then, and with None what ``forward`` returns is the loss or holds it.
        batches: at most this many batches are read.
        seconds: approximate time limit in seconds; checks that would take longer say so.
        seed: seed of the random numbers that the copies draw.

    Returns:
        All checks with their evidence; ``raise_for_failures()`` stops a pipeline.

    >>> _ = torch.manual_seed(0)
    >>> x = torch.randn(256, 8)
    >>> net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4), nn.Softmax(1))
    >>> loader = [(x[i : i + 32], x[i : i + 32, :4].argmax(1)) for i in range(0, 256, 32)]
    >>> found = preflight(net, "ce", loader, torch.optim.Adam(net.parameters(), lr=1e-3))
    >>> found.failed[0].name, found["update lost"].status
    ('double softmax', 'passed')
    """
    begun = time.perf_counter()
    setup = setup_of(model, loss_fn, optimizer, forward)
    if batches < 1 or seconds <= 0:
        raise ValueError(f"batches= and seconds= must both be positive, got {batches} and {seconds}")
    with ExitStack() as stack:
        others = [m for loss in setup.losses for m in modules_in(loss)]
        for module in dict.fromkeys([setup.root, *others]):
            stack.enter_context(preserved(module))
        stack.enter_context(torch.enable_grad())
        torch.manual_seed(seed)
        drawn = draw(loader, batches)
        held = tuple(moved_to(batch, setup.root) for batch in drawn.batches)
        bench = Bench(setup, held, loader, seed, seconds)
        if validation is not None:
            bench.validation = tuple(moved_to(batch, setup.root) for batch in draw(validation, batches).batches)
        _exact(bench)
        checks = tuple(sorted(bench.answers, key=lambda c: c.status != "failed"))
    return Preflight(
        model=type(setup.root).__name__ if not setup.several else " and ".join(type(m).__name__ for m in setup.roots),
        checks=checks,
        batches=len(held),
        note=drawn.note,
        seconds=time.perf_counter() - begun,
        step_seconds=bench.loop.step_seconds,
        rates=bench.rates,
        features=bench.features,
        skipped=bench.skipped,
    )


def _exact(bench: Bench) -> None:
    """Follow the steps of a copy, ask everything, and order the answers: exact ones first."""
    torch.manual_seed(bench.seed)
    bench.loop = loop = train_briefly(bench.setup, bench.batches, STEPS)
    ran = bool(loop.losses)
    bench.ask("one step", "Do forward, loss, backward and step work on a batch?", _one_step)
    if ran and math.isfinite(loop.losses[0]):
        for name, (question, check) in OWN.items():
            if name == "learning rate too high":
                bench.ask(name, question, _measure_rates)
            else:
                bench.ask(name, question, check)
    else:
        for name in ("input not finite", "unnormalised input"):
            bench.ask(name, *OWN[name])
    own = bench.answers
    suffers = any(c.status == "failed" for c in own if c.name in ("memorises one batch", "learning rate too high"))
    suffers = suffers or not all(map(math.isfinite, loop.losses))
    exact = _from_loop(bench, suffers)
    # a loss that is wrong keeps a copy from fitting: what is exact stands before what follows from it
    first = [c for c in own if c.name == "ranks" or (c.name == "one step" and loop.error is not None)]
    bench.answers = [*first, *exact, *(c for c in own if c not in first)]


def _measure_rates(bench: Bench) -> None:
    bench.rates = training.rate_range(bench)
    training.rate_too_high(bench)


def _from_loop(bench: Bench, suffers: bool) -> list[PreflightCheck]:
    """The answers of the exact checks."""
    facts = bench.loop.facts
    if not facts:
        return []
    failed = failures(facts, suffers)
    counted = {name: asked(name, {"checks": facts}) for name in CHECKS}
    out = []
    for check in answers({"failed": failed, "asked": counted, "steps": facts["steps"]}):
        if check.name in OF_THE_LOOP:
            continue
        status, why, measured, fix = check.status, check.why, "", ""
        if not bench.setup.given and check.name in OF_THE_OPTIMIZER:
            status, why = "not applicable", "no optimizer was given"
        elif len(bench.setup.losses) > 1 and check.name in OF_ONE_LOSS:
            status, why = "not applicable", "several losses have labels of their own"
        elif status == "failed":
            finding = told(check.name, check.evidence, lambda: suffers)
            measured, why, fix = finding.what, finding.why, finding.advice
            if finding.severity == "note":
                status, why, fix = "passed", "", ""
        elif status == "not enough data" and CHECKS[check.name].needs not in THINGS and facts["why"]:
            why = "; ".join(facts["why"].values())
        out.append(
            PreflightCheck(
                check.name,
                check.question,
                status,
                why=why,
                evidence=check.evidence,
                measured=measured,
                cost=f"shared: {facts['steps']} steps",
                healthy=EXACT,
                fix=fix,
            )
        )
    return out


def _one_step(bench: Bench) -> None:
    """What the first step raised, or a loss that is not finite."""
    loop = bench.loop
    if loop.error is not None:
        at = f" at step {len(loop.losses)}" if loop.losses else ""
        return bench.answer(True, f"it raises {_words(loop.error)}{at}", healthy="no error", fix=_remedy(loop.error))
    bad = next((i for i, v in enumerate(loop.losses) if not math.isfinite(v)), None)
    bench.answer(
        bad is not None,
        f"the loss is {loop.losses[bad]} at step {bad}" if bad is not None else f"{len(loop.losses)} steps",
        healthy="a finite loss on each step",
        why="A NaN loss makes every parameter NaN." if bad is not None else "",
        fix="Lower the learning rate or warm up. Look for a logarithm, square root or division of zero."
        if bad
        else "Look for a logarithm, square root or division of zero, and for NaN in the data.",
        cost=f"{len(loop.losses)} steps",
    )


def _remedy(error: Exception) -> str:
    words = str(error)
    if isinstance(error, IndexError) and "out of bounds" in words:
        return "Number the classes from 0, and give the model one output per class."
    if isinstance(error, IndexError) and "index out of range" in words:
        return "Increase num_embeddings: an id is too large for the embedding."
    if "expected scalar type" in words or "dtype" in words:
        return "Use y.long() for class labels, and x.float() for inputs and regression targets."
    return ""


def _words(error: Exception) -> str:
    first = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}"
