"""Freeze-probe exponents against the predicted ones, for every architectural primitive."""

import math

import numpy as np
import pytest

from netvitals.singular.laws.prediction import compose_blocks, predict_rates, residual_distance
from netvitals.singular.networks.architecture import AttentionChain, Chain, SwiGLUStack
from netvitals.singular.networks.ladders import freeze_probe

SMALL_T = (1e-4, 2e-4, 4e-4, 1e-3)


def slopes(fits):
    return [f.slope for f in (fits.values() if isinstance(fits, dict) else fits)]


@pytest.mark.parametrize("activation", ["linear", "relu", "gelu", "tanh"])
def test_six_layer_ladders(activation):
    chain = Chain(depth=6, activation=activation)
    found, text = freeze_probe(chain), predict_rates(chain)
    assert list(text.G.values()) == [10, 8, 6, 4, 2, 0] and list(text.A.values()) == [0, 2, 4, 6, 8, 10]
    for measured, predicted in (
        (found.G, text.G),
        (found.G_schur, text.G),
        (found.A, text.A),
        (found.A_schur, text.A),
        (found.product, text.product),
    ):
        assert slopes(measured) == pytest.approx(list(predicted.values()), abs=0.05)
    assert slopes(found.stream) == pytest.approx(list(text.stream), abs=0.05)


@pytest.mark.parametrize(("depth", "expected"), [(2, [6, 4]), (3, [10, 8, 6])])
def test_noise_free_regime_shifts_by_two_l(depth, expected):
    chain = Chain(depth=depth)
    assert slopes(freeze_probe(chain, noise=0.0).G) == pytest.approx(expected, abs=0.05)
    assert list(predict_rates(chain, noisy=False).G.values()) == expected


def test_skip_cuts_the_ladder():
    chain = Chain(depth=4, skips=((2, 4),))
    found, text = freeze_probe(chain), predict_rates(chain)
    assert list(text.G.values()) == [2, 0, 2, 0] and text.stream == (0, 1, 2, 3, 2)
    assert slopes(found.G) == pytest.approx([2, 0, 2, 0], abs=0.05)
    assert slopes(found.stream) == pytest.approx([0, 1, 2, 3, 2], abs=0.05)


def test_per_layer_skips_leave_no_rate():
    chain = Chain(depth=3, skips=((0, 1), (1, 2), (2, 3)), activation="tanh")
    assert slopes(freeze_probe(chain).G) == pytest.approx([0, 0, 0], abs=0.05)
    assert list(predict_rates(chain).G.values()) == [0, 0, 0]


@pytest.mark.parametrize("activation", ["linear", "gelu", "tanh"])
def test_rectangular_widths(activation):
    chain = Chain(depth=4, widths=(5, 9, 7, 6, 8), activation=activation)
    assert slopes(freeze_probe(chain).G) == pytest.approx([6, 4, 2, 0], abs=0.05)


@pytest.mark.parametrize(("direction", "expected"), [(0, [12, 8, 6, 0]), (1, [8, 6, 2, 0])])
def test_several_directions_with_their_own_exponents(direction, expected):
    chain = Chain(depth=4, exponents=((1, 2, 1, 3), (2, 1, 2, 1)))
    assert slopes(freeze_probe(chain, direction=direction).G) == pytest.approx(expected, abs=0.05)
    assert list(predict_rates(chain, direction=direction).G.values()) == expected


@pytest.mark.parametrize("activation", ["linear", "gelu", "tanh"])
@pytest.mark.parametrize(("norms", "expected"), [((1,), [0, 4, 2, 0]), ((3,), [4, 2, 0, 0]), ((1, 2, 3), [0, 0, 0, 0])])
def test_layernorm_resets_the_ladder(activation, norms, expected):
    chain = Chain(depth=4, activation=activation, norm_after=norms)
    assert list(predict_rates(chain).G.values()) == expected
    assert slopes(freeze_probe(chain, SMALL_T).G) == pytest.approx(expected, abs=0.05)


