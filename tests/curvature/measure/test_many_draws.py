"""Networks that draw random numbers: the mean over draws, and its spread."""

import itertools

import numpy as np
import pytest
import torch
from torch import nn

from netvitals import curvature


class Dropped(nn.Module):
    """Dropout of one half of three units, the same for all examples: eight networks of one chance each."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c, self.mask = nn.Linear(2, 3), nn.Linear(3, 3), nn.Linear(3, 2), None

    def forward(self, x):
        mask = torch.randint(0, 2, (3,)).to(x) if self.mask is None else self.mask
        return self.c(torch.tanh(self.b(2 * mask * torch.tanh(self.a(x)))))


@pytest.fixture
def task():
    torch.manual_seed(0)
    return Dropped().double(), (torch.randn(5, 2).double(), torch.randn(5, 2).double())


def each_of_eight(net, batch):
    """The exact blocks of every network that dropout can make."""
    found = []
    for mask in itertools.product((0.0, 1.0), repeat=3):
        net.mask = torch.tensor(mask, dtype=torch.float64)
        found.append(curvature.between_layers(net, "mse", batch, nodes=["a", "b"], method="exact").blocks)
    net.mask = None
    return found


def test_the_blocks_of_many_draws_are_their_mean(task):
    net, batch = task
    found = curvature.between_layers(net, "mse", [batch] * 6, nodes=["a", "b"], method="exact")
    eight = each_of_eight(net, batch)
    net.mask, drawn = None, []
    for number in range(6):
        torch.manual_seed(number)
        drawn.append(int((torch.randint(0, 2, (3,)) * torch.tensor([4, 2, 1])).sum()))
    assert len(set(drawn)) > 1
    for part in ("gauss_newton", "tensor"):
        wanted = torch.stack([getattr(eight[i], part) for i in drawn]).mean(0)
        torch.testing.assert_close(getattr(found.blocks, part), wanted, rtol=1e-9, atol=1e-12)
    norms = curvature.between_layers(net, "mse", [batch] * 6, nodes=["a", "b"], probes=5)
    np.testing.assert_allclose(norms.resonance, found.resonance, rtol=1e-9)
    np.testing.assert_allclose(norms.sampling["tensor"], found.sampling["tensor"], rtol=1e-7)


def test_the_spread_over_draws_is_the_error_of_their_mean(task):
    """z-scores against the mean over all eight networks; each data set of draws has other numbers."""
    net, batch = task
    mean = torch.stack([b.hessian for b in each_of_eight(net, batch)]).mean(0)
    wanted = np.array(
        [[float(mean[v, w].norm()) for w in (slice(0, 3), slice(3, 6))] for v in (slice(0, 3), slice(3, 6))]
    )
    z = []
    for run in range(25):
        torch.manual_seed(1000 + run)
        masks = torch.randint(0, 2, (40, 3)).double()
        net.mask = _Next(masks)
        found = curvature.between_layers(net, "mse", [batch] * 40, nodes=["a", "b"], method="exact")
        z.append((found.resonance - wanted) / found.sampling["resonance"])
    z = np.array(z)[:, [0, 0, 1], [0, 1, 1]]
    assert abs(z.mean()) < 0.6 and 0.6 < z.std() < 1.5, (z.mean(), z.std())


class _Next:
    """A mask that depends on the seed of the pass alone."""

    def __init__(self, masks):
        self.masks = masks

    def __rmul__(self, factor):
        return factor * self.masks[int(torch.randint(0, 1 << 40, (1,))) % len(self.masks)]


class Sampled(nn.Module):
    """A latent variable that is drawn, as in a variational autoencoder."""

    def __init__(self):
        super().__init__()
        self.mean, self.scale, self.out = nn.Linear(2, 3), nn.Linear(2, 3), nn.Linear(3, 2)

    def forward(self, x):
        return self.out(torch.tanh(self.mean(x) + torch.randn(len(x), 3).to(x) * self.scale(x).exp()))


def test_every_measurement_takes_draws_and_one_batch_is_refused():
    torch.manual_seed(0)
    batch = torch.randn(6, 2), torch.randn(6, 2)
    dropout = nn.Sequential(nn.Linear(2, 40), nn.Tanh(), nn.Dropout(0.3), nn.Linear(40, 2))
    for net, nodes in ((dropout, ["0", "1"]), (Sampled(), ["mean", "scale"])):
        state = torch.get_rng_state()
        for f in (curvature.trace, curvature.top_eigenvalues, curvature.spectral_density, curvature.graph):
            with pytest.raises(ValueError, match=r"\[batch\] \* 16"):
                f(net, "mse", batch)
        with pytest.raises(ValueError, match=r"\[batch\] \* 16"):
            curvature.between_layers(net, "mse", batch, nodes=nodes)
        assert curvature.trace(net, "mse", [batch] * 8).total_sampling > 0
        assert curvature.top_eigenvalues(net, "mse", [batch] * 8).sampling_stderr[0] > 0
        assert curvature.spectral_density(net, "mse", [batch] * 3, steps=4, runs=1).trace
        first, second = (curvature.between_layers(net, "mse", [batch] * 8, nodes=nodes) for _ in range(2))
        np.testing.assert_array_equal(first.resonance, second.resonance)  # the draws are those of the batches' numbers
        assert (first.sampling["resonance"] > 0).all()
        assert torch.equal(state, torch.get_rng_state())
