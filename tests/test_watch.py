"""The watch as a user meets it."""

import math
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv
from netvitals.capture import Vital


class Height(Vital):
    name = "height"

    def activation(self, recorder, view):
        recorder.write(view.site, ("max",), view.a.max())


def net():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


def hooks(model):
    return [h for m in model.modules() for h in (*m._forward_hooks, *m._forward_pre_hooks)]


def train(model, watching, steps, optimizer=None):
    losses = []
    for _ in range(steps):
        loss = F.cross_entropy(model(torch.randn(6, 4)), torch.randint(0, 3, (6,)))
        loss.backward()
        if optimizer is not None:
            optimizer.step()
            optimizer.zero_grad()
        watching.step(loss)
        losses.append(loss.item())
    return losses


def test_the_first_step_and_every_nth_are_measured_and_every_loss_is_kept():
    model = net()
    with nv.watch(model, every=4, vitals=[Height()]) as watching:
        losses = train(model, watching, 10)
    assert [r.step for r in watching.measurements if r.vital == "height"] == [0, 4, 8]
    kept = [r for r in watching.measurements if r.vital == "loss"]
    assert [(r.step, r.site, r.metric) for r in kept] == [(i, "model", "loss") for i in range(10)]
    assert [r.value for r in kept] == losses


def test_between_measured_steps_nothing_is_on_the_model():
    model = net()
    with nv.watch(model, every=3, vitals=[Height()], checks=False) as watching:
        armed = []
        for _ in range(7):
            armed.append(bool(hooks(model)))
            train(model, watching, 1)
    assert armed == [True, False, False, True, False, False, True]
    assert hooks(model) == []


def test_measurements_on_disk_are_the_ones_in_memory(tmp_path):
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    with nv.watch(model, optimizer=optimizer, run=tmp_path / "first", every=3) as watching:
        train(model, watching, 8, optimizer)
    run = nv.open_run(tmp_path / "first")
    stored = {
        (step, vital, site, metric): value
        for step, vital, site, metric, value in run.frame()
        .select("step", "vital", "site", "metric", "value")
        .iter_rows()
    }
    memory = {r[:4]: r.value for r in watching.measurements}
    assert stored.keys() == memory.keys() and {k[0] for k in memory} == set(range(8))
    for key, value in memory.items():
        there = stored[key]
        assert there == value or ((there is None or math.isnan(there)) and math.isnan(value)), key
    assert run.meta["status"] == "finished" and run.meta["model"] == "Sequential" and run.meta["every"] == 3
    assert [s["name"] for s in run.meta["sites"]] == ["0", "1", "2", "output"]
    assert run.meta["optimizer"][0]["name"] == "Adam" and run.meta["optimizer"][0]["lr"] == 0.01
    latest = {(a.step, a.site, a.metric): a.value for a in run.arrays(last=True)}
    assert latest.keys() == {(a.step, a.site, a.metric) for a in watching.arrays} and latest
    assert all((latest[a.step, a.site, a.metric] == a.value).all() for a in watching.arrays)


@pytest.mark.parametrize("on_disk", [False, True])
def test_findings_with_and_without_a_run(on_disk, tmp_path):
    model = net()
    with torch.no_grad():
        model[0].bias.fill_(-100.0)  # no unit ever fires
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with nv.watch(model, optimizer=optimizer, every=2, run=tmp_path / "dead" if on_disk else None) as watching:
        train(model, watching, 12, optimizer)
        during = str(watching.findings())
    after = str(watching.findings())
    assert "dead" in during.lower() and "dead" in after.lower()


def test_an_exception_in_the_loop_passes_through_and_leaves_no_hooks(tmp_path):
    model = net()

    def loop():
        with nv.watch(model, every=1, run=tmp_path / "run") as watching:
            train(model, watching, 2)
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        loop()
    assert hooks(model) == []
    run = nv.open_run(tmp_path / "run")
    assert run.meta["status"] == "failed"
    assert set(run.frame()["step"]) == {0, 1}


def test_an_exception_inside_the_forward_pass_leaves_no_mode_behind():
    class Broken(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x):
            self.layer(x)
            raise RuntimeError("in the middle")

    model = Broken()
    with nv.watch(model, every=1, vitals=[Height()]) as watching:
        with pytest.raises(RuntimeError, match="in the middle"):
            model(torch.randn(2, 4))
        assert torch.overrides._get_current_function_mode_stack() == []
        watching.step()
    assert hooks(model) == []


