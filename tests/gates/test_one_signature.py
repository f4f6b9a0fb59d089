"""Everything in gates, drift, saddle and capture that runs a model is called in one way and answers in one way."""

from __future__ import annotations

import inspect
import json

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from netvitals import drift, gates, saddle
from netvitals.capture import Result, observe
from netvitals.vitals import Gates

X, Y = torch.randn(12, 4, generator=torch.Generator().manual_seed(0)), torch.arange(12) % 3
OPTIONS = ["mode", "only", "seed", "progress"]  # in this order, where a function has them

ENTRIES = {
    "observe": (observe, {"vitals": [Gates()]}),
    "gates.measure": (gates.measure, {}),
    "gates.measure by ratio": (gates.measure, {"backend": "ratio"}),
    "drift.euler": (drift.euler, {}),
    "drift.set_drift": (drift.set_drift, {"scale": 1.0}),
    "drift.push": (drift.push, {}),
    "saddle.imbalance": (saddle.imbalance, {}),
    "saddle.measure_plateau": (saddle.measure_plateau, {}),
}
METERS = {"drift.sparsity": drift.sparsity, "drift.spikes": drift.spikes}  # no loss can change what they count


class Net(nn.Module):
    """A chain with named inputs, so that a dict batch can be its keywords."""

    def __init__(self, depth: int = 2) -> None:
        super().__init__()
        torch.manual_seed(0)
        sizes = [4, *[8] * (depth - 1)]
        self.hidden = nn.ModuleList([nn.Linear(a, 8) for a in sizes])
        self.acts = nn.ModuleList([nn.Tanh() for _ in sizes])
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        for layer, act in zip(self.hidden, self.acts):
            x = act(layer(x))
        return self.head(x)


def plain(found):
    return json.loads(json.dumps(found.to_dict())) if isinstance(found, Result) else found.tolist()


@pytest.mark.parametrize("name", [*ENTRIES, *METERS])
def test_the_order_and_the_names_of_the_arguments(name):
    f = METERS[name] if name in METERS else ENTRIES[name][0]
    parameters = inspect.signature(f).parameters
    front = ["model", "batch"] if name in METERS else ["model", "loss_fn", "batch"]
    assert [n for n, p in parameters.items() if p.kind is p.POSITIONAL_OR_KEYWORD] == front
    behind = [n for n, p in parameters.items() if p.kind is p.KEYWORD_ONLY]
    assert set(behind) | set(front) == set(parameters)
    assert [n for n in behind if n in OPTIONS] == [n for n in OPTIONS if n in behind]
    assert parameters["mode"].default == "as_is" and parameters["seed"].default == 0
    for n in ("only", "progress"):
        assert n not in parameters or parameters[n].default is None


@pytest.mark.parametrize("name", ENTRIES)
def test_a_pair_a_dict_and_a_name_of_the_loss_give_the_same(name):
    f, options = ENTRIES[name]
    found = [
        plain(f(Net(), loss_fn, batch, **options))
        for loss_fn in (F.cross_entropy, "ce")
        for batch in ((X, Y), {"x": X, "labels": Y})
    ]
    assert found[0] == found[1] == found[2] == found[3]


@pytest.mark.parametrize("name", METERS)
def test_a_meter_takes_one_batch_a_dict_or_a_loader(name):
    once = METERS[name](Net(), X)
    for batch in ((X, Y), {"x": X, "labels": Y}, iter([X]), [(X, Y)], torch.utils.data.DataLoader(list(zip(X, Y)), 12)):
        assert plain(METERS[name](Net(), batch)) == plain(once)
    calls = []
    METERS[name](Net(), [(X, Y)] * 3, progress=lambda done, planned: calls.append((done, planned)))
    assert calls == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize("name", ENTRIES)
@pytest.mark.parametrize("batch", [(X, Y), {"x": X, "labels": Y}, X], ids=["pair", "dict", "tensor"])
def test_the_old_order_is_refused_with_a_sentence(name, batch):
    f, options = ENTRIES[name]
    with pytest.raises(TypeError, match=r"the order of arguments is \(model, loss_fn, batch\)"):
        f(Net(), batch, F.cross_entropy, **options)


@pytest.mark.parametrize("name", [n for n in ENTRIES if n != "drift.push"])  # a push is a tensor, one number an example
def test_a_result_fits_on_a_screen_and_into_json_also_of_a_deep_model(name):
    f, options = ENTRIES[name]
    check(f(Net(depth=60), F.cross_entropy, (X, Y), **options))


@pytest.mark.parametrize("name", METERS)
def test_the_report_of_a_meter_fits_on_a_screen(name):
    check(METERS[name](Net(depth=60), X))


def check(found):
    assert isinstance(found, Result)
    text = str(found)
    assert text and len(text.splitlines()) <= 45
    assert "<pre" in found._repr_html_()
    assert isinstance(json.loads(json.dumps(found.to_dict()))["skipped"], dict)
    if type(found).rows is not Result.rows:
        assert len(found.to_frame()) == len(found.rows()) > 0


@pytest.mark.parametrize("f", [lambda m, **o: gates.measure(m, X, **o), lambda m, **o: drift.sparsity(m, X, **o)])
def test_only_picks_places_by_name_pattern_or_function(f):
    net = Net(depth=3)
    assert list(f(net, only="acts.1").sites) == ["acts.1"]
    assert list(f(net, only=["acts.0", "acts.2"]).sites) == ["acts.0", "acts.2"]
    assert list(f(net, only=lambda name: name.endswith("2")).sites) == ["acts.2"]
    assert len(f(net, only="acts.*").sites) == 3
    with pytest.raises(ValueError, match=r"there is no activation 'head'; there are 'acts\.0', 'acts\.1'"):
        f(net, only="head")


@pytest.mark.parametrize("name", ["gates.measure", "drift.euler", "drift.push", "saddle.imbalance"])
def test_noise_is_drawn_by_the_seed_and_the_generator_is_left_alone(name):
    f, options = ENTRIES[name]
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3))
    before = torch.get_rng_state()
    first, again, other = (plain(f(net, "ce", (X, Y), seed=seed, **options)) for seed in (0, 0, 1))
    assert first == again != other
    assert torch.equal(torch.get_rng_state(), before)
    for mode in ("train", "eval"):  # dropout modules are off in both
        assert plain(f(net, "ce", (X, Y), mode=mode, seed=0)) == plain(f(net, "ce", (X, Y), mode=mode, seed=1))
