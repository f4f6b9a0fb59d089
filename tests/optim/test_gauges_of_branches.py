"""Gauges of gated MLPs, attention and other activations are found, with a mode for every channel that may scale."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from netvitals import optim


class Squared(nn.Module):
    def forward(self, x):
        return F.relu(x).square()


class SwiGLU(nn.Module):
    def __init__(self, fused):
        super().__init__()
        self.fused = fused
        if fused:
            self.both = nn.Linear(6, 20)
        else:
            self.gate, self.up = nn.Linear(6, 10, bias=False), nn.Linear(6, 10)
        self.down = nn.Linear(10, 3)

    def forward(self, x):
        gate, up = self.both(x).chunk(2, -1) if self.fused else (self.gate(x), self.up(x))
        return self.down(F.silu(gate) * up)


class Attention(nn.Module):
    """Heads of 4 channels; fewer keys and values than queries, and rotary positions, where asked for."""

    def __init__(self, heads=2, kv_heads=2, rotary=False):
        super().__init__()
        d, self.rotary = 4 * heads, rotary
        self.norm = nn.LayerNorm(d)
        self.q, self.k, self.v = nn.Linear(d, d), nn.Linear(d, 4 * kv_heads), nn.Linear(d, 4 * kv_heads)
        self.out, self.head = nn.Linear(d, d), nn.Linear(d, 5)

    def forward(self, x):
        h = self.norm(x)
        q, k, v = (layer(h).unflatten(-1, (-1, 4)).transpose(1, 2) for layer in (self.q, self.k, self.v))
        if self.rotary:
            q, k = turned(q), turned(k)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.head(x + self.out(mixed.transpose(1, 2).flatten(2)))


def turned(x):
    angle = torch.arange(x.shape[-2])[:, None] * torch.tensor([1.0, 0.3])
    cos, sin = angle.cos().to(x), angle.sin().to(x)
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


def modes(model, batch, kind):
    found = optim.find_gauges(model, "mse", batch)
    assert all(r < 1e-10 for r in found.residuals.values())
    return [g.modes for g in found if g.name.startswith(kind)]


def test_every_unit_between_homogeneous_activations_scales_by_itself():
    between = lambda activation: nn.Sequential(nn.Linear(6, 8), activation, nn.Linear(8, 3))
    for activation in (nn.ReLU(), nn.PReLU(), nn.PReLU(8), nn.LeakyReLU(), Squared()):
        assert modes(between(activation), torch.randn(5, 6), "rescale") == [8], activation
    squared = optim.find_gauges(between(Squared()), "mse", torch.randn(5, 6)).gauges[0]
    assert squared.degree == 2.0  # a unit's row by c, the columns that read it by 1/c²


@pytest.mark.parametrize("fused", [False, True])
def test_the_value_branch_of_a_gated_mlp(fused):
    assert modes(SwiGLU(fused), torch.randn(5, 6), "gated rescale") == [10]


@pytest.mark.parametrize(
    ("options", "values", "queries"),
    [({}, 8, 8), ({"heads": 4, "kv_heads": 2}, 8, 8), ({"rotary": True}, 8, 2)],
    ids=["plain", "shared keys", "rotary"],
)
def test_values_with_outputs_and_queries_with_keys(options, values, queries):
    model = Attention(**options)
    x = torch.randn(3, 5, model.norm.normalized_shape[0])
    assert modes(model, x, "value–output") == [values]
    assert modes(model, x, "query–key") == [queries]  # with rotary positions only whole heads scale
    assert modes(model, x, "norm scale") == [model.norm.normalized_shape[0]]  # shares q, k and v with both


def test_torchs_own_attention_module():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    x = torch.randn(3, 5, 8)
    assert modes(layer, x, "value–output") == [8] and modes(layer, x, "rescale") == [16]


def test_the_logit_shift_is_kept_beside_a_rescaling_of_the_same_weight():
    model = nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 4))
    names = [g.name for g in optim.find_gauges(model, "ce", torch.randn(5, 6))]
    assert names == ["norm scale 0", "logit shift 1.bias", "logit shift 1.weight"]