@pytest.mark.parametrize("activation", ["linear", "relu", "gelu", "tanh"])
@pytest.mark.parametrize(
    ("depth", "norms", "expected"), [(4, (1,), [2, 4, 2, 0]), (4, (3,), [6, 4, 2, 0]), (6, (2,), [6, 4, 6, 4, 2, 0])]
)
def test_rmsnorm_lets_the_dead_channel_out_at_its_own_amplitude(activation, depth, norms, expected):
    """Printed: the rates are those without norms. Behind layer 1 of four, layer 1 has rate 2, and not 6."""
    chain = Chain(depth=depth, activation=activation, norm_after=norms, norm="rms")
    found = freeze_probe(chain, [1e-4, 2e-4, 4e-4, 1e-3], examples=1000)
    assert list(predict_rates(chain).G.values()) == expected
    assert [f.slope for f in found.G.values()] == pytest.approx(expected, abs=0.05)


def test_a_later_rmsnorm_takes_the_way_out_away_where_the_chain_is_homogeneous():
    for activation, first in (("relu", 10), ("gelu", 2)):
        chain = Chain(depth=6, activation=activation, norm_after=(1, 4), norm="rms")
        assert predict_rates(chain).G["layer1"] == first
    found = freeze_probe(chain, [1e-4, 2e-4, 4e-4, 1e-3], examples=1000)
    assert found.G["layer1"].slope == pytest.approx(2, abs=0.05)


@pytest.mark.parametrize(
    ("norms", "expected"), [((4,), [6, 4, 2, 0, 2, 0]), ((2,), [2, 0, 6, 4, 2, 0]), ((2, 4), [2, 0, 2, 0, 2, 0])]
)
def test_layernorm_reset_in_six_layers(norms, expected):
    chain = Chain(depth=6, norm_after=norms)
    assert list(predict_rates(chain).G.values()) == expected
    assert slopes(freeze_probe(chain, SMALL_T).G) == pytest.approx(expected, abs=0.05)


def test_relu_above_a_layernorm_closes_the_channel_exactly():
    chain = Chain(depth=4, activation="relu", norm_after=(1,))
    found, text = freeze_probe(chain, (1e-6, 1e-5, 1e-4)), predict_rates(chain)
    for layer in ("layer2", "layer3"):
        assert text.G[layer] is None
        assert found.G[layer].flags == ("identically zero",) and math.isnan(found.G[layer].slope)


def test_relu_with_a_norm_after_the_last_hidden_layer_follows_the_law():
    chain = Chain(depth=4, activation="relu", norm_after=(3,))
    assert slopes(freeze_probe(chain, SMALL_T).G) == pytest.approx([4, 2, 0, 0], abs=0.05)


@pytest.mark.parametrize(
    ("activation", "q", "expected"),
    [
        ("linear", 1, [6, 4, 2, 0]),
        ("relu", 1, [6, 4, 2, 0]),
        ("gelu", 1, [6.154, 4.102, 2.052, 0]),
        ("gelu", 2, [6.010, 4.005, 2.003, 0]),
    ],
)
def test_biases_keep_the_ladder(activation, q, expected):
    ts = np.geomspace(10**-2.5, 10**-1.3, 6)
    found = freeze_probe(Chain(depth=4, activation=activation, bias=q), ts, examples=20_000)
    assert slopes(found.G) == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize("activation", ["linear", "relu", "gelu", "tanh"])
def test_cross_entropy_keeps_the_dead_entry(activation):
    found = freeze_probe(Chain(depth=4, activation=activation), loss="ce", examples=600)
    assert slopes(found.G) == pytest.approx([6, 4, 2, 0], abs=0.05)
    if activation == "linear":  # the pulled-back logit shift is an exact kernel (erratum E3)
        assert all(f.flags == ("identically zero",) for f in found.G_schur.values())


