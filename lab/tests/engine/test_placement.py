"""Where a trial runs: networks and data go to one device, wherever that is."""

import dataclasses

import pytest
import torch
from typer.testing import CliRunner

import netvitals_lab as lab
from netvitals.cli import app
from netvitals_lab import Study, data, models
from netvitals_lab import device as placement
from netvitals_lab.engine.workers.task import TrialTask, perform
from netvitals_lab.training import Recipe, evaluate, train


@dataclasses.dataclass(frozen=True)
class One:
    seeds: int = 1


def where(config):
    net, digits = models.build("mlp:64-8-10", seed=0), data.load("digits")
    places = {next(net.parameters()).device.type, digits.train.x.device.type, digits.probe.y.device.type}
    return [{"places": sorted(places)}]


STUDY = Study(
    name="where",
    paper="toy",
    title="where is it?",
    scales=dict.fromkeys(("smoke", "small", "paper"), One()),
    trials=lambda p: [{"seed": s} for s in range(p.seeds)],
    trial=where,
    summary=lambda rows: {},
)


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_networks_and_data_of_a_trial_are_on_its_device(device, tmp_path):
    done = perform(TrialTask(key="k", function=where, config={"seed": 0}, device=device))
    assert done.rows == [{"places": [device]}], done.error
    assert placement.device().type == "cpu"  # and nothing stays behind
    outcome = lab.run(STUDY, "smoke", "inline", device=device, results=tmp_path / "r.sqlite", progress=False)
    assert outcome.rows[0]["places"] == [device]


def test_weights_are_drawn_before_they_move():
    here = models.build("mlp:64-8-10", seed=3)
    with placement.placed("cpu"):
        there = models.build("mlp:64-8-10", seed=3)
    assert all(torch.equal(a, b) for a, b in zip(here.parameters(), there.parameters()))


def test_a_device_that_is_not_here_is_refused_before_anything_runs(tmp_path):
    absent = "cuda:7" if torch.cuda.is_available() else "cuda"
    with pytest.raises(ValueError, match=rf"'{absent}' is not here; here there are cpu"):
        lab.run(STUDY, "smoke", "inline", device=absent, results=tmp_path / "r.sqlite", progress=False)
    with pytest.raises(ValueError, match="there is no device 'gpu'"):
        placement.checked("gpu")
    said = CliRunner().invoke(app, ["reproduce", "activations", "--scale", "smoke", "--device", "gpu"])
    assert said.exit_code != 0 and "there is no device 'gpu'" in str(said.output) + str(said.exception)


def test_a_recipe_in_half_precision_trains_on_the_device_of_its_network():
    digits = data.load("digits,train=256,test=64")
    net = models.build("mlp:64-16-10,norm=batch", seed=0, data=digits)
    seen = set()
    net.register_forward_hook(lambda m, a, out: seen.add(out.dtype) if m.training else None)
    history = train(net, digits, Recipe(epochs=2, batch=64, autocast="bfloat16"))
    assert history.stopped is None and seen == {torch.bfloat16}
    assert {p.dtype for p in net.parameters()} == {torch.float32}
    assert evaluate(net, digits.test).loss > 0