def test_validation_passes_are_not_looked_at():
    model = net()
    with nv.watch(model, every=1, vitals=[Height()]) as watching:
        with torch.no_grad():
            model(torch.full((5, 4), 1000.0))
        train(model, watching, 1)
        train(model, watching, 1)
    assert len([r for r in watching.measurements if r.vital == "height"]) == 2
    assert all(r.value < 100 for r in watching.measurements)


def test_gradient_accumulation_looks_at_the_first_pass_of_a_step():
    model = net()
    with nv.watch(model, every=1, vitals=[Height()]) as watching:
        for scale in (1.0, 50.0):
            model(torch.full((5, 4), scale)).sum().backward()
        watching.step()
    assert len([r for r in watching.measurements if r.vital == "height"]) == 1


def test_a_step_without_a_forward_pass_is_said_once():
    model = net()
    with warnings.catch_warnings(record=True) as wording, nv.watch(model, every=1, vitals=[Height()]) as watching:
        warnings.simplefilter("always")
        for _ in range(3):
            F.linear(torch.randn(2, 4), model[0].weight).sum().backward()
            watching.step()
    assert len(wording) == 1 and "watch the module that the training loop calls" in str(wording[0].message)


def test_losses_may_be_numbers_and_nothing_at_all():
    model = net()
    with nv.watch(model, every=2, vitals=[Height()]) as watching:
        for loss in (1.5, None, torch.tensor([2.5]), torch.tensor(3.5, dtype=torch.float64), 4):
            model(torch.randn(2, 4))
            watching.step(loss)
    kept = [(r.step, r.value) for r in watching.measurements if r.vital == "loss"]
    assert kept == [(0, 1.5), (2, 2.5), (3, 3.5), (4, 4.0)]


def test_a_loss_is_not_waited_for():
    """A loss on an accelerator stays there until the next look; here the meta device plays one."""
    model = net()
    with nv.watch(model, every=100, vitals=[Height()]) as watching:
        train(model, watching, 5)
        watching.step(torch.zeros((), device="meta", requires_grad=True))
        waiting = watching._buffer._waiting
        assert [step for step, _ in waiting] == [1, 2, 3, 4, 5]
        assert [type(v) for _, v in waiting] == [float] * 4 + [torch.Tensor] and waiting[-1][1].grad_fn is None
        waiting.pop()
    assert len([r for r in watching.measurements if r.vital == "loss"]) == 5


def test_a_probe_without_a_loss_function_has_no_activation_gradients():
    class Push(Vital):
        name = "push"

        def gradient(self, recorder, view, g):
            recorder.write(view.site, ("g",), g.norm())

    model, x, y = net(), torch.randn(5, 4), torch.randint(0, 3, (5,))
    for probe, count in (((x, y), 0), ((x, y, F.cross_entropy), 4)):
        with nv.watch(model, every=1, probe=probe, vitals=[Push()]) as watching:
            train(model, watching, 1)
        assert len([r for r in watching.measurements if r.vital == "push"]) == count


