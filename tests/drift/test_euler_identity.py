"""Σ p ∂ℓ/∂p = ⟨o, ∇ℓ⟩, sample by sample, at any time in training (D5)."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from netvitals import drift


def conv_net():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, bias=False),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, bias=False),
        nn.ReLU(inplace=True),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(8 * 4, 20, bias=False),
        nn.ReLU(),
        nn.Linear(20, 5, bias=False),
    ).double()


LOSSES = {
    "cross-entropy": (F.cross_entropy, lambda n: torch.randint(0, 5, (n,))),
    "squares": (lambda o, y: (o - y).square().sum(1).mean() / 2, lambda n: torch.randn(n, 5).double()),
    "huber": (lambda o, y: F.huber_loss(o, y, delta=0.5), lambda n: torch.randn(n, 5).double()),
}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("kind", ["dense", "convolutional"])
def test_exact_to_round_off_at_every_step(made, loss, kind):
    net = conv_net() if kind == "convolutional" else made.relu_net([12, 32, 32, 32, 5])
    loss_fn, target = LOSSES[loss]
    torch.manual_seed(1)
    shape = (16, 3, 14, 14) if kind == "convolutional" else (16, 12)
    x, y = torch.randn(shape).double(), target(16)
    opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    for _ in range(6):
        result = drift.euler(net, loss_fn, (x, y), mode="eval")
        assert len(result.layers) == 3
        assert result.defect <= 1e-12, result.defects
        opt.zero_grad()
        loss_fn(net(x), y).backward()
        opt.step()


def test_the_left_side_is_the_closed_form_of_cross_entropy(made):
    net = made.relu_net([12, 32, 5])
    x, y = torch.randn(9, 12).double(), torch.randint(0, 5, (9,))
    o = net(x).detach()
    expected = (o.softmax(1) * o).sum(1) - o[torch.arange(9), y]
    result = drift.euler(net, F.cross_entropy, (x, y), mode="eval")
    assert torch.allclose(result.output, expected, atol=1e-14)
    summed = drift.euler(net, lambda o, y: F.cross_entropy(o, y, reduction="sum"), (x, y), reduction="sum", mode="eval")
    assert torch.allclose(summed.output, expected, atol=1e-14)
    assert result.mean == pytest.approx(float(expected.mean()))
    assert result.stderr == pytest.approx(float(expected.std() / 3))


def test_single_precision_is_good_to_1e_5(made):
    net = made.relu_net([64, 128, 128, 10], dtype=torch.float32)
    batch = torch.randn(32, 64), torch.randint(0, 10, (32,))
    assert drift.euler(net, F.cross_entropy, batch, mode="eval").defect < 1e-5


def test_persistence_flips_once_the_net_has_learned(made):
    net = made.relu_net([12, 64, 64, 5])
    torch.manual_seed(3)
    x, y = torch.randn(32, 12).double(), torch.randint(0, 5, (32,))
    first = drift.euler(net, F.cross_entropy, (x, y), mode="eval")
    opt = torch.optim.Adam(net.parameters(), lr=3e-3)
    for _ in range(150):
        opt.zero_grad()
        F.cross_entropy(net(x), y).backward()
        opt.step()
    last = drift.euler(net, F.cross_entropy, (x, y), mode="eval")
    assert last.mean < first.mean and not last.persists and "reverses" in str(last)


@pytest.mark.parametrize("change", ["bias", "gelu"])
def test_a_net_that_is_not_homogeneous_has_a_defect(made, change):
    net = made.relu_net([12, 32, 32, 5], bias=change == "bias")
    if change == "gelu":
        net[3] = nn.GELU()
    batch = torch.randn(16, 12).double(), torch.randint(0, 5, (16,))
    assert drift.euler(net, F.cross_entropy, batch, mode="eval").defect > 1e-6


def test_the_model_is_left_as_it_was(made):
    net = made.relu_net([12, 32, 5]).train()
    batch = torch.randn(4, 12).double(), torch.randint(0, 5, (4,))
    F.cross_entropy(net(batch[0]), batch[1]).backward()
    grads = [p.grad.clone() for p in net.parameters()]
    drift.euler(net, F.cross_entropy, batch, mode="eval")
    assert net.training and all(torch.equal(p.grad, g) for p, g in zip(net.parameters(), grads))


def test_wrong_input_gets_a_sentence(made):
    net = made.relu_net([12, 32, 5])
    x, y = torch.randn(4, 12).double(), torch.randint(0, 5, (4,))
    with pytest.raises(TypeError, match="no loss_fn was given"):
        drift.euler(net, None, (x, y), mode="eval")
    with pytest.raises(TypeError, match=r"pair \(x, y\)"):
        drift.euler(net, F.cross_entropy, x, mode="eval")
    with pytest.raises(ValueError, match="loss on this batch is nan"):
        drift.euler(net, F.cross_entropy, (x * float("nan"), y), mode="eval")
    with pytest.raises(ValueError, match="no activation received a gradient"):
        drift.euler(nn.Linear(12, 5).double(), F.cross_entropy, (x, y), mode="eval")
    with pytest.raises(ValueError, match="'mean' or 'sum'"):
        drift.euler(net, F.cross_entropy, (x, y), reduction="none", mode="eval")


def test_the_law_speaks_only_where_it_holds_and_the_mean_is_sure():
    torch.manual_seed(0)
    x, y = torch.randn(256, 8, dtype=torch.float64), torch.randint(5, (256,))
    plain = nn.Sequential(nn.Linear(8, 32, bias=False), nn.ReLU(), nn.Linear(32, 5, bias=False)).double()
    with torch.no_grad():
        plain[2].weight.mul_(4)
    seen = drift.euler(plain, "ce", (x, y))
    (law,) = seen.laws.values()
    single = seen.layers["1"]
    assert law.stderr == pytest.approx(float(single.std(correction=1)) / 16, rel=1e-9)
    assert law.outlook == seen.outlook == "persists" and law.mean > 2 * law.stderr and seen.persists
    with torch.no_grad():
        plain[2].weight.mul_(-1)
    far = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 5)).double()
    silent = drift.euler(far, "ce", (x, y))
    assert not silent.outlook and not silent.persists and "not homogeneous" in silent.laws["1"].why
    assert "the law is silent; it speaks in 0 of 1 layers" in str(silent)
    four = drift.euler(plain, "ce", (x[:4], y[:4]))
    unsure = four.laws["1"]
    assert bool(unsure.outlook) == (abs(unsure.mean) > 2 * unsure.stderr)


def test_the_outlook_turns_with_the_sign_of_the_push():
    """A readout that knows the answer pushes its outputs up."""
    centres = 3 * torch.eye(4, dtype=torch.float64)
    y = torch.arange(4).repeat(32)
    net = nn.Sequential(nn.Linear(4, 4, bias=False), nn.ReLU(), nn.Linear(4, 4, bias=False)).double()
    with torch.no_grad():
        net[0].weight.copy_(torch.eye(4))
        net[2].weight.copy_(0.5 * torch.eye(4))
    x = centres[y] + 0.05 * torch.randn(128, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert drift.euler(net, "ce", (x, y)).outlook == "reverses"
