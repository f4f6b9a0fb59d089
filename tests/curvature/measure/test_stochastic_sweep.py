"""The sweep against exact blocks: error, honesty of standard errors, bounds, reproducibility, cost."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from netvitals.curvature import between_layers


def mlp(act, width, depth, norm=False, classes=10):
    layers = []
    for _ in range(depth):
        layers += [nn.Linear(width, width), *([nn.LayerNorm(width)] if norm else []), act()]
    return nn.Sequential(*layers, nn.Linear(width, classes))


NETS = {"tanh": (nn.Tanh, 64, 3, False), "relu+norm": (nn.ReLU, 64, 2, True), "gelu": (nn.GELU, 128, 2, False)}


@pytest.fixture(scope="module", params=NETS, ids=str)
def measured(request):
    """A net, its exact blocks, and the sweep at 60 seeds."""
    torch.manual_seed(1)
    spec = NETS[request.param]
    net = mlp(*spec).double()
    batch = (torch.randn(16, spec[1]).double(), torch.randint(0, 10, (16,)))
    exact = between_layers(net, F.cross_entropy, batch, method="exact")
    return net, batch, exact, [between_layers(net, F.cross_entropy, batch, probes=30, seed=s) for s in range(60)]


@pytest.mark.slow
def test_resonance_is_within_ten_percent_at_thirty_probes(measured):
    _, _, exact, runs = measured
    worst = max(float(np.abs(r.resonance / exact.resonance - 1).max()) for r in runs)
    assert worst <= 0.10, f"largest relative error over 60 seeds and all pairs {worst:.3f}"


@pytest.mark.slow
def test_resonance_lies_within_three_of_its_own_standard_errors(measured):
    _, _, exact, runs = measured
    outside = np.mean([np.abs(r.resonance - exact.resonance) > 3 * r.resonance_stderr for r in runs], axis=0)
    inside = 100 * (1 - outside)
    assert inside.mean() >= 95, f"mean coverage {inside.mean():.1f} % of the seeds"
    assert inside.min() >= 90, f"worst pair {inside.min():.0f} % of the seeds"


@pytest.mark.parametrize(("metric", "least"), [("coupling", 95), ("gn_gap", 95), ("stable_rank", 90)])
def test_other_standard_errors_cover_too(measured, metric, least):
    _, _, exact, runs = measured
    true = getattr(exact, metric)
    off = [np.abs(getattr(r, metric) - true) > 3 * getattr(r, metric + "_stderr") + 1e-12 for r in runs]
    inside = 100 * (1 - np.nanmean(off))
    assert inside >= least, f"{metric}: {inside:.1f} of 100"


@pytest.mark.slow
def test_shared_probes_and_deflation_beat_plain_probes(measured):
    net, batch, exact, runs = measured
    plain = [between_layers(net, F.cross_entropy, batch, probes=30, seed=s, plain=True) for s in range(20)]
    spread = lambda rs: np.sqrt(np.mean([(r.resonance / exact.resonance - 1) ** 2 for r in rs]))
    assert spread(runs) < 0.6 * spread(plain), (spread(runs), spread(plain))
    assert np.isnan(plain[0].stable_rank).all()


def test_stable_rank_stays_between_one_and_the_rank(measured):
    _, _, exact, runs = measured
    for r in runs:
        assert r.stable_rank.min() >= 1
        assert r.stable_rank.max() <= min(exact.sizes)
    median = np.median([r.stable_rank / exact.stable_rank for r in runs])
    assert median == pytest.approx(1, abs=0.1)


def test_refining_brings_the_stable_rank_of_slow_spectra_nearer():
    torch.manual_seed(1)
    net = mlp(nn.GELU, 128, 3).double()
    batch = (torch.randn(16, 128).double(), torch.randint(0, 10, (16,)))
    exact = between_layers(net, F.cross_entropy, batch, method="exact").stable_rank
    runs = [between_layers(net, F.cross_entropy, batch, probes=12, refine=r) for r in (0, 2, 8)]
    errors = [float(np.mean(r.stable_rank / exact - 1)) for r in runs]
    assert errors[0] > errors[1] > errors[2] > -0.05, errors
    assert errors[2] < 0.1 and runs[2].products == runs[0].products + 8 * 9


def test_gap_is_within_a_quarter_at_thirty_probes(measured):
    _, _, exact, runs = measured
    live = exact.gn_gap > 1e-9
    worst = max(float(np.abs(r.gn_gap[live] / exact.gn_gap[live] - 1).max()) for r in runs)
    assert worst < 0.25, f"largest relative error {worst:.3f}"


def test_same_seed_same_numbers_other_seed_other_numbers(measured):
    net, batch, _, runs = measured
    again = between_layers(net, F.cross_entropy, batch, probes=30, seed=0)
    np.testing.assert_array_equal(again.resonance, runs[0].resonance)
    assert (runs[0].resonance != runs[1].resonance).any()


def test_narrow_nodes_are_exact(case):
    model, loss, batch, nodes = case
    exact = between_layers(model, loss, batch, nodes=nodes, method="exact")
    swept = between_layers(model, loss, batch, nodes=nodes, probes=max(exact.sizes))
    for key in ("resonance", "gauss_newton", "tensor", "coupling", "stable_rank", "effective_dimension"):
        np.testing.assert_allclose(getattr(swept, key), getattr(exact, key), rtol=1e-5, atol=1e-12, err_msg=key)
    assert not swept.effective_dimension_is_partial.any()


def test_an_effective_dimension_from_few_probes_is_of_what_they_span():
    torch.manual_seed(0)
    net = mlp(nn.Tanh, 40, 3).double()
    batch = (torch.randn(64, 40).double(), torch.randint(0, 10, (64,)))
    exact = between_layers(net, F.cross_entropy, batch, method="exact").effective_dimension
    few, more = (between_layers(net, F.cross_entropy, batch, probes=p) for p in (8, 24))
    for found in (few, more):
        d = found.effective_dimension
        known = np.isfinite(d)
        assert (d[known] >= 1).all() and (d[known] <= 1.1 * exact[known]).all()
        assert found.effective_dimension_is_partial[~known | (np.nan_to_num(d) < 0.97 * exact)].all()
    unknown = [int(np.isnan(found.effective_dimension).sum()) for found in (few, more)]
    assert unknown[0] > unknown[1], unknown
    assert few.effective_dimension_is_partial.any() and "values of d_eff are of the part" in str(few)
    assert np.nanmin(more.effective_dimension / exact) > 0.4


@pytest.mark.parametrize("space", ["activation", "parameter"])
def test_one_sweep_costs_nodes_times_probes_products(space):
    net = mlp(nn.Tanh, 40, 4)
    batch = (torch.randn(8, 40), torch.randint(0, 10, (8,)))
    found = between_layers(net, F.cross_entropy, batch, probes=12, space=space)
    assert found.products == 12 * len(found.nodes)
    assert found.cost < 4 * found.products


@pytest.mark.parametrize("reduction", ["per_sample", "mean_of_norms", "joint"])
def test_other_reductions_estimate_what_they_say(reduction):
    torch.manual_seed(2)
    net = mlp(nn.Tanh, 40, 3).double()
    batch = (torch.randn(4, 40).double(), torch.randint(0, 10, (4,)))
    exact = between_layers(net, F.cross_entropy, batch, method="exact", reduction=reduction)
    swept = between_layers(net, F.cross_entropy, batch, probes=30, reduction=reduction)
    np.testing.assert_allclose(swept.resonance, exact.resonance, rtol=0.1)
    np.testing.assert_allclose(swept.gn_gap, exact.gn_gap, rtol=0.2, atol=1e-9)
    if reduction == "per_sample":
        assert swept.per_sample["resonance"].shape == (4, 3, 3)
        np.testing.assert_allclose(swept.per_sample["coupling"], exact.per_sample["coupling"], rtol=0.15)


def test_parameter_space_sweep_agrees_with_exact():
    torch.manual_seed(2)
    net = mlp(nn.Tanh, 10, 3).double()
    batch = (torch.randn(16, 10).double(), torch.randint(0, 10, (16,)))
    exact = between_layers(net, F.cross_entropy, batch, method="exact", space="parameter")
    swept = between_layers(net, F.cross_entropy, batch, probes=30, space="parameter")
    np.testing.assert_allclose(swept.resonance, exact.resonance, rtol=0.1)
    assert (np.abs(swept.resonance - exact.resonance) <= 4 * swept.resonance_stderr).all()
    np.testing.assert_allclose(swept.gn_gap, exact.gn_gap, rtol=0.15, atol=1e-9)


def test_chunks_do_not_change_the_numbers():
    net = mlp(nn.SiLU, 40, 3).double()
    batch = (torch.randn(8, 40).double(), torch.randint(0, 10, (8,)))
    wide = between_layers(net, F.cross_entropy, batch, probes=12)
    tight = between_layers(net, F.cross_entropy, batch, probes=12, memory=400_000)
    np.testing.assert_allclose(tight.resonance, wide.resonance, rtol=1e-9)


def test_gauss_newton_by_roots_or_by_products_is_the_same():
    from netvitals.curvature.engine.products import Products
    from netvitals.curvature.engine.tape import recorded

    net = mlp(nn.SiLU, 12, 3).double()
    batch = (torch.randn(8, 12).double(), torch.randint(0, 10, (8,)))
    with recorded(net, F.cross_entropy, batch) as tape:
        z = torch.randn(5, 1, 12, dtype=torch.float64)
        quick, slow = Products(tape), Products(tape, roots="never")
        assert quick.roots is not None and slow.roots is None
        for a, b in zip(quick.column(1, [z]).gauss_newton, slow.column(1, [z]).gauss_newton):
            torch.testing.assert_close(a[0], b[0])