def test_a_probe_that_fails_later_does_not_stop_training():
    class Moody(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.fine = nn.Linear(4, 3), True

        def forward(self, x):
            if not self.fine and len(x) == 5:
                raise RuntimeError("not this batch")
            return self.layer(x).relu()

    model = Moody()
    with nv.watch(model, every=1, probe=(torch.randn(5, 4), None), vitals=[Height()]) as watching:
        model.fine = False
        with pytest.warns(RuntimeWarning, match="not this batch"):
            train(model, watching, 1)
        train(model, watching, 3)
    assert hooks(model) == []


def test_vitals_by_name():
    model = net()
    with nv.watch(model, every=1, vitals=["gates", Height()]) as watching:
        train(model, watching, 1)
    assert {r.vital for r in watching.measurements} == {"gates", "height", "loss"}


@pytest.mark.parametrize(
    ("change", "error", "sentence"),
    [
        ({"every": 0}, ValueError, "every= must be a whole number of steps, 1 or more, got 0"),
        ({"every": 2.5}, ValueError, "every= must be a whole number"),
        ({"model": nn.ReLU()}, ValueError, "ReLU has no parameters"),
        ({"model": "resnet"}, TypeError, "watch needs a torch.nn.Module, got a str"),
        ({"model": nn.LazyLinear(3)}, ValueError, "run one batch through the model before"),
        ({"vitals": ["gate"]}, ValueError, "did you mean gates"),
        ({"vitals": "gates"}, TypeError, "vitals= must be a list"),
        ({"optimizer": "adam"}, TypeError, "optimizer= must be a torch.optim.Optimizer"),
        ({"probe": (1,)}, TypeError, "probe= must be"),
        ({"probe": (torch.randn(2, 4), None, "loss")}, TypeError, "probe= must be"),
    ],
)
def test_bad_input_gets_a_sentence(change, error, sentence):
    arguments = {"model": net(), **change}
    model = arguments.pop("model")
    before = hooks(model) if isinstance(model, nn.Module) else []
    with pytest.raises(error, match=sentence):
        nv.watch(model, **arguments)
    assert before == (hooks(model) if isinstance(model, nn.Module) else [])


def test_a_model_is_watched_once_at_a_time():
    model = net()
    with nv.watch(model, vitals=[Height()]):
        with pytest.raises(ValueError, match="already watched"):
            nv.watch(model, vitals=[Height()])
        nv.watch(net(), vitals=[Height()]).close()
    nv.watch(model, vitals=[Height()]).close()


def test_a_closed_watch_says_so_and_closing_twice_is_harmless():
    watching = nv.watch(net(), vitals=[Height()])
    watching.close()
    watching.close()
    with pytest.raises(ValueError, match="this watch is closed"):
        watching.step()


def test_a_loss_that_is_no_number_gets_a_sentence():
    with nv.watch(net(), vitals=[Height()]) as watching:
        with pytest.raises(ValueError, match=r"loss= must be one number, got a tensor of shape \(3,\)"):
            watching.step(torch.zeros(3))
        with pytest.raises(TypeError, match="loss= must be a number"):
            watching.step("low")


def test_an_unwritable_run_is_said_before_training(tmp_path):
    (tmp_path / "file").write_text("no folder")
    model = net()
    with pytest.raises(OSError):
        nv.watch(model, run=tmp_path / "file" / "run")
    assert hooks(model) == []
    nv.watch(model, vitals=[Height()]).close()


def test_a_probe_with_nan_is_refused_before_training():
    model = net()
    x = torch.randn(8, next(model.parameters()).shape[1])
    x[0, 0] = float("nan")
    with pytest.raises(ValueError, match="the input of the probe has 1 of"):
        nv.watch(model, probe=(x, torch.zeros(8)))
    assert hooks(model) == []
    nv.watch(model, vitals=[Height()]).close()


class Keywords(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, *, x):
        return self.layer(x)


@pytest.mark.parametrize(
    ("probe", "said"),
    [
        ((torch.ones(8, 5), torch.ones(8, 1), nn.MSELoss()), "mat1 and mat2 shapes"),
        ((torch.ones(8, 4).double(), torch.ones(8, 1), nn.MSELoss()), "dtype"),
        ((torch.ones(8, 4), torch.ones(8, dtype=torch.int64), nn.CrossEntropyLoss()), "Target 1 is out of bounds"),
        ((torch.ones(8, 4), torch.ones(8, 1, device="meta"), nn.MSELoss()), "meta"),
        ((torch.ones(8, 4), torch.ones(8, 1), lambda output, y: 3.0), "must return one number as a tensor"),
        ((None, None), "NoneType"),
        (([1, 2, 3], torch.ones(8, 1), nn.MSELoss()), "positional arguments"),
    ],
)
def test_a_probe_that_does_not_fit_a_model_that_trains_is_refused_in_words(probe, said, tmp_path):
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    net(torch.ones(8, 4)).sum().backward()
    with pytest.raises(ValueError, match=rf"(?s)the batch of probe= could not be measured .*{said}.*probe-failed"):
        nv.watch(net, run=tmp_path / "r", probe=probe)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in net.modules()), "hooks are left"
    with nv.watch(net, probe=(torch.ones(8, 4), torch.ones(8, 1), nn.MSELoss())):
        pass


def test_a_probe_without_values_is_refused_in_words():
    with pytest.raises(ValueError, match="the input of the probe is on the meta device and has no values"):
        nv.watch(nn.Linear(4, 1), probe=(torch.ones(8, 4, device="meta"), torch.ones(8, 1)))


def test_a_probe_for_a_model_that_takes_keywords_says_so():
    with pytest.raises(ValueError, match=r"the batch of probe= could not be measured .*positional argument"):
        nv.watch(Keywords(), probe=(torch.ones(8, 4), torch.ones(8, 1), nn.MSELoss()))
    with nv.watch(Keywords(), probe=({"x": torch.ones(8, 4)}, torch.ones(8, 1), nn.MSELoss()), every=1) as watch:
        watch.step(1.0)
    assert watch.sites or watch.measurements
