"""Rate profiles of designs, and the shift of a window by component."""

import math

import pytest
import torch
from torch import nn

from netvitals.singular.laws.design import rank_designs
from netvitals.singular.networks.pre_norm import COMPONENTS, ComponentShift, PreNormTransformer, component_shift


def chain(depth, norm=None):
    layers = []
    for i in range(depth):
        layers += [
            nn.Linear(4, 4),
            *([nn.Tanh()] if i < depth - 1 else []),
            *([norm(4)] if norm and i < depth - 1 else []),
        ]
    return nn.Sequential(*layers)


def test_designs_are_ranked_by_the_mean_exponent():
    designs = {
        "deep": chain(5),
        "flat": chain(5, nn.LayerNorm),
        "short": chain(3),
        "odd": nn.Sequential(nn.Softmax(-1)),
    }
    found = rank_designs(designs, torch.randn(3, 4))
    assert [(d.name, d.steepness, d.deepest) for d in found.designs] == [
        ("flat", 0, 0),
        ("short", 2, 4),
        ("deep", 4, 8),
    ]
    assert found.best.name == "flat" and "softmax" in found.skipped["odd"] and "not here: odd" in str(found)
    assert rank_designs(designs, torch.randn(3, 4), objective="steep").best.exponents == (8, 6, 4, 2, 0)
    assert found.rows()[2] == {"design": "deep", "steepness": 4, "deepest": 8, "exponents": [8, 6, 4, 2, 0]}
    for wrong, words in (({}, "at least one"), ({"odd": designs["odd"]}, "cannot be predicted for any of the designs")):
        with pytest.raises(ValueError, match=words):
            rank_designs(wrong, torch.randn(3, 4))
    with pytest.raises(ValueError, match="objective= must be one of"):
        rank_designs(designs, torch.randn(3, 4), objective="best")


@pytest.mark.parametrize("fisher", ["expected", "empirical"])
@pytest.mark.parametrize("norm", [True, False])
def test_every_component_has_its_distance_as_t_falls_with_norms_and_without(norm, fisher):
    found = component_shift(PreNormTransformer(tokens=4, norm=norm), (1e-4, 3e-4, 1e-3), fisher=fisher, examples=60)
    assert list(found.slopes) == list(COMPONENTS)
    assert found.slopes == pytest.approx({"q": 2, "k": 2, "v": 2, "o": 0, "fc1": 2, "fc2": 0}, abs=0.01)


def test_the_block_above_a_component_is_seen_in_the_window():
    """The last block's fc2 writes straight to the output, and has no shift in any window."""
    last = component_shift(PreNormTransformer(blocks=2, probe=1, tokens=4), (0.3, 0.5, 1.0), examples=60)
    assert abs(last.delta) < 1e-9 and abs(last.shifts["v"]) > 0.1
    empirical = component_shift(PreNormTransformer(tokens=4), (0.3, 0.5, 1.0), fisher="empirical", examples=60)
    assert abs(empirical.delta) > 0.3  # the residual of the loss, not the norm


def test_counts_are_shifts_in_units_of_the_reference():
    found = ComponentShift(slopes={"v": 1.4, "fc2": -0.2}, distances={"v": 1, "fc2": 0}, reference="fc2")
    assert found.delta == pytest.approx(0.2) and found.counts["v"] == pytest.approx(3)
    still = ComponentShift(slopes={"fc2": 0.0}, distances={"fc2": 0}, reference="fc2")
    assert math.isnan(still.counts["fc2"]) and found.rows()[0]["component"] == "v"
    with pytest.raises(ValueError, match="reference= must be one of"):
        component_shift(PreNormTransformer(), (0.1, 0.2, 0.3), reference="mlp")
    with pytest.raises(ValueError, match="'expected' or 'empirical'"):
        component_shift(PreNormTransformer(), (0.1, 0.2, 0.3), fisher="true")
    with pytest.raises(ValueError, match="at least three"):
        component_shift(PreNormTransformer(), (0.1, 0.2))
    with pytest.raises(ValueError, match="index of a block"):
        PreNormTransformer(probe=2)
