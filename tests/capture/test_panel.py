"""Vital signs that fail, that look seldom, that draw random numbers, that are no vital signs."""

import warnings

import pytest
import torch
from torch import nn

from netvitals.capture import Recorder, Schedule, Vital, observe, warn


class Fragile(Vital):
    name = "fragile"

    def __init__(self):
        self.calls = []

    def activation(self, recorder, view):
        self.calls.append(view.site.name)
        if view.site.name == "1":
            raise ArithmeticError("no number here")
        recorder.write(view.site, ("fine",), view.a.mean())


def net():
    return nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 3), nn.Tanh())


def test_a_failing_vital_sign_is_off_at_that_site_only_and_others_go_on(echo):
    with pytest.warns(RuntimeWarning, match=r"'fragile' failed at '1'.*ArithmeticError: no number here") as wording:
        seen = observe(net(), None, torch.randn(4, 2), vitals=[Fragile(), echo], mode="train")
    assert len(wording) == 1
    assert [r.site for r in seen.measurements if r.vital == "fragile"] == ["3"]
    assert {r.site for r in seen.measurements if r.vital == "echo"} >= {"0", "1", "2", "3"}


def test_a_failure_is_told_once_and_not_tried_again(echo):
    import netvitals as nv

    model, fragile = net(), Fragile()
    with warnings.catch_warnings(record=True) as wording, nv.watch(model, every=1, vitals=[fragile]) as watching:
        warnings.simplefilter("always")
        for _ in range(3):
            model(torch.randn(4, 2)).sum().backward()
            watching.step()
    assert len(wording) == 1
    assert fragile.calls == ["1", "3", "3", "3"]


def test_warnings_as_errors_do_not_stop_training():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        observe(net(), None, torch.randn(4, 2), vitals=[Fragile()], mode="train")


def test_cadence_counts_measured_steps():
    import netvitals as nv

    class Seldom(Vital):
        name, every = "seldom", 3

        def activation(self, recorder, view):
            recorder.write(view.site, ("x",), view.x.mean())

    model = net()
    with nv.watch(model, every=2, vitals=[Seldom()]) as watching:
        for _ in range(14):
            model(torch.randn(4, 2)).sum().backward()
            watching.step()
    assert sorted({r.step for r in watching.measurements}) == [0, 6, 12]


def test_a_slow_vital_sign_looks_on_steps_that_are_far_enough_apart():
    import netvitals as nv

    class Slow(Vital):
        name, min_steps = "slow", 5

        def activation(self, recorder, view):
            recorder.write(view.site, ("x",), view.x.mean())

    model = net()
    with nv.watch(model, every=2, vitals=[Slow()]) as watching:
        for _ in range(14):
            model(torch.randn(4, 2)).sum().backward()
            watching.step()
    assert sorted({r.step for r in watching.measurements}) == [0, 6, 12]


def test_arrays_keep_the_precision_they_were_written_in():
    recorder = Recorder(step=0)
    recorder.write_array("layer", "values", torch.tensor([1 / 3], dtype=torch.float64))
    recorder.leave_device()  # as a watch does, before it finishes the numbers
    assert recorder.columns().arrays[0].item() == 1 / 3


def test_a_single_method_may_look_less_often():
    import netvitals as nv

    class Mixed(Vital):
        name, every_by_method = "mixed", {"linear": 2}

        def activation(self, recorder, view):
            recorder.write(view.site, ("x",), view.x.mean())

        def linear(self, recorder, view):
            recorder.write(view.site, ("y",), view.y.mean())

    model = net()
    with nv.watch(model, every=1, vitals=[Mixed()]) as watching:
        for _ in range(4):
            model(torch.randn(4, 2)).sum().backward()
            watching.step()
    seen = {metric: sorted({r.step for r in watching.measurements if r.metric == metric}) for metric in ("x", "y")}
    assert seen == {"x": [0, 1, 2, 3], "y": [0, 2]}


def test_the_random_draws_of_a_users_vital_sign_are_not_felt():
    class Dice(Vital):
        name = "dice"

        def activation(self, recorder, view):
            recorder.write(view.site, ("luck",), torch.rand(()))

    import netvitals as nv

    model = net()
    state = torch.get_rng_state()
    with nv.watch(model, every=1, vitals=[Dice()]) as watching:
        model(torch.ones(4, 2)).sum().backward()
        watching.step()
    assert torch.equal(torch.get_rng_state(), state)
    assert [r.metric for r in watching.measurements] == ["luck", "luck"]


def test_a_class_of_ones_own_needs_only_a_name_and_a_method():
    class Plain:
        name = "plain"

        def tensor(self, recorder, view):
            recorder.write(view.site, ("n",), view.value.abs().amax())

    assert [r.site for r in observe(net(), None, torch.randn(4, 2), vitals=[Plain()], mode="train").measurements] == [
        "output"
    ]


@pytest.mark.parametrize(
    ("vitals", "sentence"),
    [
        ([Fragile], "a vital sign must be an object with an attribute name"),
        ([object()], "a vital sign must be an object with an attribute name"),
        ([type("Blind", (), {"name": "blind"})()], "has none of the methods"),
    ],
)
def test_what_is_no_vital_sign_gets_a_sentence(vitals, sentence):
    with pytest.raises(TypeError, match=sentence):
        Schedule(vitals)


def test_two_of_one_name_cannot_be_told_apart():
    with pytest.raises(ValueError, match="two vital signs have the name 'fragile'"):
        Schedule([Fragile(), Fragile()])


def test_a_long_complaint_is_cut():
    with pytest.warns(RuntimeWarning) as wording:
        warn("could not run it. " + "Backend: registered somewhere\n" * 500)
    assert len(wording) == 1 and "could not run it" in str(wording[0].message) and len(str(wording[0].message)) < 500
