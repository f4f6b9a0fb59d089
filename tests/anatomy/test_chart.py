"""A chart meets every nonlinearity, however it is written, as one activation with its true derivative."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from netvitals.anatomy import chart


class Masked(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * (x > 0)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * (x > 0)


def new_gelu(x):
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


INLINE = {
    "where": lambda h: torch.where(h > 0, h, 0.1 * h),
    "maximum": lambda h: torch.maximum(h, torch.zeros((), dtype=h.dtype)),
    "mask": lambda h: h * (h > 0),
    "clamp": lambda h: h.clamp(0, 6),
    "aten": lambda h: torch.ops.aten.relu(h),
    "abs": lambda h: h.abs(),
    "square": lambda h: h**2,
    "erf": lambda h: 0.5 * h * (1 + torch.erf(h / math.sqrt(2))),
    "autograd function": Masked.apply,
    "silu": lambda h: h * torch.sigmoid(h),
    "new_gelu": new_gelu,
    "relu squared": lambda h: torch.relu(h).square(),
    "swish": lambda h: h * torch.sigmoid(1.7 * h),
    "hardswish": F.hardswish,
    "logsigmoid": F.logsigmoid,
    "softplus": F.softplus,
    "in place": lambda h: F.relu(h, inplace=True),
    "method in place": lambda h: h.mul(1.0).tanh_(),
    "clipped": lambda h: torch.minimum(torch.relu(h) ** 2, torch.full((), 2.0, dtype=h.dtype)),
    "checkpointed": lambda h: checkpoint(torch.tanh, h, use_reentrant=False),
}


class Net(nn.Module):
    def __init__(self, f, dtype=torch.float64):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.f = nn.Linear(8, 64, dtype=dtype), nn.Linear(64, 3, dtype=dtype), f

    def forward(self, x):
        return self.b(self.f(self.a(x)))


def batch(dtype=torch.float64):
    return torch.randn(50, 8, dtype=dtype, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", INLINE)
def test_every_way_to_write_an_activation_is_one_region_with_its_true_derivative(name):
    f, net = INLINE[name], Net(INLINE[name])
    (region,) = chart(net, batch()).regions
    h = net.a(batch()).detach()
    leaf = h.clone().requires_grad_()
    y = f(leaf * 1.0)
    (slope,) = torch.autograd.grad(y.sum(), leaf)
    assert region.kind == "activation"
    assert torch.allclose(region.f(h), y, rtol=1e-12, atol=1e-14)
    assert torch.allclose(region.derivative(h), slope, rtol=1e-12, atol=1e-14)
    for theta in (0.01, 0.1):
        assert (region.derivative(h).abs() > theta).double().mean() == (slope.abs() > theta).double().mean()
    assert region.line is not None and region.line.file.endswith((".py",))


def test_the_input_of_a_region_is_what_the_layer_gave_also_when_it_was_overwritten():
    for name in ("in place", "new_gelu"):
        net = Net(INLINE[name])
        found = chart(net, batch())
        before, after = found.at(found.activations[0])
        assert torch.allclose(before, net.a(batch()), rtol=1e-12)
        assert torch.allclose(after, INLINE[name](net.a(batch())), rtol=1e-12)


def test_half_precision_is_differentiated_wide():
    """The slope 0.01 of a leaky unit is not above θ = 0.01, though bfloat16 and float16 round it up."""
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        net = Net(nn.LeakyReLU(), dtype=torch.float32)
        h = net.a(batch(torch.float32)).detach().to(dtype)

        class Leaky(nn.Module):
            def __init__(self):
                super().__init__()
                self.act = nn.LeakyReLU()

            def forward(self, x):
                return self.act(x + 0.0).sum()

        found = chart(Leaky(), h)
        region = next(r for r in found.activations)
        share = (region.derivative(h.double()).abs() > 0.01).double().mean()
        assert float(share) == pytest.approx(float((h > 0).double().mean()), abs=1e-12)


def test_scales_and_shifts_are_no_activation():
    found = chart(Net(lambda h: h * 2 + 1), batch())
    assert [r.kind for r in found.regions] == ["affine"] and not found.activations
    scale = nn.Parameter(torch.randn(64, dtype=torch.float64))
    assert [r.kind for r in chart(Net(lambda h: h * scale - 3), batch()).regions] == ["affine"]


def test_two_readers_of_one_activation_are_one_region_and_two_activations_of_one_layer_are_two():
    class Fork(nn.Module):
        def __init__(self, same):
            super().__init__()
            self.a, self.b, self.c, self.same = nn.Linear(4, 6), nn.Linear(6, 2), nn.Linear(6, 2), same

        def forward(self, x):
            h = self.a(x)
            left = torch.relu(h)
            return self.b(left) + self.c(left if self.same else torch.tanh(h))

    assert len(chart(Fork(True), torch.randn(3, 4)).activations) == 1
    assert sorted(r.text for r in chart(Fork(False), torch.randn(3, 4)).activations) == ["relu", "tanh"]


def test_a_product_of_two_branches_is_a_gate_and_a_dropout_is_not():
    class Gated(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.gate, self.down, self.drop = (
                nn.Linear(4, 6),
                nn.Linear(4, 6),
                nn.Linear(6, 4),
                nn.Dropout(0.5),
            )

        def forward(self, x):
            return x + self.drop(self.down(F.silu(self.gate(x)) * self.up(x)))

    found = chart(Gated(), torch.randn(3, 4))
    assert [g.name for g in found.gates] == ["mul()"] and [r.text for r in found.activations] == ["silu"]
    assert not found.skipped
    sides = {found.producers(v).name for v in (found.gates[0].left, found.gates[0].right)}
    assert sides == {"silu", "addmm"}


def test_a_nonlinearity_of_two_tensors_is_named_with_the_reason():
    class Maxout(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 6), nn.Linear(4, 6)

        def forward(self, x):
            return torch.maximum(self.a(x), self.b(x))

    found = chart(Maxout(), torch.randn(3, 4))
    assert not found.activations and list(found.skipped) == ["maximum()"]
    assert "not a function of one of them" in found.skipped["maximum()"]


def test_a_norm_written_out_is_a_normaliser_and_no_activation():
    class RMS(nn.Module):
        def forward(self, x):
            return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)

    class Layer(nn.Module):
        def forward(self, x):
            centred = x - x.mean(-1, keepdim=True)
            return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()

    for norm in (RMS(), Layer()):
        found = chart(nn.Sequential(nn.Linear(4, 6), norm, nn.ReLU(), nn.Linear(6, 2)), torch.randn(5, 4))
        assert [r.text for r in found.activations] == ["relu"], [str(r) for r in found.regions]
        assert "normaliser" in {r.kind for r in found.regions}


def test_ties_and_freezing_are_known_and_readers_are_found_through_views():
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
    net[2].weight = net[0].weight
    net[2].bias.requires_grad_(False)
    found = chart(net, torch.randn(3, 4))
    by_name = {p.name: p for p in found.parameters}
    assert by_name["0.weight"].ties == ("2.weight",) and len(by_name["0.weight"].readers) == 2
    assert by_name["2.bias"].frozen and not by_name["0.bias"].frozen
    assert "tied: 0.weight = 2.weight" in str(found) and "frozen: 2.bias" in str(found)


def test_nothing_is_left_behind():
    net = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.5), nn.ReLU(), nn.Linear(6, 2))
    state = {k: v.clone() for k, v in net.state_dict().items()}
    rng = torch.get_rng_state()
    chart(net, torch.randn(8, 4, generator=torch.Generator().manual_seed(0)))
    assert all(torch.equal(v, state[k]) for k, v in net.state_dict().items()) and torch.equal(
        rng, torch.get_rng_state()
    )
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in net.modules())
    with pytest.raises(RuntimeError):
        chart(net, torch.randn(8, 5))
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in net.modules())


def test_wrong_input_gets_a_sentence():
    with pytest.raises(TypeError, match=r"needs a torch\.nn\.Module"):
        chart(torch.relu, torch.ones(2))
    with pytest.raises(ValueError, match="contains no tensor"):
        chart(nn.Linear(2, 2), {"x": None})


def test_language_models_show_their_activations_gates_and_ties():
    transformers = pytest.importorskip("transformers")
    ids = torch.randint(0, 40, (2, 6))
    gpt = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(n_layer=2, n_head=2, n_embd=16, vocab_size=40, bos_token_id=0, eos_token_id=0)
    )
    found = chart(gpt, {"input_ids": ids})
    assert [r.module for r in found.activations] == ["transformer.h.0.mlp.act", "transformer.h.1.mlp.act"]
    assert not found.skipped and "lm_head.weight" in {t for p in found.parameters for t in p.ties}
    x, _ = found.at(found.activations[0])
    wide = x.double().requires_grad_()
    (slope,) = torch.autograd.grad(new_gelu(wide).sum(), wide)
    assert torch.allclose(found.activations[0].derivative(x.double()), slope, rtol=1e-12, atol=1e-14)
    llama = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            hidden_size=16,
            intermediate_size=24,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            vocab_size=40,
        )
    )
    found = chart(llama, {"input_ids": ids})
    assert [r.text for r in found.activations] == ["silu", "silu"] and len(found.gates) == 2 and not found.skipped
