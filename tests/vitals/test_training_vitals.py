"""What is read of the loop, the loss and the data is what was done."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import netvitals as nv
from netvitals.capture import ParameterView, Recorder
from netvitals.vitals.training import Training


def train(
    loss_fn,
    *,
    zero=True,
    micro=1,
    model=None,
    batch=None,
    optimizer=None,
    steps=4,
    vitals=("inputs", "outputs", "training"),
):
    torch.manual_seed(0)
    model = model or nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 5))
    x, y = batch or (torch.randn(40, 6), torch.randint(5, (40,)))
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=1e-8)
    with nv.watch(model, optimizer, every=1, vitals=list(vitals)) as watching:
        for _ in range(steps):
            if zero:
                optimizer.zero_grad()
            for _ in range(micro):
                loss = loss_fn(model(x), y)
                loss.backward()
            optimizer.step()
            watching.step(loss)
    return {(r.site, r.metric): r.value for r in watching.measurements if r.step == 2}


@pytest.mark.parametrize(
    ("loss_fn", "scale"),
    [
        (F.cross_entropy, 1.0),
        (lambda o, y: F.cross_entropy(o, y, reduction="sum"), 40.0),
        (lambda o, y: -F.cross_entropy(o, y), -1.0),
        (lambda o, y: 65536 * F.cross_entropy(o, y), 65536.0),
    ],
)
def test_sign_and_reduction_of_a_cross_entropy_are_read_from_its_gradient(loss_fn, scale):
    read = train(loss_fn)
    assert read["output", "scale"] == pytest.approx(scale, rel=1e-4)
    assert read["output", "misfit"] < 1e-4
    counts = torch.bincount(torch.randint(5, (40,), generator=torch.Generator().manual_seed(0)), minlength=5)
    assert 0 < read["output", "chance"] <= math.log(5) and counts.sum() == 40


def test_a_softmax_before_the_loss_is_told_from_logits():
    read = train(lambda o, y: F.cross_entropy(o.softmax(-1), y))
    assert read["output", "double_misfit"] < 1e-3 < 0.05 < read["output", "misfit"]
    end = nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 5), nn.Softmax(-1))
    read = train(F.cross_entropy, model=end)
    assert read["output", "probabilities"] == 1.0 and read["output", "misfit"] < 1e-4


def test_another_loss_is_not_taken_for_a_cross_entropy():
    read = train(lambda o, y: F.mse_loss(o, torch.zeros_like(o)))
    assert read["output", "misfit"] > 0.05


def test_gradients_that_were_not_cleared_are_noticed_and_cleared_ones_are_not():
    assert train(F.cross_entropy)["model", "carried"] == 0.0
    assert train(F.cross_entropy, zero=False)["model", "carried"] == pytest.approx(2 / 3, rel=0.05)


def test_micro_batches_are_counted_and_leave_nothing_from_the_last_step():
    read = train(lambda o, y: F.cross_entropy(o, y) / 3, micro=3)
    assert read["model", "passes"] == 3 and read["model", "carried"] == 0.0
    assert read["output", "scale"] == pytest.approx(1 / 3, rel=1e-4)


def test_the_scale_of_the_inputs_and_whether_they_differ():
    x = 7.0 + 3.0 * torch.randn(40, 6)
    read = train(F.cross_entropy, batch=(x, torch.randint(5, (40,))))
    assert read["0", "mean"] == pytest.approx(x.mean().item(), rel=1e-5)
    assert read["0", "std"] == pytest.approx(x.std(correction=0).item(), rel=1e-5)
    same = x[:1].expand(40, 6).clone()
    assert train(F.cross_entropy, batch=(same, torch.randint(5, (40,))))["0", "varying"] < 1e-5


def test_batch_norms_in_eval_mode_are_counted_with_those_that_never_saw_a_batch():
    model = nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout(0.1), nn.Linear(12, 5)).eval()
    read = train(F.cross_entropy, model=model)
    assert [read["model", m] for m in ("norms", "eval_norms", "unused_statistics", "eval_dropouts")] == [1, 1, 1, 1]
    read = train(F.cross_entropy, model=model.train())
    assert [read["model", m] for m in ("norms", "eval_norms", "unused_statistics", "eval_dropouts")] == [1, 0, 0, 0]


def test_gradients_that_went_through_half_precision_are_multiples_of_one_smallest():
    model = nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 5))
    plain = train(F.cross_entropy, model=model)
    handles = [p.register_hook(lambda g: (1e-4 * g).half().float()) for p in model.parameters()]
    read = train(F.cross_entropy, model=model)
    assert read["0.weight", "multiples"] > 0.9 > 0.2 > plain["0.weight", "multiples"]
    assert len(handles) == 4


def test_precision_is_read_from_every_matrix_as_if_it_were_alone():
    """Of 1, 2, 3 and 2.5 with two zeros: one third is zero, 1 is least, and of the other three two are multiples."""
    rows = torch.tensor([1.0, -2.0, 3.0, 2.5, 0.0, 0.0]).reshape(2, 3)
    grads = {"a": rows, "b": 4 * rows.flip(0), "c": torch.tensor([[0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.3]])}
    recorder = Recorder(step=0)
    recorder.vital = "training"
    view = ParameterView(params=grads, initial={}, grads=grads)
    Training()._precision(recorder, view)
    found = {(r.site, r.metric): r.value for r in recorder.measurements()[0]}
    for name, scale in (("a", 1.0), ("b", 4.0)):
        assert found[name, "zero_share"] == pytest.approx(1 / 3) and found[name, "smallest"] == scale
        assert found[name, "multiples"] == pytest.approx(2 / 4)  # of four at least
    assert found["c", "zero_share"] == 0 and found["c", "multiples"] == pytest.approx(5 / 6)
