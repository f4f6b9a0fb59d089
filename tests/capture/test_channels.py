"""Small activations are reduced together, and come out as if each had been reduced alone."""

import pytest
import torch
from torch import nn

import netvitals as nv
from netvitals.capture import Recorder, channels


def numbers(x):
    return x.mean(0), x.var(0, correction=0), (x > 0).double().mean(0)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 16, 40])
def test_every_input_gets_its_own_numbers_however_many_there_are(count):
    stacks = channels.Stacks()
    for look in range(3):
        recorder = Recorder(step=look)
        given = [torch.randn(5, 3, dtype=torch.float64) + i for i in range(count)]
        found = [stacks.add(recorder, x) for x in given]
        for x in given:
            x.fill_(torch.nan)  # what is overwritten after the look must not be read
        recorder.leave_device()
        assert not any(part.isnan().any() for three in found for part in three)


def test_the_numbers_are_those_of_each_input_alone():
    stacks, recorder = channels.Stacks(), Recorder(step=0)
    given = [torch.randn(6, 4, dtype=torch.float64) * (i + 1) - i for i in range(20)]
    found = [stacks.add(recorder, x.clone()) for x in given]
    recorder.leave_device()
    for i, (x, three) in enumerate(zip(given, found)):
        for name, right, got in zip(("mean", "variance", "positive"), numbers(x), three):
            assert torch.allclose(got, right, rtol=1e-12, atol=1e-12), f"{name} of input {i}: {got} instead of {right}"


def test_a_look_that_was_never_finished_does_not_leak_into_the_next():
    stacks = channels.Stacks()
    stacks.add(Recorder(step=0), torch.full((2, 2), 9.0))
    recorder = Recorder(step=1)
    found = stacks.add(recorder, torch.ones(2, 2))
    recorder.leave_device()
    assert found.mean.tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    "x", [torch.zeros(2, 3, 4), torch.zeros(1 << 8, 1 << 8), torch.zeros(2)], ids=["images", "large", "vector"]
)
def test_what_is_no_small_matrix_is_left_to_be_reduced_where_it_is(x):
    assert channels.Stacks().add(Recorder(step=0), x) is None


def test_a_watch_reads_the_same_from_a_stack_as_from_single_inputs(monkeypatch):
    def measurements():
        torch.manual_seed(0)
        model = nn.Sequential(*(layer for _ in range(5) for layer in (nn.Linear(8, 8), nn.ReLU())), nn.Linear(8, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        watching = nv.watch(model, optimizer, every=2, vitals=["gates", "preactivations", "sparsity"])
        for _ in range(12):
            loss = model(torch.randn(16, 8)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        watching.close()
        return {(r.step, r.vital, r.site, r.metric): r.value for r in watching.measurements}

    stacked = measurements()
    monkeypatch.setattr(channels, "SMALL", 0)
    alone = measurements()
    assert stacked.keys() == alone.keys() and len(stacked) > 500
    worst = max(abs(stacked[k] - alone[k]) / max(1, abs(alone[k])) for k in stacked)
    assert worst < 1e-5, worst


def test_copies_of_the_parameters_are_made_only_for_who_reads_them(monkeypatch):
    copied = []
    times = torch._foreach_mul
    monkeypatch.setattr(torch, "_foreach_mul", lambda *args: copied.append(len(args[0])) or times(*args))
    for signs, expected in (
        (["optimizer"], 0),
        (["gradients"], 6),
    ):  # of the values before the step, and of the gradients
        copied.clear()
        model = nn.Linear(3, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
        with nv.watch(model, optimizer, every=1, vitals=signs, forecasts=False):
            for _ in range(6):
                model(torch.randn(4, 3)).sum().backward()
                optimizer.step()
        assert len(copied) == expected, f"{signs}: {len(copied)} copies on 3 measured steps"
