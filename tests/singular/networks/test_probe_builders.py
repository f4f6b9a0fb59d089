"""The rarer networks of the freeze probe, and what is special about cross-entropy."""

import math

import pytest
import torch

from netvitals.singular import kfac, kl_order
from netvitals.singular.laws.crossover import rotation_crossover
from netvitals.singular.moments.factors import lambda_min
from netvitals.singular.networks.architecture import Chain
from netvitals.singular.networks.builders import (
    Autoencoder,
    BlockPair,
    DiagonalNet,
    Memorised,
    PreNormProbe,
    Superposition,
)
from netvitals.singular.networks.ladders import freeze_probe
from netvitals.singular.orders.cross_entropy import softmax_head, without_logit_shift
from netvitals.singular.orders.crossing import recover_crossing


def slopes(ladder):
    return {n: f.slope for n, f in ladder.G.items()}


@pytest.mark.parametrize("activation", ["linear", "relu", "gelu", "tanh"])
def test_autoencoder_with_a_dead_unit(activation):
    identity = freeze_probe(Autoencoder(activation=activation), noise=0.0)
    assert slopes(identity) == pytest.approx(Autoencoder().predicted, abs=0.05)
    teacher = Autoencoder(activation=activation, identity=False)
    assert slopes(freeze_probe(teacher)) == pytest.approx(teacher.predicted, abs=0.05)
    free = freeze_probe(teacher, noise=0.0)
    assert list(slopes(free).values()) == pytest.approx([6, 4], abs=0.05)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_superposition(seed):
    """Directional measurements for every u; hidden 6 and output 4 without noise, 2 and 0 with it."""
    model = Superposition(seed=seed)
    assert slopes(freeze_probe(model, noise=0.0)) == pytest.approx({"hidden": 6, "output": 4}, abs=0.01)
    assert slopes(freeze_probe(model)) == pytest.approx(model.predicted, abs=0.05)


@pytest.mark.parametrize("kinds", ["MM", "MA", "AM", "AA"])
def test_block_pairs_are_not_additive_at_an_attention_input(kinds):
    pair = BlockPair(kinds)
    assert slopes(freeze_probe(pair, examples=48)) == pytest.approx(pair.predicted, abs=0.05)


@pytest.mark.parametrize("probe", [0, 1, 2])
@pytest.mark.parametrize("activation", ["gelu", "relu"])
def test_a_single_block_in_a_pre_norm_stack_reads_as_without_norms(probe, activation):
    with_norm, without = (
        slopes(freeze_probe(PreNormProbe(probe=probe, activation=activation, norm=n), (1e-4, 3e-4, 1e-3)))
        for n in (True, False)
    )
    assert with_norm == pytest.approx(PreNormProbe().predicted, abs=0.05)
    assert without == pytest.approx(with_norm, abs=0.05)


def test_biases_alone_have_no_rate():
    ts = (1e-4, 1e-3, 1e-2)
    alive = freeze_probe(Chain(depth=4, activation="gelu", exponents=((0,) * 4,), bias=1), ts)
    assert list(slopes(alive).values()) == pytest.approx([0] * 4, abs=0.05)
    dead = freeze_probe(Chain(depth=4, exponents=((math.inf,) * 4,), bias=1), ts)
    assert [dead.G[f"layer{i}"].flags for i in (1, 2, 3)] == [("identically zero",)] * 3


@pytest.mark.slow
@pytest.mark.parametrize(("activation", "expected"), [("relu", (0.34, 0.48, 1.0)), ("gelu", (0.29, 0.51, 1.05))])
def test_rotation_crossover(activation, expected):
    found = rotation_crossover(Chain(depth=4, activation=activation))
    assert [c.fit.slope for c in found] == pytest.approx(expected, abs=0.03)
    assert [c.predicted for c in found] == pytest.approx([1 / 3, 1 / 2, 1])


