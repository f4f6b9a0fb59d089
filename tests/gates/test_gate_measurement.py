"""Measuring the gates of whole models: two backends, three poolings, nothing left behind."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from netvitals import gates


def bn_mlp(activation, seed=0, width=64, depth=3):
    torch.manual_seed(seed)
    layers, m = [], 20
    for _ in range(depth):
        layers += [nn.Linear(m, width), nn.BatchNorm1d(width), activation()]
        m = width
    return nn.Sequential(*layers, nn.Linear(m, 10))


def small_vgg():
    torch.manual_seed(0)
    layers, m = [], 3
    for n in (16, 32, 64):
        layers += [nn.Conv2d(m, n, 3, padding=1), nn.BatchNorm2d(n), nn.ReLU(), nn.MaxPool2d(2)]
        m = n
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * 16, 10))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.second, self.norm2 = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.inner, self.outer = nn.ReLU(), nn.ReLU()

    def forward(self, x):
        h = self.inner(self.norm(self.first(x)))
        return self.outer(x.abs() + self.norm2(self.second(h)))


@pytest.fixture
def batch():
    torch.manual_seed(5)
    return torch.randn(64, 20), torch.randint(0, 10, (64,))


@pytest.mark.parametrize("activation", [nn.ReLU, nn.GELU, nn.SiLU, nn.Mish, nn.Tanh])
def test_both_backends_give_the_same_gates_where_gradients_flow(batch, activation):
    net = bn_mlp(activation)
    local = gates.measure(net, batch, mode="train")
    ratio = gates.measure(net, F.cross_entropy, batch, backend="ratio", mode="train")
    assert ratio.valid > 0.999
    for name, site in local.sites.items():
        other = ratio.sites[name]
        assert other.mean == pytest.approx(site.mean, abs=2e-3 * (1 - ratio.valid) + 1e-6)
        for theta in (0.01, 0.1):
            assert other.density(theta) == pytest.approx(site.density(theta), abs=1e-3 * (1 - ratio.valid) + 3e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("activation", "expected"), [(nn.ReLU, 0.4996), (nn.GELU, 0.9851), (nn.SiLU, 0.9838), (nn.Mish, 0.9853)]
)
def test_density_at_initialisation_over_twenty_seeds(batch, activation, expected):
    values = [gates.measure(bn_mlp(activation, seed), batch, mode="train").density(0.01) for seed in range(20)]
    assert np.mean(values) == pytest.approx(expected, abs=3e-3)


def test_behind_max_pooling_the_ratio_is_biased_and_the_local_derivative_is_not():
    net = small_vgg()
    torch.manual_seed(1)
    x, y = torch.randn(32, 3, 32, 32), torch.randint(0, 10, (32,))
    local = gates.measure(net, (x, y), mode="train")
    ratio = gates.measure(net, F.cross_entropy, (x, y), backend="ratio", mode="train")
    assert local.density(0.01) == pytest.approx(0.5, abs=0.02)
    assert ratio.density(0.01) > 0.7
    assert 0.2 < ratio.valid < 0.6
    assert all(s.density(0.01) > 0.65 for s in ratio.sites.values())


def test_a_zero_head_gives_nan_by_ratio_and_a_number_by_local_derivative(batch):
    net = bn_mlp(nn.ReLU)
    nn.init.zeros_(net[-1].weight)
    ratio = gates.measure(net, F.cross_entropy, batch, backend="ratio", mode="train")
    assert math.isnan(ratio.density(0.01)) and ratio.valid == 0
    assert math.isnan(ratio.density(0.01, pooling="channel"))
    assert gates.measure(net, batch, mode="train").density(0.01) == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("backend", ["local_vjp", "ratio"])
@pytest.mark.parametrize("slope", [0.01, 0.1])
def test_a_leaky_slope_of_exactly_theta_is_closed_by_both_backends(batch, slope, backend):
    net = bn_mlp(lambda: nn.LeakyReLU(slope))
    found = gates.measure(net, F.cross_entropy, batch, thetas=(slope,), backend=backend, mode="train")
    positive = gates.measure(bn_mlp(nn.LeakyReLU), batch, thetas=(0.5,), mode="train").sites["2"].density(0.5)
    assert found.sites["2"].density(slope) == pytest.approx(positive, abs=1e-6)


def test_relu_mean_gate_is_its_density(batch):
    for site in gates.measure(bn_mlp(nn.ReLU), batch, mode="train").sites.values():
        assert site.mean == pytest.approx(site.density(0.01), abs=1e-7)
        assert set(np.unique(site.percentiles)) <= {0.0, 1.0}
        assert site.variance == pytest.approx(site.mean * (1 - site.mean), abs=1e-6)


@pytest.mark.parametrize("backend", ["local_vjp", "ratio"])
def test_the_model_is_left_as_it_was(batch, backend):
    net = nn.Sequential(bn_mlp(nn.GELU), nn.Dropout(0.5)).train()
    net[0][0].eval()
    F.cross_entropy(net(batch[0]), batch[1]).backward()
    before = {k: v.clone() for k, v in net.state_dict().items()}
    grads = [p.grad for p in net.parameters()]
    values = [g.clone() for g in grads]
    modes, state = [m.training for m in net.modules()], torch.get_rng_state()
    gates.measure(net, F.cross_entropy, batch, backend=backend, mode="train")
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())
    assert all(p.grad is g and torch.equal(g, v) for p, g, v in zip(net.parameters(), grads, values))
    assert [m.training for m in net.modules()] == modes
    assert torch.equal(torch.get_rng_state(), state)
    assert not any(m._forward_hooks or m._forward_pre_hooks or m._backward_hooks for m in net.modules())


def test_batch_statistics_by_default_and_running_ones_on_request(batch):
    net = bn_mlp(nn.ReLU, depth=1)
    net[1].running_mean.fill_(100.0)  # in eval mode every input is far below zero
    assert gates.measure(net, batch, mode="train").density(0.01) == pytest.approx(0.5, abs=0.05)
    assert gates.measure(net, batch, mode="eval").density(0.01) == 0
    assert gates.measure(net, batch, mode="train").sites["2"].sigma == pytest.approx(np.ones(64), abs=1e-3)


def test_dropout_does_not_blur_a_measurement(batch):
    net = nn.Sequential(nn.Linear(20, 50), nn.Dropout(0.9), nn.ReLU()).train()
    assert gates.measure(net, batch[0], mode="train").density(0.01) == gates.measure(
        net.eval(), None, batch[0], mode="train"
    ).density(0.01)


def test_sites_after_an_addition_are_told_apart():
    torch.manual_seed(0)
    net = nn.Sequential(Block(), Block())
    x = torch.randn(8, 4, 6, 6)
    report = gates.measure(net, x, mode="train")
    kinds = {name: s.site.follows for name, s in report.sites.items()}
    assert kinds == {"0.inner": "bn_direct", "0.outer": "post_add", "1.inner": "bn_direct", "1.outer": "post_add"}
    direct = [report.sites[n].density(0.01) for n in ("0.inner", "1.inner")]
    assert report.density(0.01, follows="bn_direct") == pytest.approx(np.mean(direct))
    assert report.density(0.01, follows="post_add") > report.density(0.01, follows="bn_direct")
    table = str(report)
    assert "post_add, by element" in table and "all, by channel" in table and "1.outer" in table
    with pytest.raises(ValueError, match="no activation site has follows='nothing'"):
        report.density(0.01, follows="nothing")


def test_three_poolings_of_unequal_sites():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv1d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(2 * 30, 50), nn.Tanh())
    report = gates.measure(net, torch.randn(16, 1, 32), thetas=(0.9,), mode="train")
    d = [s.density(0.9) for s in report.sites.values()]
    assert report.density(0.9, "element") == pytest.approx(np.average(d, weights=[60, 50]))
    assert report.density(0.9, "site") == pytest.approx(np.mean(d))
    assert report.density(0.9, "channel") == pytest.approx(np.average(d, weights=[2, 50]))


def test_functional_activations_are_measured(batch):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(20, 30), nn.Linear(30, 30)

        def forward(self, x):
            return self.b(F.gelu(self.a(x))).tanh()

    report = gates.measure(Net(), batch[0], mode="train")
    assert [s.site.op for s in report.sites.values()] == ["gelu", "tanh"]


def test_prediction_of_a_batchnormed_net_is_within_a_point(batch):
    report = gates.measure(bn_mlp(nn.GELU, width=256), (torch.randn(512, 20), None), mode="train")
    for theta in (0.01, 0.1):
        assert report.predicted(theta) == pytest.approx(report.density(theta), abs=0.01)
    m = report.margins(0.1)["2"]
    assert m.interval_union.shape == (256,)
    assert report.predicted(0.1, "channel") == pytest.approx(report.predicted(0.1), abs=1e-6)


def test_an_activation_with_a_slope_per_channel_has_no_prediction_but_a_density(batch):
    net = nn.Sequential(nn.Linear(20, 8), nn.PReLU(8), nn.Linear(8, 8), nn.ReLU())
    report = gates.measure(net, batch[0], mode="train")
    assert report.sites["1"].density(0.01) == 1
    assert set(report.margins(0.01)) == {"3"}


def test_what_mixes_elements_is_skipped_with_the_reason(batch):
    net = nn.Sequential(nn.Linear(20, 8), nn.GLU(), nn.ReLU(), nn.Softmax(-1))
    report = gates.measure(net, batch[0], mode="train")
    assert list(report.sites) == ["2"]
    assert set(report.skipped) >= {"1.glu()", "3"}
    assert "skipped 1" in str(report)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"batch": torch.full((4, 20), float("nan"))}, "80 of 80 values that are NaN or infinite"),
        ({"batch": torch.randn(1, 20)}, r"BatchNorm \(1\) cannot compute statistics of a batch of 1"),
        ({"batch": torch.empty(0, 20)}, "no tensor with elements"),
        ({"backend": "guess"}, "backend= must be 'local_vjp' or 'ratio', got 'guess'"),
        ({"mode": "batch"}, "mode= must be 'train', 'eval' or 'as_is'"),
        ({"backend": "ratio"}, "give loss_fn"),
        ({"thetas": ()}, "one or more non-negative thresholds"),
        ({"thetas": (-1,)}, "non-negative"),
        ({"model": nn.Sequential(nn.Linear(20, 2))}, "no activation whose gates could be measured"),
        ({"model": nn.Sequential(nn.Linear(20, 2), nn.Softmax(-1))}, "depends on several inputs"),
    ],
)
def test_wrong_input_gets_a_sentence(batch, change, sentence):
    given = {"model": bn_mlp(nn.ReLU), "batch": batch[0]} | change
    state = {k: v.clone() for k, v in given["model"].state_dict().items()}
    with pytest.raises(ValueError, match=sentence):
        gates.measure(**given)
    assert all(torch.equal(v, state[k]) for k, v in given["model"].state_dict().items())


class Maxout(nn.Module):
    """ReLU, then a maximum of several outputs of a layer, or a pooling that only looks like one."""

    def __init__(self, largest):
        super().__init__()
        self.a, self.b, self.largest = nn.Linear(20, 16), nn.Linear(16, 16), largest

    def forward(self, x):
        return self.largest(self, torch.relu(self.a(x)))


@pytest.mark.parametrize(
    ("largest", "listed"),
    [
        (lambda net, h: net.b(h).view(-1, 8, 2).max(-1).values, True),
        (lambda net, h: net.b(h).unflatten(-1, (8, 2)).amax(dim=-1), True),
        (lambda net, h: torch.maximum(net.b(h), net.a(h[:, :1].expand(-1, 20))), True),
        (lambda net, h: net.b(h).max(dim=0).values, False),  # pooling over examples or tokens
        (lambda net, h: net.b(h) - net.b(h).max(), False),
    ],
)
def test_maxout_is_listed_as_skipped_and_pooling_is_not(batch, largest, listed):
    report = gates.measure(Maxout(largest), batch[0], mode="train")
    assert list(report.sites) == ["relu()"]
    assert [name in ("maxout()", "maximum()") for name in report.skipped] == [True] * listed


def test_one_threshold_may_be_given_as_a_number(batch):
    assert gates.measure(bn_mlp(nn.ReLU), batch[0], thetas=0.2, mode="train").density(0.2) > 0


def test_a_model_that_is_none_gets_a_sentence(batch):
    with pytest.raises(TypeError, match=r"must be a torch\.nn\.Module, got a str"):
        gates.measure("model", batch, mode="train")


def test_questions_that_the_report_cannot_answer(batch):
    report = gates.measure(bn_mlp(nn.ReLU), batch, mode="train")
    with pytest.raises(ValueError, match=r"measured at theta = 0.01, 0.1, not at 0.05"):
        report.density(0.05)
    with pytest.raises(ValueError, match="pooling= must be"):
        report.density(0.1, pooling="layer")
    with pytest.raises(ValueError, match="from 1 to 99"):
        report.sites["2"].quantile(0)


def test_vgg11_at_initialisation_has_the_masked_density_of_the_specification():
    from netvitals_lab import models

    torch.manual_seed(0)
    net = models.build("vgg11")
    batch = torch.randn(16, 3, 32, 32), torch.randint(0, 10, (16,))
    local = gates.measure(net, batch, mode="train")
    ratio = gates.measure(net, F.cross_entropy, batch, backend="ratio", mode="train")
    assert local.density(0.01) == pytest.approx(0.500, abs=5e-3)
    assert 0.73 <= ratio.density(0.01) <= 0.77 and 0.73 <= ratio.density(0.01, "site") <= 0.78
    valid = np.mean([s.valid for s in ratio.sites.values()])
    assert valid == pytest.approx(0.53, abs=0.02)


def test_resnet18_at_initialisation_differs_by_kind_of_site_and_of_shortcut():
    from netvitals_lab import models

    torch.manual_seed(0)
    report = gates.measure(models.build("resnet18,width=8"), torch.randn(64, 3, 32, 32), mode="train")
    direct = [s.density(0.01) for s in report.sites.values() if s.site.follows == "bn_direct"]
    added = {n: s.density(0.01) for n, s in report.sites.items() if s.site.follows == "post_add"}
    assert np.mean(direct) == pytest.approx(0.499, abs=3e-3)
    projected = [added.pop(f"stages.{i}.0.acts.1") for i in (1, 2, 3)]
    assert np.mean(projected) == pytest.approx(0.50, abs=0.01)
    assert len(added) == 5 and all(0.61 < d < 0.70 for d in added.values())
