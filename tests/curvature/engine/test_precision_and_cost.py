"""What rounding leaves, what checkpointing hides, and whether the stated cost is the cost."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from netvitals import curvature
from netvitals.curvature.engine.checks import asymmetry, gradient_beyond


def mlp(act, width, depth, classes=10):
    layers = [part for _ in range(depth) for part in (nn.Linear(width, width), act())]
    return nn.Sequential(*layers, nn.Linear(width, classes))


class Checkpointed(nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        self.reentrant = reentrant
        self.a, self.b, self.c = nn.Linear(4, 6), nn.Sequential(nn.Linear(6, 6), nn.Tanh()), nn.Linear(6, 2)

    def forward(self, x):
        return self.c(checkpoint(self.b, torch.tanh(self.a(x)), use_reentrant=self.reentrant))


def batch_of(dtype=torch.float64):
    return torch.randn(5, 4, dtype=dtype), torch.randn(5, 2, dtype=dtype)


@pytest.mark.parametrize(("space", "nodes"), [("activation", ["a", "b", "b.0"]), ("parameter", ["a", "b", "c"])])
def test_checkpointed_blocks_have_the_curvature_of_plain_ones(space, nodes):
    net, batch = Checkpointed(False).double(), batch_of()
    plain = copy.deepcopy(net)
    plain.forward = lambda x: plain.c(plain.b(torch.tanh(plain.a(x))))
    found, expected = (
        curvature.between_layers(m, F.mse_loss, batch, nodes=nodes, space=space, method="exact") for m in (net, plain)
    )
    np.testing.assert_allclose(found.resonance, expected.resonance, rtol=1e-9)


class Moody(nn.Module):
    """Keeps one tensor more for its gradient on every other call."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return torch.tanh(x) if self.calls % 2 else torch.tanh(x) * x.cosh() / x.cosh()


def test_a_failed_checkpoint_gets_advice_that_its_user_does_not_follow_already():
    net = Checkpointed(False)
    net.b = Moody()
    with pytest.raises(ValueError, match="recomputed") as raised:
        curvature.trace(net, F.mse_loss, batch_of(torch.float32), probes=4)
    assert "use_reentrant" not in str(raised.value)


@pytest.mark.filterwarnings("ignore:None of the inputs")
def test_reentrant_checkpoints_are_named():
    with pytest.raises(ValueError, match="Pass use_reentrant=False"):
        curvature.trace(Checkpointed(True), F.mse_loss, batch_of(torch.float32), probes=4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_measured_and_says_how_roughly(dtype):
    torch.manual_seed(0)
    net = mlp(nn.Tanh, 24, 2)
    x, y = torch.randn(8, 24), torch.randint(0, 10, (8,))
    exact = curvature.between_layers(net, F.cross_entropy, (x, y), method="exact")
    half = copy.deepcopy(net).to(dtype)
    for more in ({"probes": 12}, {"method": "exact", "dtype": dtype}, {"probes": 12, "reduction": "per_sample"}):
        found = curvature.between_layers(half, F.cross_entropy, (x.to(dtype), y), **more)
        assert found.floor >= 4 * torch.finfo(dtype).eps, found.floor
        if found.reduction == "mean_block":
            np.testing.assert_allclose(found.resonance, exact.resonance, rtol=0.15)


class Cast(nn.Module):
    """A norm that computes in float32, as those of Llama and T5 do."""

    def forward(self, x):
        y = x.float()
        return (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


def test_float32_inside_a_float64_model_raises_the_floor():
    plain, cast = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 3)), None
    cast = nn.Sequential(plain[0], plain[1], Cast(), plain[2])
    batch = (torch.randn(7, 6).double(), torch.randint(0, 3, (7,)))
    floors = [
        curvature.between_layers(m.double(), F.cross_entropy, batch, nodes=["0", "1"], method="exact").floor
        for m in (plain, cast)
    ]
    assert floors[0] < 1e-14 and floors[1] >= 4 * torch.finfo(torch.float32).eps, floors


def convolutional():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.SiLU(), nn.Conv2d(8, 8, 3), nn.SiLU(), nn.Flatten(), nn.Linear(288, 10)
    )


NETS = {
    "tanh": (lambda: mlp(nn.Tanh, 40, 4), (64, 40)),
    "relu": (lambda: mlp(nn.ReLU, 40, 4), (64, 40)),
    "many classes": (lambda: mlp(nn.GELU, 32, 4, classes=200), (64, 32)),
    "convolution": (convolutional, (16, 3, 8, 8)),
}


def work(run):
    """Multiply-adds of a call, whatever the machine."""
    with FlopCounterMode(display=False) as counter:
        found = run()
    return counter.get_total_flops(), found


@pytest.mark.slow
@pytest.mark.parametrize("name", NETS)
def test_the_stated_cost_is_the_cost(name):
    make, shape = NETS[name]
    net, batch = make(), (torch.randn(*shape), torch.randint(0, 10, (shape[0],)))
    gradient, _ = work(lambda: torch.autograd.grad(F.cross_entropy(net(batch[0]), batch[1]), list(net.parameters())))
    runs = {
        "activation": lambda: curvature.between_layers(net, F.cross_entropy, batch, probes=20),
        "parameter": lambda: curvature.between_layers(net, F.cross_entropy, batch, probes=20, space="parameter"),
        "trace": lambda: curvature.trace(net, F.cross_entropy, batch, probes=20),
        "gauss-newton": lambda: curvature.trace(net, F.cross_entropy, batch, probes=20, part="GN"),
        "eigenvalues": lambda: curvature.top_eigenvalues(net, F.cross_entropy, batch, k=2),
    }
    for what, run in runs.items():
        spent, found = work(run)
        ratio = found.cost * gradient / spent
        assert 1 / 1.6 < ratio < 1.6, f"{what}: {found.cost:.0f} stated, {spent / gradient:.0f} spent"


def test_the_sizes_of_the_checks_are_shares():
    full, through = [torch.tensor([3.0, 4.0]), None], [torch.tensor([3.0, 0.0]), None]
    assert gradient_beyond(full, through) == pytest.approx(0.8)
    assert gradient_beyond(through, full) == pytest.approx(0.8) and gradient_beyond([None], [None]) == 0
    assert gradient_beyond([torch.tensor([1.0]), None], [torch.tensor([1.0]), torch.tensor([1.0])]) == pytest.approx(
        0.5**0.5
    )
    source = torch.Generator().manual_seed(0)
    h = torch.randn(40, 40, generator=source, dtype=torch.float64)
    defects = [asymmetry(lambda rows, part=part: [rows[0] @ part.mT], [h[0]]) for part in (h + h.T, h - h.T, h * 0)]
    assert defects[0] < 1e-14 and 0.5 < defects[1] < 7 and defects[2] == 0
