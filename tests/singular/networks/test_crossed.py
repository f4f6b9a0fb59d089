"""Cross-attention and learned skips: the law beside the probe, and a gradient worked out by hand."""

import math

import pytest
import torch

from netvitals.singular import predict_rates
from netvitals.singular.networks.crossed import CrossAttentionChain, ProjectedChain
from netvitals.singular.networks.ladders import freeze_probe

TS = (1e-4, 3e-4, 1e-3)
NETS = (
    ProjectedChain(depth=6, activation="gelu", projections=((1, 5),)),
    ProjectedChain(depth=3, width=4, projections=((0, 1), (0, 3))),
    CrossAttentionChain(blocks=3, width=5),
    CrossAttentionChain(blocks=2, width=5, sides="memory", memory_order=1),
    CrossAttentionChain(blocks=2, width=5, sides="stream", stream_order=math.inf),
    CrossAttentionChain(blocks=2, width=5, memory_order=math.inf),
)


@pytest.mark.parametrize("net", NETS, ids=str)
def test_every_exponent_is_the_predicted_one(net):
    wanted, found = predict_rates(net), freeze_probe(net, TS, examples=200)
    for name, g in wanted.G.items():
        for value, fit in ((g, found.G[name]), (wanted.A[name], found.A[name])):
            assert (fit.flags == ("identically zero",)) if value == math.inf else abs(fit.slope - value) < 0.02, name
    for value, fit in zip(wanted.stream, found.forward, strict=True):
        assert (fit.flags == ("identically zero",)) if value == math.inf else abs(fit.slope - value) < 0.02


def test_a_learned_skip_is_a_layer_and_an_identity_skip_is_free():
    assert predict_rates(ProjectedChain(depth=4, projections=((1, 3),))).G == {
        "layer1": 4,
        "layer2": 4,
        "layer3": 2,
        "layer4": 0,
        "skip1-3": 2,
    }
    beside = predict_rates(ProjectedChain(depth=3, projections=((0, 1), (1, 2), (2, 3))))
    assert [beside.G[f"layer{i}"] for i in (1, 2, 3)] == [4, 2, 0] and beside.stream == (0, 1, 2, 3)


def test_the_dead_value_of_a_block_is_the_average_of_the_memory():
    net, t = CrossAttentionChain(blocks=1, tokens=2, memory=3, width=4), 0.25
    x = torch.randn(1, *net.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    weight = torch.diag(torch.tensor([1.0, 1, 1, t], dtype=torch.float64))
    q, k = x[0, :2] @ weight, x[0, 2:] @ weight
    share = torch.exp(q @ k.T / 2)
    share = share / share.sum(1, keepdim=True)
    assert torch.allclose(net.trace(t, x).output[0, :, -1], t**2 * share @ x[0, 2:, -1])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ProjectedChain(depth=3, projections=((2, 2),)), "skip connection"),
        (lambda: ProjectedChain(activation="cube"), "activation= must be one of"),
        (lambda: CrossAttentionChain(sides="left"), "sides= must be one of"),
        (lambda: CrossAttentionChain(memory_order=-1), "at least 0"),
        (lambda: predict_rates(ProjectedChain(), noisy=False), "noisy=True"),
    ],
)
def test_what_cannot_be_is_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()
