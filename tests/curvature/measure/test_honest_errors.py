"""Error bars that mean what they say: z-scores over seeds, and a stable rank marked while it is only a bound."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from netvitals.curvature import between_layers, trace
from netvitals.curvature.measure.leading import leading_squares

SEEDS = 14


@pytest.fixture(scope="module")
def problem():
    """A net whose blocks have slowly falling singular values, and its exact blocks."""
    torch.manual_seed(1)
    layers = [part for _ in range(3) for part in (nn.Linear(64, 64), nn.GELU())]
    net = nn.Sequential(*layers, nn.Linear(64, 10)).double()
    batch = (torch.randn(16, 64).double(), torch.randint(0, 10, (16,)))
    return net, batch, between_layers(net, F.cross_entropy, batch, method="exact")


@pytest.mark.parametrize("probes", [10, 30])
def test_z_scores_of_every_error_bar(problem, probes):
    net, batch, exact = problem
    runs = [between_layers(net, F.cross_entropy, batch, probes=probes, seed=s, refine=6) for s in range(SEEDS)]
    upper = np.triu_indices(len(exact.nodes))
    live = exact.tensor[upper] > 1e-9  # where T vanishes there is nothing to estimate of it
    for metric in ("resonance", "tensor", "coupling", "gn_gap", "stable_rank"):
        scores = []
        for found in runs:
            off = getattr(found, metric) - getattr(exact, metric)
            z = (off / np.maximum(getattr(found, metric + "_stderr"), 1e-300))[upper]
            keep = (live | (metric not in ("tensor", "gn_gap"))) & ((upper[0] != upper[1]) | (metric != "coupling"))
            if metric == "stable_rank":
                keep &= ~found.stable_rank_is_bound[upper]
            scores.append(z[keep])
        z = np.concatenate(scores)
        assert abs(z.mean()) < 0.6, f"{metric} at {probes} probes: z has mean {z.mean():.2f}"
        assert 0.6 < z.std() < 1.6, f"{metric} at {probes} probes: z has spread {z.std():.2f}"


def test_z_scores_of_traces(bench):
    torch.manual_seed(0)
    layers = [nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3)]
    net = nn.Sequential(*layers).double()
    batch = (torch.randn(16, 6).double(), torch.randint(0, 3, (16,)))
    true = bench.parameter_hessian(net, F.cross_entropy, batch)[0].trace().item()
    for method, probes in (("examples", 10), ("examples", 30), ("hutchinson", 10), ("hutchinson", 30)):
        runs = [trace(net, F.cross_entropy, batch, probes=probes, seed=s, method=method) for s in range(60)]
        z = np.array([(r.total - true) / r.total_stderr for r in runs])
        assert abs(z.mean()) < 0.5 and 0.6 < z.std() < 1.5, (method, probes, z.mean(), z.std())


def test_a_stable_rank_is_a_bound_until_its_spectral_norm_has_converged(problem):
    net, batch, exact = problem
    rough = between_layers(net, F.cross_entropy, batch, probes=8)
    assert rough.stable_rank_is_bound.any(), "eight probes cannot know these norms"
    assert "upper bounds" in str(rough)
    open_ones = rough.stable_rank_is_bound
    slack = 4 * rough.resonance_stderr / rough.resonance * rough.stable_rank
    assert (rough.stable_rank + slack >= exact.stable_rank)[open_ones].all()
    fine = between_layers(net, F.cross_entropy, batch, probes=8, refine=16)
    assert not fine.stable_rank_is_bound.any() and "upper bounds" not in str(fine)
    np.testing.assert_allclose(fine.spectral_norm, exact.spectral_norm, rtol=1e-3)
    assert not exact.stable_rank_is_bound.any()


def test_leading_singular_values_of_rectangular_and_indefinite_blocks():
    g = torch.Generator().manual_seed(0)
    draw = lambda a, b: torch.randn(a, b, generator=g, dtype=torch.float64)
    a, b, c = draw(40, 40), draw(60, 60), draw(40, 60)
    blocks = {(0, 0): a + a.mT, (1, 1): -(b @ b.mT), (0, 1): c, (1, 0): c.mT}
    apply = lambda w, z: [z @ blocks[v, w].mT for v in (0, 1)]
    starts = {(0, 0): draw(1, 40), (1, 1): draw(1, 60), (0, 1): draw(1, 60)}
    few, many = (leading_squares(starts, apply, rounds, most=10**6) for rounds in (3, 30))
    for pair in starts:
        true = float(torch.linalg.matrix_norm(blocks[pair], 2)) ** 2
        assert few[pair][0][0] <= true * (1 + 1e-12) and few[pair][1][0] > 0.02, (pair, few[pair], true)
        assert many[pair][0][0] == pytest.approx(true, rel=1e-3) and many[pair][1][0] < 0.02, (pair, many[pair])
    tight = leading_squares(starts, apply, 3, most=1)  # one block at a time
    assert all(tight[p][0][0] == pytest.approx(few[p][0][0], rel=1e-9) for p in starts)
