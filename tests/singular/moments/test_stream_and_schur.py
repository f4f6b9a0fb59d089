"""Depth profile of the stream, the V–O diagnostic on real attention, Schur ratios against a random start."""

import math

import pytest
import torch
from torch import nn

from netvitals.singular.checkpoint.attention import value_output
from netvitals.singular.checkpoint.stream import sigma_stream
from netvitals.singular.moments.factors import schur_constant
from netvitals.singular.moments.schur import schur_profile, schur_ratios
from netvitals_lab import models

f64 = {"dtype": torch.float64}


class Block(nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.linear = nn.Linear(*weight.shape, bias=False)
        with torch.no_grad():
            self.linear.weight.copy_(weight)

    def forward(self, x):
        return x + self.linear(x)


def residual(*weights):
    return nn.Sequential(*(Block(w) for w in weights)).double()


def test_profile_is_the_singular_value():
    torch.manual_seed(0)
    ws = [0.1 * torch.randn(5, 5) for _ in range(3)]
    x = torch.randn(200, 5, **f64)
    found = sigma_stream(residual(*ws), x)
    h, expected = x, [float(torch.linalg.svdvals(x)[-1])]
    for w in ws:
        h = h + h @ w.double().T
        expected.append(float(torch.linalg.svdvals(h)[-1]))
    assert found.sigma == pytest.approx([e / math.sqrt(200) for e in expected], rel=1e-6)
    assert found.rank == 5 and found.kept and found.nodes[0] == "input"


def test_a_block_that_cancels_the_identity_is_found():
    kill = torch.zeros(4, 4)
    kill[3, 3] = -0.9999
    found = sigma_stream(residual(torch.zeros(4, 4), kill), torch.randn(100, 4, **f64))
    assert not found.kept and "lost at 1" in str(found)
    assert found.ratio[1] == pytest.approx(1, abs=1e-6) and found.ratio[2] < 1e-3


def test_rank_of_the_input_is_respected():
    x = torch.randn(100, 2, **f64) @ torch.randn(2, 6, **f64)
    found = sigma_stream(residual(torch.zeros(6, 6)), x)
    assert found.rank == 2 and found.kept and found.ranks == (2, 2)


@pytest.mark.parametrize(
    ("name", "batch"),
    [
        ("gpt-micro,depth=3,width=32,heads=2", torch.zeros(4, 32, dtype=torch.long) + torch.arange(32)),
        ("resnet-mini,channels=1", torch.randn(8, 1, 8, 8, generator=torch.Generator().manual_seed(0))),
    ],
)
def test_real_networks_keep_their_weakest_direction(name, batch):
    model = models.build(name, seed=0)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    found = sigma_stream(model, batch)
    assert found.kept and len(found.nodes) == 4, str(found)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())


def test_models_without_a_stream_are_told_so():
    with pytest.raises(ValueError, match="nodes="):
        sigma_stream(nn.Sequential(nn.Linear(2, 2)), torch.ones(3, 2))
    found = sigma_stream(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)), torch.randn(9, 2), nodes=["0", "1"])
    assert found.nodes == ("input", "0", "1")


@pytest.mark.parametrize(
    "spec", ["gpt-micro,depth=2,width=32,heads=2", "gpt-micro,depth=2,width=16,heads=1,norm=layer"]
)
def test_value_minus_output_is_two_on_real_attention(spec):
    torch.manual_seed(0)
    x, y = torch.randint(0, 256, (2, 4, 16))
    found = value_output(models.build(spec, seed=0), "ce", (x, y))
    assert len(found) in (2, 4)
    for layer in found:
        assert layer.passes and layer.difference == pytest.approx(2, abs=0.05), str(layer)


class Normed(nn.Module):
    """Attention with a norm between the mixed values and the output projection."""

    def __init__(self, norm):
        super().__init__()
        self.qkv, self.norm, self.out = nn.Linear(8, 24), nn.LayerNorm(8) if norm else nn.Identity(), nn.Linear(8, 8)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        return self.out(self.norm((q @ k.mT / 8**0.5).softmax(-1) @ v))


def test_something_between_values_and_output_is_noticed():
    torch.manual_seed(0)
    x, y = torch.randn(2, 6, 5, 8)
    (plain,), (normed,) = (value_output(Normed(n), "mse", (x, y)) for n in (False, True))
    assert plain.passes and not normed.passes


