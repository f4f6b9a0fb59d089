"""Hidden-state models: probabilities against brute force, and the answers that follow by hand."""

import itertools
import math

import pytest
import torch

from netvitals.singular.networks import latent, zoo

f64 = torch.float64


@pytest.mark.parametrize("start", [False, True])
def test_a_sequence_has_the_sum_over_hidden_paths(start):
    m, split, share, memory, first = 0.05, 0.2, 0.3, 0.4, 0.1
    chain = latent.HiddenMarkov(length=3, truth=0.4, start=start)
    found = chain.outputs(torch.tensor([m, split, share, memory, *([first] if start else [])], dtype=f64)).exp()[0]
    ones = (0.4 + m - share * split, 0.4 + m + (1 - share) * split)
    move = (
        (1 - share * (1 - memory), share * (1 - memory)),
        ((1 - share) * (1 - memory), share + memory * (1 - share)),
    )
    begin = share + first * start
    for i, seen in enumerate(itertools.product((0, 1), repeat=3)):
        total = 0.0
        for path in itertools.product((0, 1), repeat=3):
            p = begin if path[0] else 1 - begin
            p *= math.prod(move[a][b] for a, b in itertools.pairwise(path))
            total += p * math.prod(ones[h] if s else 1 - ones[h] for h, s in zip(path, seen))
        assert abs(float(found[i]) - total) < 1e-14


def test_symbols_covary_as_the_formula_says():
    share, memory, split = 0.3, 0.5, 0.2
    p = latent.HiddenMarkov(length=3).outputs(torch.tensor([0.0, split, share, memory], dtype=f64)).exp()[0]
    bits = torch.tensor(list(itertools.product((0.0, 1.0), repeat=3)), dtype=f64)
    mean = p @ bits
    assert torch.allclose(mean, torch.full((3,), 0.4, dtype=f64))
    for gap in (1, 2):
        covariance = float(p @ (bits[:, 0] * bits[:, gap])) - 0.16
        assert abs(covariance - share * (1 - share) * split**2 * memory**gap) < 1e-14


def test_a_boltzmann_machine_is_the_sum_over_its_hidden_units():
    machine, w = latent.Boltzmann(visible=3, hidden=2), torch.linspace(-0.8, 0.9, 6, dtype=f64)
    weights = w.reshape(3, 2)
    raw = [
        sum(math.exp(float(torch.tensor(x, dtype=f64) @ weights @ torch.tensor(h, dtype=f64))) for h in HIDDEN)
        for x in itertools.product((-1.0, 1.0), repeat=3)
    ]
    assert torch.allclose(machine.outputs(w)[0].exp(), torch.tensor(raw, dtype=f64) / sum(raw))


HIDDEN = list(itertools.product((-1.0, 1.0), repeat=2))


def test_many_parameters_at_once_are_the_same_as_one_by_one():
    theta = torch.rand(5, 4, generator=torch.Generator().manual_seed(0), dtype=f64) / 4
    chain, machine = latent.HiddenMarkov(), latent.Boltzmann(4)
    for model in (chain, machine):
        assert torch.allclose(model.outputs(theta), torch.cat([model.outputs(t) for t in theta]))


@pytest.mark.parametrize("specimen", latent.specimens(), ids=lambda s: s.name)
def test_what_is_found_is_what_is_known(specimen):
    found = zoo.examine(specimen)
    assert found.agrees, found
    assert found.order is None or abs(found.ratio / (2 * found.order**2) - 1) < 1e-3


def test_lambda_by_hand():
    known = {(v, 1): latent.Boltzmann(v).known for v in (2, 3, 4, 6)}
    assert known == {(2, 1): (0.5, 2), (3, 1): (0.75, 1), (4, 1): (1.0, 1), (6, 1): (1.5, 1)}
    assert latent.Boltzmann(2, 2).known == (0.5, 1)
    with pytest.raises(LookupError, match="is not known"):
        _ = latent.Boltzmann(3, 2).known


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="at least 2"):
        latent.HiddenMarkov(length=1)
    with pytest.raises(ValueError, match="every probability must be positive"):
        latent.HiddenMarkov(truth=1.0)
    with pytest.raises(ValueError, match="visible= must be at least 2"):
        latent.Boltzmann(visible=1)
