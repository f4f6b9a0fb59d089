"""Wrong input gets a sentence: what was given, and what to do."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader

import netvitals as nv
from netvitals.capture import Measurement
from netvitals.runs import RunWriter


def net():
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))


BATCH = torch.randn(16, 6), torch.randint(0, 3, (16,))
SCHEDULE = torch.optim.lr_scheduler.StepLR(torch.optim.SGD(net().parameters(), lr=0.1), 1)


@pytest.mark.parametrize(
    ("ask", "error", "sentence"),
    [
        (
            lambda: nv.watch(net(), SCHEDULE),
            TypeError,
            "is a StepLR: pass the optimizer as optimizer= and the scheduler as scheduler=",
        ),
        (lambda: nv.checkup(net(), nn.CrossEntropyLoss, BATCH), TypeError, r"give CrossEntropyLoss\(\)"),
        (lambda: nv.preflight(net(), nn.MSELoss, [BATCH]), TypeError, r"give MSELoss\(\)"),
        (lambda: nv.checkup(net(), "crossentropy", BATCH), ValueError, "did you mean cross_entropy"),
        (lambda: nv.checkup(net().to("meta"), "ce", BATCH), ValueError, "0.weight is on the meta device"),
        (lambda: nv.watch(net().to("meta")), ValueError, "0.weight is on the meta device"),
        (
            lambda: nv.watch(torch.optim.SGD(net().parameters(), lr=0.1), net()),
            TypeError,
            r"order of arguments is \(model, optim",
        ),
        (lambda: nv.checkup(net(), "ce", {"x": BATCH[0], "y": BATCH[1]}), TypeError, "dict of x, y .* give .input"),
        (lambda: nv.checkup(net(), "ce", (BATCH[0].numpy(), BATCH[1])), TypeError, r"NumPy array .* torch\.from_numpy"),
        (lambda: nv.checkup(net(), "ce", DataLoader([BATCH])), TypeError, r"one of its batches, next\(iter\(loader"),
        (lambda: nv.wach, AttributeError, "did you mean 'watch'"),
    ],
)
def test_what_was_given_and_what_to_do(ask, error, sentence):
    with pytest.raises(error, match=sentence):
        ask()


def test_names_that_a_run_does_not_have_are_refused_with_the_nearest(tmp_path):
    with RunWriter(tmp_path / "run") as writer:
        writer.write([Measurement(0, "gates", "fc", "density@0.01", 0.5)])
    run = nv.open_run(tmp_path / "run")
    with pytest.raises(LookupError, match="no vital 'gate'; did you mean 'gates'"):
        run.frame(vital="gate")
    with pytest.raises(LookupError, match=r"no metric 'density'; did you mean 'density@0\.01'"):
        run.frame(metric=["density@0.01", "density"])
    assert len(run.frame(vital="gate*", site="fc")) == 1


def test_a_stopped_run_is_interrupted_and_a_loss_that_never_came_is_told(tmp_path):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def stopped():
        with nv.watch(model, optimizer, run=tmp_path / "run", every=5):
            for _ in range(12):
                optimizer.zero_grad()
                F.cross_entropy(model(BATCH[0]), BATCH[1]).backward()
                optimizer.step()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    run = nv.open_run(tmp_path / "run")
    assert run.status == "interrupted" and "none was given: call" in run.meta["skipped"]["loss"]


def test_a_step_before_backward_is_named_although_torch_ends_the_loop():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch = nv.watch(model, optimizer)

    def loop():
        for _ in range(5):
            loss = F.cross_entropy(model(BATCH[0]), BATCH[1])
            optimizer.step()
            loss.backward()
            watch.step(loss)

    with pytest.raises(RuntimeError, match="inplace"):
        loop()
    watch.close()
    assert watch.findings()[0].what == "SGD steps between the forward pass and loss.backward()."
