"""Observed minus predicted rates of networks of one's own, over a sweep and over checkpoints."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from netvitals.singular import predict_rates, rates, spectra_history
from netvitals.singular.networks.architecture import Chain


def mlp(activation, depth=4, width=8, norm=None, after=(), bias=True):
    layers = []
    for i in range(depth):
        layers.append(nn.Linear(5 if i == 0 else width, 3 if i == depth - 1 else width, bias=bias))
        if i < depth - 1:
            layers += [activation(), *([norm(width)] if i in after else [])]
    return nn.Sequential(*layers)


class Block(nn.Module):
    """Two weights beside the stream, with the norm before or after."""

    def __init__(self, width, norm=nn.LayerNorm, post=False):
        super().__init__()
        self.norm, self.up, self.down, self.post = norm(width), nn.Linear(width, 12), nn.Linear(12, width), post

    def forward(self, x):
        if self.post:
            return self.norm(x + self.down(torch.tanh(self.up(x))))
        return x + self.down(torch.tanh(self.up(self.norm(x))))


def stack(**options):
    return nn.Sequential(nn.Linear(5, 8), Block(8, **options), Block(8, **options), nn.Linear(8, 3))


def image():
    return nn.Sequential(
        nn.Conv2d(1, 5, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(5, 6, 3),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(6, 3),
    )


class Scaled(nn.Module):
    def __init__(self, shift=0.0):
        super().__init__()
        self.gain, self.shift = nn.Parameter(torch.linspace(0.5, 2, 8)), shift

    def forward(self, x):
        return self.gain * x + self.shift


NETS = {
    "scaled": (lambda: nn.Sequential(nn.Linear(5, 8), Scaled(), nn.Tanh(), nn.Linear(8, 3)), [2, 0]),
    "relu": (lambda: mlp(nn.ReLU), [6, 4, 2, 0]),
    "sigmoid": (lambda: mlp(nn.Sigmoid, depth=3), [4, 2, 0]),
    "layer norm after the first": (lambda: mlp(nn.GELU, norm=nn.LayerNorm, after=(0,)), [0, 4, 2, 0]),
    "rms norm after the first": (lambda: mlp(nn.GELU, norm=nn.RMSNorm, after=(0,)), [2, 4, 2, 0]),
    "two rms norms": (lambda: mlp(nn.Tanh, depth=5, norm=nn.RMSNorm, after=(0, 2)), [2, 6, 4, 2, 0]),
    "pre-norm": (stack, [0, 2, 0, 4, 2, 0]),
    "post-norm": (lambda: stack(post=True), [0, 2, 0, 2, 0, 0]),
    "pre-norm, rms": (lambda: stack(norm=nn.RMSNorm), [2, 4, 2, 4, 2, 0]),
    "image": (image, [4, 2, 0]),
    "flattened image": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 5, 3), nn.Tanh(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(20, 6), nn.Linear(6, 2)
        ),
        [4, 2, 0],
    ),
    "batch norm": (lambda: nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3)), [2, 0]),
}


@pytest.mark.parametrize("name", NETS)
def test_a_network_of_ones_own_has_the_rates_that_its_anatomy_predicts(name):
    torch.manual_seed(0)
    make, expected = NETS[name]
    net, x = make(), torch.randn(40, 1, 6, 6) if "image" in name else torch.randn(40, 5)
    before = {k: v.clone() for k, v in net.state_dict().items()}
    found = rates(net, "mse", x)
    assert [p.predicted for p in found.parts if p.factor == "G"] == expected
    assert all(p.predicted is not None and abs(p.difference) < 0.02 for p in found.parts), str(found)
    assert found.agrees and abs(found.worst.difference) < 0.02
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())


def test_cross_entropy_and_any_choice_of_units_give_the_same_rates():
    torch.manual_seed(1)
    net, x = mlp(nn.Tanh), torch.randn(40, 5)
    found = rates(net, "ce", x, units={"0": 2, "4": 5})
    assert found.units["0"] == 2 and found.units["4"] == 5
    assert [round(p.fit.slope, 2) + 0 for p in found.parts] == [6, 4, 2, 0, 0, 2, 4, 6]


DESIGNS = [("", ()), ("layer", (3,)), ("layer", (1,)), ("rms", (2,)), ("rms", (1, 3))]


# a ReLU behind a LayerNorm is in the next test: the chain is silent above it
@pytest.mark.parametrize(
    ("activation", "norm", "after"),
    [("relu", *d) for d in DESIGNS if d != DESIGNS[2]] + [("gelu", *d) for d in DESIGNS],
)
def test_a_module_and_the_chain_of_its_design_have_the_same_prediction(activation, norm, after):
    kind = {"layer": nn.LayerNorm, "rms": nn.RMSNorm, "": None}[norm]
    layers = []
    for i in range(1, 6):
        layers.append(nn.Linear(6, 6, bias=False))
        layers += [{"relu": nn.ReLU, "gelu": nn.GELU}[activation]()] if i < 5 else []
        layers += [kind(6)] if i in after else []
    found = predict_rates(nn.Sequential(*layers), torch.randn(7, 6))
    chain = predict_rates(Chain(depth=5, width=6, activation=activation, norm=norm or "layer", norm_after=after))
    assert list(found.G.values()) == list(chain.G.values())
    if not after:
        assert list(found.A.values()) == list(chain.A.values())


def test_a_relu_behind_a_layer_norm_is_closed_and_no_rate_is_claimed():
    torch.manual_seed(0)
    net = mlp(nn.ReLU, norm=nn.LayerNorm, after=(0,), bias=False)
    found = rates(net, "mse", torch.randn(40, 5).abs())
    closed = [p for p in found.parts if p.factor == "G" and p.predicted is None]
    assert [p.layer for p in closed] == ["3", "5"] and all("identically zero" in p.fit.flags for p in closed)
    assert "closed for every example" in str(found)


def test_a_shifted_channel_is_never_empty():
    torch.manual_seed(0)
    found = rates(nn.Sequential(nn.Linear(5, 8), Scaled(0.3), nn.Linear(8, 3)), "mse", torch.randn(40, 5))
    a = next(p for p in found.parts if (p.layer, p.factor) == ("2", "A"))
    assert a.predicted == 0 and abs(a.fit.slope) < 0.01 and "not zero at zero" in a.why


class Bent(nn.Module):
    def forward(self, x):
        return 2e-5 * x + 0.1 * x**2  # linear in the dead channel below t of about 1e-4 only


def test_a_window_that_is_not_asymptotic_is_a_deviation_with_a_large_error():
    torch.manual_seed(0)
    found = rates(nn.Sequential(nn.Linear(5, 8), Bent(), nn.Linear(8, 3)), "mse", torch.randn(40, 5))
    a = next(p for p in found.parts if (p.layer, p.factor) == ("2", "A"))
    assert a.predicted == 2 and a.difference > 0.4 and a.error > 0.4 and not found.agrees


REFUSED = {
    "softmax mixes": lambda: nn.Sequential(nn.Linear(5, 4), nn.Softmax(-1)),
    "part of the parameter self_attn.in_proj_weight": lambda: nn.TransformerEncoderLayer(5, 1, 8),
    "at zero is 0": lambda: nn.Sequential(nn.Linear(5, 4), nn.Softshrink(0.5), nn.Linear(4, 2)),
    "glu in 1": lambda: nn.Sequential(nn.Linear(5, 4), nn.GLU(), nn.Linear(2, 2)),
    "2 input channels are made from 4": lambda: nn.Sequential(
        nn.Linear(5, 4), nn.Unflatten(1, (2, 2)), nn.Linear(2, 2), nn.Flatten()
    ),
    "is computed from": lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(5, 2))),
    "no weight matrix": nn.Identity,
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_has_no_law_is_refused_with_its_name(why):
    with pytest.raises(ValueError, match=why):
        predict_rates(REFUSED[why]().eval(), torch.randn(6, 5))


def test_a_module_needs_inputs_and_the_sweep_three_places():
    with pytest.raises(TypeError, match="give inputs as batch"):
        predict_rates(nn.Linear(2, 2))
    with pytest.raises(ValueError, match="noisy=True"):
        predict_rates(nn.Linear(2, 2), torch.ones(3, 2), noisy=False)
    with pytest.raises(ValueError, match="at least three"):
        rates(nn.Linear(2, 2), "mse", torch.ones(3, 2), ts=(0.1, 0.2))
    with pytest.raises(ValueError, match="units= names the layer 'x'"):
        rates(nn.Linear(2, 2), "mse", torch.ones(3, 2), units={"x": 0})
    with pytest.raises(ValueError, match="0 to 7, but units= gives channel 8"):
        rates(mlp(nn.Tanh), "mse", torch.ones(3, 5), units={"0": 8})
    with pytest.raises(ValueError, match="the batch is empty"):
        rates(mlp(nn.Tanh), "mse", torch.ones(0, 5))


# ------------------------------------------------------------------------------------------ over checkpoints


def chain(depth=3, width=4):
    return nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(depth))).double()


def path(net, ts, other=1.0):
    weight = lambda t: torch.diag(torch.tensor([1.0, other, 0.8, t], dtype=torch.float64))
    return {i: dict.fromkeys(net.state_dict(), weight(t)) for i, t in enumerate(ts)}


def task(width=4):
    x = torch.randn(400, width, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x = x @ torch.linalg.inv(torch.linalg.cholesky(x.T @ x / 400)).T  # white, so that t is exact
    return x, x @ torch.diag(torch.tensor([1.0, 1.0, 0.8**3, 0.0], dtype=torch.float64))


TS = [0.3 * 0.7**i for i in range(12)]


def test_the_three_axes_agree_on_a_known_path():
    net, (x, y) = chain(), task()
    found = spectra_history(net, "mse", (x, y), checkpoints=path(net, TS), times=dict(enumerate(TS)), keep=2)
    assert found.axes["activations"] == pytest.approx(TS) and found.ranks["0"] == (0, 1, 2, 3)
    assert found.axes["loss"] / found.axes["loss"][0] == pytest.approx(np.array(TS) / TS[0])
    for axis in ("given", "loss", "activations"):
        picked = found.select(axis)
        assert [(s.layer, s.predicted, s.floored) for s in picked] == [("0", 4, 0), ("1", 2, 0), ("2", 0, 0)]
        assert all(abs(s.difference) < 1e-6 for s in picked) and [s.rank for s in picked][:2] == [0, 0]
    local = found.local("0", 0, "given")
    assert [r["step"] for r in local] == list(range(2, 10)) and all(abs(r["difference"]) < 1e-6 for r in local)


def test_without_an_approach_nothing_is_fitted_and_a_wrong_exponent_is_beyond_reach():
    net, (x, y) = chain(), task()
    still = spectra_history(net, "mse", (x, y), checkpoints=path(net, [0.3, 0.29, 0.28]))
    assert all(s.rank is None and "no approach" in s.note and math.isnan(s.difference) for s in still.select())
    with pytest.raises(ValueError, match="times= was not given"):
        still.select("given")
    squared = spectra_history(net, "mse", (x, y), checkpoints=path(net, TS), times={i: t**2 for i, t in enumerate(TS)})
    words = {s.layer: s.note for s in squared.select("given")}
    assert words["0"].startswith("theorem reach exceeded: the nearest exponent is 2.0") and "rank" in words["2"]


def test_ranks_at_the_floor_are_left_out():
    net, (x, y) = chain(), task()
    found = spectra_history(
        net, "mse", (x, y), checkpoints=path(net, [1e-6 * t for t in TS]), times=dict(enumerate(TS))
    )
    first = found.select("given")[0]
    assert first.floored == 1 and first.rank is None


def test_followed_eigenvectors_do_not_swap_where_eigenvalues_cross():
    net, (x, y) = chain(2), task()
    ts = np.geomspace(1.6, 0.2, 9).tolist()  # the dead one crosses 1 and 0.8
    states = {
        i: dict.fromkeys(net.state_dict(), torch.diag(torch.tensor([1.0, 1.3, 0.8, t], dtype=torch.float64)))
        for i, t in enumerate(ts)
    }
    times = dict(enumerate(ts))
    ranked = spectra_history(net, "mse", (x, y), checkpoints=states, times=times).fits("0", "given")
    followed = spectra_history(net, "mse", (x, y), checkpoints=states, times=times, follow=True).fits("0", "given")
    assert max(abs(f.slope - 2) < 1e-6 for f in followed) and not any(abs(f.slope - 2) < 0.1 for f in ranked)


def test_a_model_without_a_law_is_recorded_all_the_same():
    net = nn.Sequential(nn.Linear(3, 4), nn.Softmax(-1), nn.Linear(4, 2))
    found = spectra_history(net, "mse", torch.randn(20, 3), checkpoints={0: net.state_dict()}, keep=1)
    assert found.values["0"].shape == (1, 2) and "softmax" in found.skipped["prediction"]
    with pytest.raises(ValueError, match="no prediction"):
        spectra_history(net, "mse", torch.randn(20, 3), checkpoints={0: net.state_dict()}, times={0: 1.0}).select(
            "given"
        )
    with pytest.raises(ValueError, match="step 0 does not fit"):
        spectra_history(net, "mse", torch.randn(20, 3), checkpoints={0: {}})
    with pytest.raises(KeyError, match="no layer 'x'"):
        found.fits("x", "given") if "given" in found.axes else found._of("x")


def test_a_picture_has_predicted_and_measured_exponents():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 2))
    found = rates(net, "mse", torch.randn(32, 3))
    drawn = {s.name: list(s.y) for s in found.plot().series}
    assert drawn["G, predicted"] == [2, 0] and drawn["A, predicted"] == [0, 2]
    assert drawn["G, measured"] == [p.fit.slope for p in found.parts if p.factor == "G"]