class Named(nn.Module):
    """Attention whose attributes have names of their own; ``shared`` heads read the same keys and values."""

    def __init__(self, heads=2, shared=1, fused=True):
        super().__init__()
        self.n_head, self.shared, self.fused = heads, shared, fused
        self.sizes = [8, 8 // shared, 8 // shared]
        self.mixer, self.back = nn.Linear(8, sum(self.sizes)), nn.Linear(8, 8)

    def forward(self, x):
        parts = self.mixer(x).split(self.sizes, -1)
        q, k, v = (t.unflatten(-1, (-1, 8 // self.n_head)).transpose(1, 2) for t in parts)
        k, v = (t.repeat_interleave(self.shared, 1) for t in (k, v))
        if self.fused:
            y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            y = (q @ k.mT / 2).softmax(-1) @ v
        return self.back(y.transpose(1, 2).flatten(2))


@pytest.mark.parametrize(
    ("options", "readings"),
    [({"heads": 2}, 2), ({"heads": 4, "fused": False}, 4), ({"heads": 1}, 1), ({"heads": 4, "shared": 2}, 2)],
)
def test_heads_come_from_the_anatomy_whatever_the_attributes_are_called(options, readings):
    torch.manual_seed(0)
    x, y = torch.randn(2, 6, 5, 8)
    found = value_output(Named(**options), "mse", (x, y))
    assert [a.head for a in found] == list(range(readings)) and not found.skipped
    assert all(a.difference == pytest.approx(2, abs=0.05) for a in found), str(found)


def test_attention_that_cannot_be_read_is_refused_with_the_reason():
    torch.manual_seed(0)
    x, y = torch.randn(2, 6, 5, 8)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)  # torch's attention reads the weights itself
    with pytest.raises(ValueError, match=r"self_attn.out_proj: .* does not run as a module of its own"):
        value_output(layer, "mse", (x, y))
    net = nn.Sequential(Named(), Named(heads=4))
    nn.init.zeros_(net[0].back.weight)
    found = value_output(net, "mse", (x, y))
    assert len(found) == 4 and {a.layer for a in found} == {"1"}
    assert "its output projection is zero" in found.skipped["0.back, head 1"]
    assert len(value_output(net, "mse", (x, y), only="1.back")) == 4


def test_without_attention_it_says_so():
    with pytest.raises(ValueError, match="no attention was found"):
        value_output(nn.Linear(2, 2), "mse", (torch.ones(2, 2), torch.ones(2, 2)))
    with pytest.raises(ValueError, match="'ce' or 'mse'"):
        value_output(nn.Linear(2, 2), "l1", (torch.ones(2, 2), torch.ones(2, 2)))


def test_ratios_equal_the_schur_complement_and_its_constant():
    from netvitals.singular.moments.factors import schur_complement

    x = torch.relu(torch.randn(200_000, 8, generator=torch.Generator().manual_seed(0), **f64))
    a = x.T @ x / len(x)
    found = schur_ratios(x)
    for i in (0, 7):
        axis = torch.eye(8, **f64)[i]
        assert float(found[i]) == pytest.approx(schur_complement(a, axis) / float(a[i, i]), rel=1e-9)
    assert float(found.mean()) == pytest.approx(1 - schur_constant(8), rel=0.01)


def test_silent_units_are_not_counted():
    x = torch.randn(50, 3)
    x[:, 1] = 0
    assert schur_ratios(x).isnan().tolist() == [False, True, False]


def test_a_repeated_unit_has_no_share_of_its_own_and_the_reference_has():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))
    with torch.no_grad():
        net[0].weight[1::2], net[0].bias[1::2] = net[0].weight[::2], net[0].bias[::2]
    state = torch.get_rng_state()
    (found,) = schur_profile(net, torch.randn(2000, 6, generator=torch.Generator().manual_seed(1)))
    assert torch.equal(state, torch.get_rng_state())
    assert found.layer == "2" and found.median < 1e-6 and found.reference > 1e-4 and found.collapse < 0.01
    assert found.reference_stderr > 0
    (alone,) = schur_profile(net, torch.randn(20, 6), references=0)
    assert math.isnan(alone.reference) and "biased down" in alone.note


class PostNorm(nn.Module):
    def __init__(self, width, weight):
        super().__init__()
        self.linear, self.norm = nn.Linear(width, width, bias=False), nn.LayerNorm(width)
        self.linear.weight.data = weight
        self.norm.weight.data += 0.4 * torch.rand(width)
        self.norm.bias.data += 0.3 * torch.randn(width)

    def forward(self, x):
        return self.norm(x + self.linear(x))


def test_behind_a_post_norm_the_stream_is_read_on_the_complement_of_its_kernel():
    torch.manual_seed(0)
    net = nn.Sequential(*(PostNorm(6, 0.3 * torch.randn(6, 6)) for _ in range(2))).double()
    x = torch.randn(300, 6, **f64)
    found = sigma_stream(net, x)
    assert found.projected == (False, True, True) and found.kept and "complement of γ⁻¹" in str(found)
    h = x
    for i, block in enumerate(net):
        h = block(h).detach()
        v = 1 / block.norm.weight.detach()
        away = torch.eye(6, **f64) - torch.outer(v, v) / (v @ v)
        assert found.sigma[i + 1] == pytest.approx(float(torch.linalg.svdvals(h @ away)[4]) / math.sqrt(300), rel=1e-9)
        assert found.reference[i + 1] == pytest.approx(
            float(torch.linalg.svdvals(x @ away)[4]) / math.sqrt(300), rel=1e-9
        )
    for block in net:
        nn.init.ones_(block.norm.weight), nn.init.zeros_(block.norm.bias)
    alarm = sigma_stream(net, x, project=False)  # as printed: zero at every block, whatever the weights
    assert not alarm.kept and max(alarm.sigma[1:]) < 1e-14 and sigma_stream(net, x).kept


def test_a_post_norm_block_that_cancels_the_identity_is_still_found():
    torch.manual_seed(0)
    e = torch.tensor([1.0, -1, 0, 0, 0]) / 2**0.5  # inside the complement of 1
    net = nn.Sequential(PostNorm(5, torch.zeros(5, 5)), PostNorm(5, -0.9999 * torch.outer(e, e))).double()
    for block in net:
        nn.init.ones_(block.norm.weight), nn.init.zeros_(block.norm.bias)
    found = sigma_stream(net, torch.randn(200, 5, **f64))
    assert not found.kept and "lost at 1" in str(found) and found.ratio[1] > 0.5


def test_rows_that_add_up_to_one_from_the_start_are_no_norm():
    found = sigma_stream(residual(torch.zeros(4, 4)), torch.eye(4, **f64).repeat(5, 1))
    assert found.projected == (False, False) and found.rank == 4


def test_the_kernel_of_a_norm_is_taken_out_of_the_shares():
    """White rows in a hyperplane have a share of one in it, and one in a million at most with the kernel left in."""
    gain = torch.linspace(0.5, 2, 7, **f64)
    v = (1 / gain) / (1 / gain).norm()
    x = torch.randn(4000, 7, generator=torch.Generator().manual_seed(0), **f64)
    x = x - (x @ v)[:, None] * v
    values, vectors = torch.linalg.eigh(x.T @ x / len(x) + torch.outer(v, v))
    x = x @ (vectors / values.sqrt()) @ vectors.T  # white beside the kernel, which is an eigenvector
    assert float(schur_ratios(x).max()) < 1e-6
    assert torch.allclose(schur_ratios(x, v), torch.ones(7, **f64), atol=1e-8)


def test_a_share_behind_a_kernel_is_that_of_the_direction_left_in_the_hyperplane():
    """Exact counterpart: the Schur complement at Peᵢ in any basis of the complement."""
    from netvitals.singular.moments.factors import schur_complement

    v = torch.tensor([1.0, 2.0, -1.0, 0.5, 1.0], **f64)
    v = v / v.norm()
    x = torch.randn(60, 5, generator=torch.Generator().manual_seed(1), **f64) @ torch.randn(5, 5, **f64)
    x = x - (x @ v)[:, None] * v
    basis = torch.linalg.svd(v[None])[2][1:].T
    a = basis.T @ (x.T @ x / len(x)) @ basis
    found = schur_ratios(x, v)
    for i in range(5):
        e = basis.T[:, i]
        e = e / e.norm()
        assert float(found[i]) == pytest.approx(schur_complement(a, e) / float(e @ a @ e), rel=1e-8)


@pytest.mark.parametrize("affine", [True, False])
def test_behind_a_fresh_layer_norm_the_profile_is_that_of_the_units(affine):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8, elementwise_affine=affine), nn.Linear(8, 3))
    (found,) = schur_profile(net, torch.randn(3000, 8), references=2)
    assert found.layer == "2" and 0.01 < found.median <= 1 and 0.01 < found.reference <= 1
    assert "kernel" in found.note
