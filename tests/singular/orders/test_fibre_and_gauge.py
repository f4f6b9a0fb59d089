"""Normal bundles, quotient Fisher, and the test that tells gauge from singular directions."""

import pytest
import torch
from torch import nn

from netvitals.singular import gauge_or_singular, kl_order, rate_fit
from netvitals.singular.moments.factors import joint_mode
from netvitals.singular.orders.fibre import horizontal, log_metric, normal_bundle, quotient_fisher, subfamily, vertical
from netvitals.singular.orders.nature import along
from netvitals.singular.orders.spectrum import fisher_matrix

f64 = {"dtype": torch.float64}


def test_normal_bundle_of_a_fibre_and_its_subfamily():
    """μ = (u², u v): the fibre u = 0 is the v axis, its normal is the u axis, of order 2."""
    outputs = lambda th: torch.stack([th[0] ** 2, th[0] ** 2 * th[1]])[None]
    basis = normal_bundle(lambda tau: torch.stack([0 * tau[0], tau[0]]), torch.tensor([0.7], **f64))
    assert torch.allclose(basis.abs().T, torch.tensor([[1.0, 0.0]], **f64), rtol=0, atol=1e-14)
    theta0 = torch.tensor([0.0, 0.7], **f64)
    family = subfamily(outputs, theta0, basis)
    assert kl_order(family, torch.zeros(1, **f64), torch.ones(1, **f64)).order == 2
    assert fisher_matrix(family, torch.tensor([0.1], **f64)).shape == (1, 1)


@pytest.mark.parametrize("depth", [2, 3, 4])
def test_quotient_rate_of_a_scalar_chain(depth):
    """λ(F̄) = L t^{2(L−1)} along the horizontal diagonal, and raw F has L − 1 zeros."""
    chain = lambda th: th.prod().reshape(1, 1)

    def act(c, th):
        padded = torch.cat([torch.zeros(1, **f64), c, torch.zeros(1, **f64)])
        return th * torch.exp(padded.diff())

    ts, values = (1e-2, 2e-2, 4e-2, 8e-2), []
    for t in ts:
        theta = torch.full((depth,), t, **f64)
        found = quotient_fisher(chain, theta, vertical(act, theta, depth - 1))
        assert found.modes == depth - 1 and found.leak < 1e-10 and found.matrix.shape == (1, 1)
        values.append(float(found.spectrum[0]))
        assert values[-1] == pytest.approx(depth * t ** (2 * (depth - 1)), rel=1e-9)
        raw = torch.linalg.eigvalsh(fisher_matrix(chain, theta))
        assert int((raw < 1e-12 * raw[-1]).sum()) == depth - 1
    assert rate_fit(ts, values).slope == pytest.approx(2 * (depth - 1), abs=1e-6)


def test_the_log_metric_gives_the_same_quotient_everywhere_on_an_orbit_and_the_euclidean_does_not():
    product = lambda th: (th[0] * th[1]).reshape(1, 1)
    act = lambda c, th: th * torch.exp(torch.stack([c[0], -c[0]]))
    spectra = {"log": [], "euclidean": []}
    for c in (0.0, 0.9):
        theta = act(torch.tensor([c], **f64), torch.tensor([1.0, 0.5], **f64))
        gen = vertical(act, theta, 1)
        spectra["log"].append(float(quotient_fisher(product, theta, gen, metric=log_metric(theta)).spectrum[0]))
        spectra["euclidean"].append(float(quotient_fisher(product, theta, gen).spectrum[0]))
    assert spectra["log"][0] == pytest.approx(spectra["log"][1], rel=1e-9)
    assert abs(spectra["euclidean"][0] / spectra["euclidean"][1] - 1) > 0.2


def test_logit_shift_is_vertical_under_cross_entropy():
    outputs = lambda th: th.reshape(1, -1)
    act = lambda c, th: th + c[0]
    theta = torch.randn(5, **f64)
    found = quotient_fisher(outputs, theta, vertical(act, theta, 1), likelihood="categorical")
    assert found.leak < 1e-8 and float(found.spectrum[0]) > 1e-3
    step = horizontal(torch.tensor([1.0, 0, 0, 0, 0], **f64), vertical(act, theta, 1))
    assert step.tolist() == pytest.approx([0.8, -0.2, -0.2, -0.2, -0.2])


def dead_net():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 5, bias=False), nn.Tanh(), nn.Linear(5, 3, bias=False)).double()
    with torch.no_grad():
        net[0].weight[2], net[2].weight[:, 2] = 0, 0
    return net, torch.randn(100, 4, **f64)


def test_gauge_singular_and_regular_directions_of_a_model():
    net, x = dead_net()
    both = joint_mode(net, "0", "2", 2, torch.randn(4, **f64), torch.randn(3, **f64))
    alone = {"0.weight": both["0.weight"]}
    live = {"2.weight": torch.eye(3, 5, **f64)}
    assert [gauge_or_singular(*along(net, x, direction=d)).verdict for d in (both, alone, live)] == [
        "singular",
        "gauge",
        "regular",
    ]
    assert str(gauge_or_singular(*along(net, x, direction=both))) == "singular of order 2"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: along(nn.Linear(2, 2), torch.ones(1, 2), direction={"x": torch.ones(2)}), "not a parameter"),
        (lambda: along(nn.Linear(2, 2), torch.ones(1, 2), direction={"weight": torch.ones(2)}), "has shape"),
        (lambda: log_metric(torch.zeros(2)), "without zeros"),
        (lambda: vertical(lambda c, th: th + 1, torch.ones(2), 1), "at c = 0"),
        (lambda: subfamily(lambda th: th, torch.zeros(3), torch.eye(2)), "D = 3"),
        (lambda: normal_bundle(lambda t: t, torch.ones(1, 1)), "flat vector"),
        (
            lambda: quotient_fisher(lambda th: th[None], torch.ones(2), torch.ones(2, 1), metric=torch.zeros(2)),
            "positive",
        ),
    ],
)
def test_wrong_input_gets_a_sentence(call, words):
    with pytest.raises(ValueError, match=words):
        call()
