"""The vital sign `ranks`: which rank and which micro-batch a gradient came from, before any are added up."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv
from netvitals.capture import Recorder
from netvitals.vitals.ranks import RanksVital
from netvitals.watching.micro_batch_gradients import MicroBatchGradients


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


def batch(m, wrong=None):
    generator = torch.Generator().manual_seed(m)
    x = torch.randn(5, 6, generator=generator)
    return x * (1 if m != wrong else 1000), torch.randint(0, 3, (5,), generator=generator)


def train(model, wrong=None, watching=None, steps=4):
    """Three micro-batches a step; the gradient of ``wrong`` is enormous."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    vitals = None if watching is None else watching(model, optimizer)
    for _ in range(steps):
        for m in range(3):
            x, y = batch(m)
            loss = F.cross_entropy(model(x), y)
            ((loss if m != wrong else loss * 1000) / 3).backward()
            if vitals is not None:
                vitals.step(loss)
        optimizer.step()
        optimizer.zero_grad()
    if vitals is not None:
        vitals.close()
    return vitals


def watch(model, optimizer, **options):
    return nv.watch(model, optimizer, every=1, vitals=["ranks"], **options)


def test_the_lengths_are_those_of_single_micro_batches_by_hand():
    vitals = train(net(), watching=watch, steps=1)
    model, expected = net(), []
    for m in range(3):
        x, y = batch(m)
        out = model(x)
        loss = F.cross_entropy(out, y)
        grads = torch.autograd.grad(loss / 3, list(model.parameters()))
        norm = float(sum(g.square().sum() for g in grads).sqrt())
        expected.append((norm, float(out.detach().square().mean().sqrt()), loss.item()))
    arrays = {a.metric: a.value for a in vitals.arrays}
    for metric, values in zip(("grad_norm", "output_scale", "loss"), zip(*expected)):
        assert arrays[metric].shape == (1, 3)
        assert arrays[metric][0] == pytest.approx(values, rel=1e-6), metric
    measurements = {r.metric: r.value for r in vitals.measurements if r.vital == "ranks"}
    norms = np.array([norm for norm, *_ in expected])
    assert measurements["grad_over_median"] == pytest.approx(norms.max() / np.median(norms), rel=1e-6)
    assert measurements["grad_spread"] == pytest.approx(norms.std() / norms.mean(), rel=1e-5)
    assert (measurements["grad_rank"], measurements["grad_micro_batch"]) == (0, norms.argmax())


class Turns(nn.Module):
    """Two heads, each used by every other micro-batch."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.heads, self.turn = nn.ModuleList([nn.Linear(6, 3), nn.Linear(6, 3)]), 0

    def forward(self, x):
        self.turn += 1
        return self.heads[(self.turn - 1) % 2](x)


def test_a_parameter_that_some_micro_batches_do_not_use_stays_with_those_that_do():
    model = Turns()
    vitals = train(model, wrong=1, watching=watch, steps=1)
    (norms,) = [a.value[0] for a in vitals.arrays if a.metric == "grad_norm"]
    assert len(norms) == 3 and norms.argmax() == 1 and norms[1] > 100 * max(norms[0], norms[2])


@pytest.mark.parametrize("called", [True, False])
def test_a_model_that_is_never_called_itself_has_its_micro_batches_counted_by_its_gradients(called):
    class Holder(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net()

        def forward(self, x):
            return self.net(x)

    holder = Holder()
    optimizer = torch.optim.SGD(holder.parameters(), lr=0.1)
    with watch(holder, optimizer) as vitals:
        for m in range(3):
            x, y = batch(m)
            (F.cross_entropy((holder if called else holder.net)(x), y) * 10**m).backward()
        optimizer.step()
    (norms,) = [a.value[0] for a in vitals.arrays if a.metric == "grad_norm"]
    assert norms.argsort().tolist() == [0, 1, 2]


@pytest.mark.parametrize("wrong", [0, 2])
def test_a_micro_batch_with_an_abnormal_gradient_is_named(wrong, tmp_path):
    vitals = train(net(), wrong, lambda m, o: watch(m, o, run=tmp_path / "run"))
    (found,) = [f for f in vitals.findings() if f.rule == "ranks"]
    assert found.severity == "warning" and f"rank 0, micro-batch {wrong} on step 0" in found.what, found.what
    assert "on 100% of the measured steps" in found.what


def test_no_finding_where_all_push_alike():
    assert not [f for f in train(net(), watching=watch).findings() if f.rule == "ranks"]


def test_training_is_not_disturbed_and_no_hook_stays():
    bare, watched = net(), net()
    train(bare)
    train(watched, watching=watch)
    assert all(torch.equal(a, b) for a, b in zip(bare.parameters(), watched.parameters(), strict=True))
    assert not [h for m in watched.modules() for h in (*m._forward_hooks, *m._forward_pre_hooks)]
    assert not any(p._backward_hooks for p in watched.parameters())


def written(table):
    recorder = Recorder(0)
    recorder.vital = "ranks"
    RanksVital().write(recorder, np.array(table))
    return {r.metric: r.value for r in recorder.measurements()[0]}


def test_the_rank_and_the_micro_batch_are_those_of_the_largest():
    lengths = [[1.0, 2.0, 1.0], [1.0, 1.0, 30.0]]
    found = written([lengths, [[1.0] * 3] * 2, [[2.0, 2.0, np.nan], [np.nan] * 3]])
    assert (found["grad_rank"], found["grad_micro_batch"], found["grad_over_median"]) == (1, 2, 30)
    assert found["scale_spread"] == 0 and found["loss_over_median"] == 1 and found["not_finite"] == 0


def test_one_that_is_not_finite_counts_as_the_largest():
    found = written([[[1.0, 1.0], [np.inf, 1.0]], [[1.0] * 2] * 2, [[1.0] * 2] * 2])
    assert (found["grad_rank"], found["grad_micro_batch"], found["not_finite"]) == (1, 0, 1)
    assert found["grad_over_median"] == np.inf


def test_facts_of_ranks_with_more_and_fewer_micro_batches_stand_at_their_rank():
    arrivals, recorder = MicroBatchGradients(net(), RanksVital()), Recorder(0)
    facts = {
        0: arrivals.facts([torch.tensor([1.0]), torch.tensor([2.0])], [3.0]),
        2: arrivals.facts([torch.tensor([4.0, torch.nan]), torch.tensor([5.0])], []),
    }
    arrivals.write(recorder, facts)
    measurements, arrays = recorder.measurements()
    found = {a.metric: a.value.tolist() for a in arrays}
    assert found["grad_norm"][2] == [4.0, np.inf] and found["grad_norm"][0][0] == 1.0
    assert np.isnan(found["grad_norm"][0][1]) and np.isnan(found["grad_norm"][1]).all()
    assert found["output_scale"][2][0] == 5.0 and "loss" not in found  # one loss alone is not compared
    assert {r.metric: r.value for r in measurements}["grad_rank"] == 2


@pytest.mark.parametrize("rows", [[[np.nan, 1.0]], [[np.nan]]])
def test_fewer_than_two_are_not_compared(rows):
    assert written([rows, rows, rows]) == {"not_finite": 0}


def test_a_checkup_says_that_it_makes_no_steps():
    x, y = batch(0)
    with pytest.raises(ValueError, match="use it in watch"):
        nv.checkup(net(), F.cross_entropy, (x, y), vitals=["ranks"], curvature=False)