def test_linear_rotation_keeps_and_nonlinear_rotation_loses_the_ladder():
    turned = {a: freeze_probe(Chain(depth=4, activation=a, rotation=0.1)) for a in ("linear", "relu")}
    assert slopes(turned["linear"].G) == pytest.approx([6, 4, 2, 0], abs=0.05)
    assert turned["relu"].G["layer1"].slope < 0.2
    assert predict_rates(Chain(depth=4, activation="relu", rotation=0.1)).G["layer1"] is None


@pytest.mark.parametrize("blocks", [1, 2, 3, 4, 5, 6])
def test_attention_chains(blocks):
    chain = AttentionChain(blocks=blocks, tokens=5, width=6)
    found, text = freeze_probe(chain, examples=48), predict_rates(chain)
    assert {k: f.slope for k, f in found.G.items()} == pytest.approx(text.G, abs=0.05)
    assert slopes(found.forward) == pytest.approx(list(text.stream), abs=0.05)


@pytest.mark.parametrize("options", [{"causal": True}, {"heads": 2}, {"tokens": 8, "width": 8}])
def test_attention_law_does_not_depend_on_mask_heads_or_size(options):
    chain = AttentionChain(**{"blocks": 3, "tokens": 5, "width": 6, **options})
    found, text = freeze_probe(chain, examples=48), predict_rates(chain)
    assert {k: f.slope for k, f in found.G.items()} == pytest.approx(text.G, abs=0.05)


@pytest.mark.parametrize("options", [{}, {"residual": True}, {"residual": True, "norm": True}, {"norm": True}])
def test_value_minus_output_is_two_in_any_composition(options):
    found = freeze_probe(AttentionChain(blocks=3, tokens=5, width=6, **options), examples=48)
    for b in range(3):
        assert found.G[f"block{b}.v"].slope - found.G[f"block{b}.o"].slope == pytest.approx(2, abs=0.05)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_swiglu_stacks(n):
    found = freeze_probe(SwiGLUStack(n), np.geomspace(1e-2, 1e-1, 6))
    assert found.forward[-1].slope == pytest.approx(3 * (2**n - 1), abs=0.15)
    assert predict_rates(SwiGLUStack(n)).stream[-1] == 3 * (2**n - 1)


def test_two_layer_closed_form_constants():
    constants = {"linear": 1.0, "gelu": 0.25, "tanh": 1.0, "sigmoid-shifted": 1 / 16, "relu": 0.5}
    for activation, constant in constants.items():
        found = freeze_probe(Chain(depth=2, activation=activation), (1e-3, 2e-3, 4e-3), examples=20_000)
        assert found.values["layer1"][0] / 1e-6 == pytest.approx(constant, rel=0.03)


def test_residual_distances_and_composition():
    assert residual_distance({(0, 1): 1, (1, 2): 1, (2, 3): 1, (1, 3): 0}, 4) == ([0, 1, 2, 1], [1, 0, 1, 0])
    assert compose_blocks([("mlp", 2), ("residual", 0), ("matmul", 1)]) == [6, 2, 2]
    with pytest.raises(ValueError, match="cannot be summed"):
        compose_blocks([("attention", 2)])
    with pytest.raises(ValueError, match="no path leads to"):
        residual_distance({(0, 1): 1}, 3)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Chain(depth=0),
        lambda: Chain(activation="nope"),
        lambda: Chain(widths=(3, 4)),
        lambda: Chain(skips=((3, 1),)),
        lambda: AttentionChain(width=6, heads=4),
        lambda: freeze_probe(Chain(), loss="hinge"),
        lambda: predict_rates(Chain(skips=((0, 2),), norm_after=(1,))),
    ],
)
def test_wrong_input_gets_a_sentence(make):
    with pytest.raises(ValueError, match=r"got|one of|not known|does not"):
        make()


def test_unknown_architectures_are_refused():
    with pytest.raises(TypeError, match="cannot be predicted"):
        predict_rates("mixture of experts")
