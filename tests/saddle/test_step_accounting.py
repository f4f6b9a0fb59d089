"""Discrete-step accounting: exact for plain SGD, open for momentum, Adam and weight decay."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from netvitals import saddle
from netvitals.anatomy import chart
from netvitals.capture import ParameterView, Recorder
from netvitals.vitals import StepAccounting


def one_step(make, warm=3):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2)).double()
    opt = make(net.parameters())
    for _ in range(warm):
        x = torch.randn(16, 4).double()
        before = {k: p.detach().clone() for k, p in net.named_parameters()}
        opt.zero_grad()
        F.mse_loss(net(x), x[:, :2] * 2).backward()
        grads = {k: p.grad.clone() for k, p in net.named_parameters()}
        opt.step()
    after = {k: p.detach() for k, p in net.named_parameters()}
    return net, before, after, grads


PAIRS = [("0", "2"), ("2", "4")]


def test_plain_sgd_is_explained_exactly():
    _, before, after, grads = one_step(lambda p: torch.optim.SGD(p, lr=0.1))
    for lr in (0.1, None):
        for entry in saddle.measure_steps(before, after, grads, PAIRS, lr=lr):
            assert abs(entry.gap) <= 1e-14, entry
            assert entry.lr == pytest.approx((0.1, 0.1), rel=1e-9)


@pytest.mark.parametrize(
    "make",
    [
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
        lambda p: torch.optim.Adam(p, lr=0.01),
        lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.1),
    ],
    ids=["momentum", "adam", "decay"],
)
def test_other_optimizers_open_a_gap(make):
    _, before, after, grads = one_step(make)
    gaps = [abs(e.gap) / abs(e.change) for e in saddle.measure_steps(before, after, grads, PAIRS)]
    assert max(gaps) > 1e-3


def test_identity_and_accounting_agree():
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(4, 6), nn.SiLU(), nn.Linear(6, 1)).double()
    x, y = torch.randn(16, 4).double(), torch.randn(16, 1).double()
    pair = saddle.imbalance(net, F.mse_loss, (x, y)).pairs[0]
    before = {k: p.detach().clone() for k, p in net.named_parameters()}
    F.mse_loss(net(x), y).backward()
    grads = {k: p.grad.clone() for k, p in net.named_parameters()}
    torch.optim.SGD(net.parameters(), lr=0.2).step()
    entry = saddle.measure_steps(before, dict(net.named_parameters()), grads, [("0", "2")], lr=0.2)[0]
    assert entry.predicted == pytest.approx(pair.predicted_change(0.2), abs=1e-13)


def test_vital_writes_the_gap_and_finds_its_pairs():
    net, before, after, grads = one_step(lambda p: torch.optim.Adam(p, lr=0.01))
    recorder = Recorder(step=7)
    recorder.vital = "accounting"
    seen = chart(net, torch.zeros(3, net[0].in_features, dtype=net[0].weight.dtype))
    view = ParameterView(after, before, grads, before, dict(net.named_modules()), anatomy=seen)
    StepAccounting().parameters(recorder, view)
    rows = {(r.site, r.metric): r.value for r in recorder.measurements()[0]}
    assert {s for s, _ in rows} == {"0 → 2", "2 → 4"}
    assert rows["0 → 2", "change"] == pytest.approx(rows["0 → 2", "predicted"] + rows["0 → 2", "gap"])


def test_missing_gradient_is_named():
    with pytest.raises(ValueError, match=r"b\.weight"):
        saddle.measure_steps({}, {}, {}, [("a", "b")])