def test_at_a_fixed_level_of_memorisation_both_fishers_keep_the_ladder():
    """The printed contrast is not a loss of slope: only the size of the empirical Fisher shrinks."""
    model = Memorised()
    ts = (1e-4, 3e-4, 1e-3, 3e-3)
    both = {f: freeze_probe(model, ts, loss="ce", fisher=f, examples=300) for f in ("expected", "empirical")}
    for fisher, ladder in both.items():
        assert slopes(ladder) == pytest.approx(model.predicted(fisher), abs=0.05)
    size = {f: ladder.values["layer3"][0] for f, ladder in both.items()}
    assert size["empirical"] / size["expected"] < 0.1


@pytest.mark.parametrize("deepens", [0.25, 0.5])
def test_memorisation_that_deepens_shifts_both(deepens):
    model = Memorised(deepens=deepens)
    for fisher in ("expected", "empirical"):
        ladder = freeze_probe(model, (1e-4, 3e-4, 1e-3, 3e-3), loss="ce", fisher=fisher, examples=300)
        assert slopes(ladder) == pytest.approx(model.predicted(fisher), abs=0.05)


def test_head_factor_without_the_shift():
    torch.manual_seed(0)
    net = torch.nn.Linear(5, 4).double()
    g = kfac(net, "ce", torch.randn(200, 5, dtype=torch.float64))[""].G
    assert float(torch.linalg.eigvalsh(g)[0]) < 1e-12
    assert float(torch.linalg.eigvalsh(without_logit_shift(g))[0]) > 1e-3
    assert lambda_min(g)[1] == 1


def test_head_factor_pulled_back_through_a_linear_layer():
    """In a linear chain the shift's pull-back is an exact kernel of every G (erratum E3)."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(5, 4, bias=False), torch.nn.Linear(4, 4, bias=False)).double()
    g = kfac(net, "ce", torch.randn(200, 5, dtype=torch.float64))["0"].G
    assert float(torch.linalg.eigvalsh(g)[0]) < 1e-12
    kernel = torch.linalg.inv(net[1].weight.detach()) @ torch.ones(4, dtype=torch.float64)
    removed = without_logit_shift(g, net[1].weight.detach())
    assert float((g @ kernel).norm()) < 1e-10 and float(torch.linalg.eigvalsh(removed)[0]) > 1e-4


def test_softmax_head_bounds_and_memorisation():
    generator = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(500, 6, generator=generator), torch.randint(0, 6, (500,), generator=generator)
    found = [softmax_head(logits + s * torch.nn.functional.one_hot(labels, 6), labels) for s in (0.0, 4.0, 8.0, 16.0)]
    assert all(f.bounds_hold for f in found)
    assert found[0].c0 > 0.05 and found[-1].c0 < 1e-4
    contrast = [f.contrast for f in found]
    assert contrast == sorted(contrast, reverse=True)
    for f in found[1:]:
        assert 0.3 * f.epsilon < f.contrast < 3 * f.epsilon  # of order ε
    p = torch.softmax(logits.double(), -1)
    exact = torch.linalg.eigvalsh((torch.diag_embed(p) - p[:, :, None] * p[:, None]).mean(0))
    assert found[0].c0 == pytest.approx(float(exact[1]), rel=1e-6)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: BlockPair("AX"), "two letters"),
        (lambda: PreNormProbe(probe=5), "index of a block"),
        (lambda: rotation_crossover(Chain(), (0.1,)), "three positive"),
        (lambda: softmax_head(torch.ones(2, 3), torch.zeros(1)), "one label"),
    ],
)
def test_wrong_input_gets_a_sentence(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_an_inactive_coordinate_of_a_diagonal_net_is_a_crossing_and_an_active_one_is_regular():
    net = DiagonalNet(width=4, active=2, seed=3)
    x, y = net.task(samples=60)
    theta = net.at_truth()
    assert torch.allclose(net.outputs(theta, x), y)
    axis = torch.eye(8, dtype=torch.float64)
    outputs = lambda th: net.outputs(th, x)
    orders = [kl_order(outputs, theta, axis[i]).order for i in (0, 2, 3, 6)]
    assert orders == [1, 2, 2, 2]
    found = recover_crossing(outputs, theta, [axis[2] - axis[6], axis[2] + axis[6]])
    assert (found.lam, found.m) == (0.5, 2)
    with pytest.raises(ValueError, match="number of active coordinates"):
        DiagonalNet(width=2, active=3)
