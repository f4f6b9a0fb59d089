"""Every parameter with two or more dimensions is measured and judged, whatever its name; experts one by one."""

import math

import pytest
import torch
from torch import nn

import netvitals as nv
from netvitals.vitals import Drift, Gradients, Spikes


class Stacked(nn.Module):
    """Four experts in one tensor, all used; a scalar temperature; a bias."""

    def __init__(self):
        super().__init__()
        self.experts = nn.Parameter(0.1 * torch.randn(4, 6, 5))
        self.temperature = nn.Parameter(torch.tensor(1.0))
        self.shift = nn.Parameter(torch.zeros(6))

    def forward(self, x):
        return torch.einsum("bi,eoi->bo", x, self.experts) * self.temperature + self.shift


def train(model, vitals, x, steps=3, lr=0.1):
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    with nv.watch(model, optimizer=optimizer, every=1, vitals=vitals) as watching:
        for _ in range(steps):
            loss = (model(x) - 1).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watching.step(loss)
    return watching


def test_stacked_experts_are_read_one_by_one_and_counted_once():
    torch.manual_seed(0)
    model = Stacked()
    watching = train(model, [Gradients()], torch.randn(20, 5), steps=1, lr=0.0)
    read = {(r.site, r.metric): r.value for r in watching.measurements if r.vital == "gradients"}
    for i in range(4):
        assert read[f"experts[{i}]", "weight_norm"] == pytest.approx(float(model.experts[i].norm().detach()), rel=1e-5)
        assert read[f"experts[{i}]", "grad_norm"] == pytest.approx(float(model.experts.grad[i].norm()), rel=1e-5)
    assert read["experts", "grad_rms"] == pytest.approx(float(model.experts.grad.square().mean().sqrt()), rel=1e-5)
    whole = math.sqrt(sum(float(p.grad.square().sum()) for p in model.parameters()))
    assert read["model", "grad_norm"] == pytest.approx(whole, rel=1e-5)
    assert {site for site, metric in read if metric == "grad_rms"} == {"experts", *(f"experts[{i}]" for i in range(4))}


def test_a_convolution_is_no_stack():
    watching = train(
        nn.Sequential(nn.Conv1d(3, 4, 3), nn.Flatten(), nn.Linear(12, 2)), [Gradients()], torch.randn(4, 3, 5)
    )
    assert not [r.site for r in watching.measurements if "[" in r.site]


def test_weights_without_a_usual_name_are_judged():
    class Cut(nn.Module):
        """Its kernel gets no gradient."""

        def __init__(self):
            super().__init__()
            self.kernel, self.out_proj = nn.Parameter(torch.randn(5, 5)), nn.Parameter(torch.randn(5, 2))

        def forward(self, x):
            return (x @ self.kernel).detach() @ self.out_proj + 0 * self.kernel.sum()

    watching = train(Cut(), ["gradients"], torch.randn(20, 5), steps=6)
    (finding,) = [f for f in watching.findings().all if f.rule == "vanishing gradients"]
    assert finding.severity == "critical" and finding.sites == ("kernel",)


def test_the_drift_of_a_single_number_is_not_told_in_spreads_that_it_does_not_have():
    watching = train(Stacked(), [Drift(min_steps=1)], torch.randn(20, 5), steps=2)
    read = {r.site: r.value for r in watching.measurements if r.metric == "drift_z"}
    assert math.isnan(read["temperature"])
    assert all(abs(v) < 100 for site, v in read.items() if site != "temperature")
    assert math.isfinite(read["model/weight"])


class Planted(nn.Module):
    """Hands its input through a layer that is the identity."""

    def __init__(self, recurrent=None):
        super().__init__()
        self.recurrent, self.layer, self.act = recurrent, nn.Linear(6, 6), nn.ReLU()
        with torch.no_grad():
            self.layer.weight.copy_(torch.eye(6))
            self.layer.bias.zero_()

    def forward(self, x):
        h = self.act(self.layer(x))
        return h if self.recurrent is None else h + self.recurrent(h)[0]


@pytest.mark.parametrize("batch_first", [True, False])
def test_position_and_sample_of_a_spike_are_not_exchanged(batch_first):
    x = torch.rand(7, 9, 6)  # (examples, positions, channels)
    x[5, 2, 3] = 500.0
    model = Planted(nn.GRU(6, 6, batch_first=batch_first))
    watching = train(model, [Spikes()], x if batch_first else x.transpose(0, 1).contiguous(), steps=1, lr=0.0)
    read = {(r.site, r.metric): r.value for r in watching.measurements}
    assert [read["act", m] for m in ("sample", "token", "channel")] == [5, 2, 3]


def test_a_spike_in_plain_rows_has_its_sample():
    x = torch.rand(64, 6)
    x[45, 1] = 500.0
    watching = train(Planted(), [Spikes()], x, steps=1, lr=0.0)
    read = {(r.site, r.metric): r.value for r in watching.measurements}
    assert [read["act", m] for m in ("sample", "channel")] == [45, 1]
