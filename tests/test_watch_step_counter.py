"""Steps between looks are only counted where a loop goes on as it did: whatever the loop does, the same steps end and
the same losses stand beside them as if every step were measured."""

from __future__ import annotations

import random
import warnings

import pytest
import torch
from torch import nn

import netvitals as nv


def followed(loop, every: int, optimizers: int = 1) -> tuple[int, dict[int, float]]:
    """Steps that ended, and the loss of each, of a loop that is given (backward, step, call)."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    parts = [model.parameters()] if optimizers == 1 else [model[0].parameters(), model[2].parameters()]
    known = [torch.optim.SGD(part, lr=1e-3) for part in parts]
    x = torch.randn(8, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        watch = nv.watch(model, known, every=every, vitals=["gates"])

        def step() -> None:
            for optimizer in known:
                optimizer.step()
            for optimizer in known:
                optimizer.zero_grad()

        loop(lambda: model(x).mean().backward(), step, watch.step)
        watch.close()
    losses = {r.step: r.value for r in watch.measurements if r.vital == "loss"}
    return watch._step, losses


def plain(backward, step, call):
    for i in range(40):
        backward()
        step()
        call(float(i))


def called_before(backward, step, call):
    for i in range(40):
        backward()
        call(float(i))
        step()


def accumulating(backward, step, call):
    for i in range(40):
        for m in range(3):
            backward()
            if m == 2:
                step()
            call(i + m / 10)


def never_called(backward, step, call):
    for _ in range(40):
        backward()
        step()


def called_late(backward, step, call):
    for i in range(40):
        backward()
        step()
        if i >= 17:
            call(float(i))


def changing(backward, step, call):
    plain(backward, step, call)
    accumulating(backward, step, call)
    called_before(backward, step, call)
    plain(backward, step, call)


def steps_left_out(backward, step, call):
    """As a GradScaler does where gradients are not finite."""
    for i in range(60):
        backward()
        if i not in (11, 12, 35):
            step()
        call(float(i))


def calls_left_out(backward, step, call):
    for i in range(60):
        backward()
        step()
        if i % 7 != 3:
            call(float(i))


LOOPS = [plain, called_before, accumulating, never_called, called_late, changing, steps_left_out, calls_left_out]


@pytest.mark.parametrize("loop", LOOPS, ids=lambda loop: loop.__name__)
@pytest.mark.parametrize("every", [5, 16, 1000])
def test_the_same_steps_and_losses_as_if_every_step_were_looked_at(loop, every):
    assert followed(loop, every) == followed(loop, 1)


def test_two_optimizers_are_one_step_between_looks_too():
    assert followed(plain, 16, optimizers=2) == followed(plain, 1, optimizers=2)


@pytest.mark.parametrize("seed", range(12))
def test_whatever_comes_next(seed):
    """A loop that accumulates, leaves out steps and calls after its step now and then."""

    def loop(backward, step, call):
        draw = random.Random(seed)
        for i in range(120):
            regular = draw.random() < 0.9
            for _ in range(1 if regular else draw.randint(1, 3)):
                backward()
                if not regular:
                    call(i + 0.5)
            if regular or draw.random() < 0.7:
                step()
            if regular or draw.random() < 0.5:
                call(float(i))

    assert followed(loop, 23) == followed(loop, 1)


def test_steps_between_looks_reach_the_run_while_it_trains(tmp_path):
    """A watch that looks every thousand steps says how far it is."""
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with nv.watch(model, optimizer, run=tmp_path / "run", every=1000) as watch:
        for _ in range(60):
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
            watch.step(1.0)
        assert watch._hooks.passed > 50 and "step 60" in repr(watch)
        watch._buffer.hand_over()
        watch._writer.flush()
        assert nv.open_run(tmp_path / "run").meta["steps"] == 60
    assert nv.open_run(tmp_path / "run").meta["steps"] == 60


def test_a_loss_that_is_no_number_is_refused_between_looks_too():
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with nv.watch(model, optimizer, every=1000, vitals=["gates"]) as watch:
        for i in range(10):
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
            if i < 9:
                watch.step(1.0)
        with pytest.raises(ValueError, match="one number"):
            watch.step(torch.ones(2))
