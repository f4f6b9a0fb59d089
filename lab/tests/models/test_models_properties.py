"""What must hold of the networks themselves: formulas, initialisations, causality, independent activation sites."""

import math

import pytest
import torch
from torch import nn

from netvitals import activations
from netvitals_lab import models

SMALL = {
    "mlp": "mlp:64-16x3-10,norm=batch",
    "residual": "mlp:64-16x3-10,kind=residual,norm=layer",
    "diamond": "mlp:64-16x3-10,kind=diamond,merge=cat",
    "resnet": "resnet-mini,width=4",
    "vgg": "vgg-mini,width=2",
    "mixer": "mixer-mini",
    "vit": "vit-mini",
    "gpt": "gpt-micro,width=16,depth=2,vocab=11,context=8",
    "denoiser": "denoiser,width=4,hidden=8",
    "position-mlp": "position-mlp",
}


def count(model):
    return sum(p.numel() for p in model.parameters())


def example(kind):
    return {
        "gpt": torch.randint(0, 11, (3, 8)),
        "denoiser": torch.rand(3, 1, 9, 7),
        "position-mlp": torch.randn(3, 8, 16),
    }.get(kind, torch.randn(3, 1, 8, 8))


@pytest.mark.parametrize("kind", SMALL)
def test_every_activation_gives_the_same_parameters(kind):
    reference = models.build(SMALL[kind], seed=0, act="relu")
    own = {"prelu", "noisy_relu"}  # these two learn a number of their own
    for act in [*(set(activations.names()) - own), "softplus:20", "relu2:15", "topk:gelu:0.75", "centered:softplus"]:
        model = models.build(SMALL[kind], seed=0, act=act)
        assert count(model) == count(reference), act
        for (name, a), (_, b) in zip(model.named_parameters(), reference.named_parameters()):
            assert torch.equal(a, b), (act, name)
    sites = [m for m in reference.modules() if isinstance(m, nn.ReLU)]
    for act in own:
        model = models.build(SMALL[kind], seed=0, act=act)
        assert count(model) == count(reference) + len(sites)
        weights = dict(model.named_parameters())
        assert all(torch.equal(weights[name], p) for name, p in reference.named_parameters())


@pytest.mark.parametrize("kind", [k for k in SMALL if k != "position-mlp"])
@pytest.mark.parametrize("norm", ["batch", "group:2", "layer", "rms", "none", "quantile:0.75"])
def test_every_norm_in_every_network(kind, norm):
    model = models.build(SMALL[kind], seed=0, norm=norm)
    for mode in (True, False):
        out = model.train(mode)(example(kind))
        assert torch.isfinite(out).all()


@pytest.mark.parametrize("kind", SMALL)
def test_one_module_per_site_never_in_place(kind):
    model, calls = models.build(SMALL[kind], act="relu"), []
    for module in model.modules():
        if isinstance(module, nn.ReLU):
            assert not module.inplace
            module.register_forward_hook(lambda m, a, out: calls.append(id(m)))
    model(example(kind))
    assert len(calls) == len(set(calls)) > 0


@pytest.mark.parametrize("kind", SMALL)
def test_gradients_reach_every_parameter(kind):
    model = models.build(SMALL[kind], seed=0, act="silu")
    model(example(kind)).square().mean().backward()
    for name, p in model.named_parameters():
        assert p.grad is not None and torch.isfinite(p.grad).all(), name


def test_plain_mlp_is_the_formula():
    model = models.build("mlp:6-5-4-3,act=tanh").double()
    x = torch.randn(7, 6, dtype=torch.double)
    h = x
    for block in model.blocks:
        h = torch.tanh(h @ block.linear.weight.T + block.linear.bias)
    assert torch.allclose(model(x), h @ model.head.weight.T + model.head.bias, rtol=0, atol=1e-12)


def test_residual_mlp_is_scaled_by_depth():
    model = models.build("mlp:6-5x4-3,act=tanh,kind=residual,norm=layer").double()
    x = torch.randn(7, 6, dtype=torch.double)
    h = model.blocks[0](x)
    assert isinstance(model.blocks[0].norm, nn.LayerNorm)
    assert isinstance(model.blocks[1].norm, nn.Identity)
    for block in model.blocks[1:]:
        h = h + torch.tanh(block.linear(h)) / math.sqrt(3)
    assert torch.allclose(model(x), model.head(h), rtol=0, atol=1e-12)


def test_bottleneck_sits_at_half_depth():
    model = models.build("mlp:64-32x7-10,kind=bottleneck,neck=4")
    # six blocks after the projection; the narrow one is block 3 of them, counted from 0
    assert [b.linear.out_features for b in model.blocks] == [32, 32, 32, 32, 4, 32, 32]


def test_diamond_merges():
    x = torch.randn(5, 6, dtype=torch.double)
    for merge in ("sum", "cat"):
        model = models.build(f"mlp:6-4x3-2,kind=diamond,merge={merge},act=silu,norm=layer").double()
        h = model.stem(x)
        a = model.a[1](model.a[0](h))
        b = model.b[1](model.b[0](h))
        if merge == "sum":
            joined = (a + b) / math.sqrt(2)
        else:
            joined = nn.functional.silu(model.merge.linear(torch.cat([a, b], 1)))
            assert isinstance(model.merge.norm, nn.Identity)
        assert torch.allclose(model(x), model.head(joined), rtol=0, atol=1e-12)


def test_bias_off():
    assert not [n for n, _ in models.build("mlp:64-16x2-10,bias=no").named_parameters() if "bias" in n]


@pytest.mark.parametrize(
    ("init", "hidden", "head"),
    [
        ("he", 2 / 512, 1 / 256),
        ("xavier", 2 / 768, 2 / 276),
        ("orthogonal", 2 / 512, 1 / 256),
        ("bottleneck:1:0.1", 0.01 * 2 / 512, 2 / 256),
    ],
)
def test_initialisations_have_their_variance(init, hidden, head):
    model = models.build(f"mlp:512-256-20,init={init}", seed=1)
    # relative standard error of a variance over n entries is √(2/n): 0.4 % and 2 %
    assert model.blocks[0].linear.weight.var().item() == pytest.approx(hidden, rel=0.03)
    assert model.head.weight.var().item() == pytest.approx(head, rel=0.1)
    assert model.head.bias.abs().max() == 0


def test_readout_scale():
    one, small = (models.build("mlp,init=he", seed=0, readout=r) for r in (1.0, 0.25))
    assert torch.equal(small.head.weight, one.head.weight * 0.25)


def test_spectral_norm_has_unit_gain():
    model = models.build("mlp:64-16x2-10,spectral=1", seed=0).train()
    for _ in range(30):
        model(torch.randn(4, 64))
    assert torch.linalg.matrix_norm(model.blocks[1].linear.weight, 2).item() == pytest.approx(1, abs=1e-3)


def test_plain_resnet_has_no_shortcut():
    model = models.build("resnet-mini,width=4,shortcut=no")
    x = torch.randn(2, 4, 8, 8)
    block = model.stages[0][0].eval()
    expected = x
    for c, n, f in zip(block.convs, block.norms, block.acts):
        expected = f(n(c(expected)))
    assert torch.equal(block(x), expected)


def test_gpt_is_causal_tied_and_scaled():
    model = models.build("gpt-micro,width=16,depth=2,vocab=11,context=8,act=gelu").double()
    assert model.embed.weight is model.head.weight
    assert not [n for n, _ in model.named_parameters() if "bias" in n]
    assert model.blocks[0].scale == pytest.approx(1 / math.sqrt(4))
    tokens = torch.randint(0, 11, (1, 8))
    changed = tokens.clone()
    changed[0, 5] = (tokens[0, 5] + 1) % 11
    a, b = model(tokens), model(changed)
    assert torch.equal(a[0, :5], b[0, :5])
    assert not torch.equal(a[0, 5:], b[0, 5:])
    with pytest.raises(ValueError, match="context of 8"):
        model(torch.zeros(1, 9, dtype=torch.long))


def test_rotary_scores_depend_on_distance_only():
    from netvitals_lab.models.gpt import Rotary

    rotary = Rotary(8, 12, 10_000.0).double()
    q, k = torch.randn(2, 8, dtype=torch.double)
    scores = rotary(q.expand(12, 8)) @ rotary(k.expand(12, 8)).T
    for d in range(6):
        diagonal = scores.diagonal(-d)
        assert (diagonal - diagonal[0]).abs().max() < 1e-6
    assert (scores[0, 0] - q @ k).abs() < 1e-12


def test_fused_attention_is_the_written_one():
    spec = "gpt-micro,width=16,depth=2,vocab=11,context=8"
    plain, fused = (models.build(spec, seed=0, fused=f).double() for f in (False, True))
    tokens = torch.randint(0, 11, (2, 8))
    assert torch.allclose(plain(tokens), fused(tokens), rtol=0, atol=1e-10)


def test_zero_head_stops_the_gradient():
    model = models.build("vit-mini,head=zero", seed=0)
    nn.functional.cross_entropy(model(torch.randn(4, 1, 8, 8)), torch.arange(4)).backward()
    assert model.head.weight.grad.abs().max() > 0
    assert model.blocks[0].mlp.up.weight.grad.abs().max() == 0


def test_networks_can_be_mapped_over_and_differentiated_twice():
    model = models.build(SMALL["vit"], seed=0, act="silu").double()
    parameters = dict(model.named_parameters())
    x = torch.randn(2, 1, 8, 8, dtype=torch.double)

    def loss(p):
        return torch.func.functional_call(model, p, (x,)).square().sum()

    tangent = {k: torch.randn_like(v) for k, v in parameters.items()}
    _, hvp = torch.func.jvp(torch.func.grad(loss), (parameters,), (tangent,))
    assert all(torch.isfinite(h).all() for h in hvp.values())


def test_rotary_frequencies_are_those_of_the_formula():
    """The pair (x_i, x_{i+d/2}) at position t turns by t·base^(−2i/d)."""
    from netvitals_lab.models.gpt import Rotary

    rotary, d = Rotary(8, 16, 10_000.0), 8
    for i in range(d // 2):
        x = torch.zeros(16, d)
        x[:, i] = 1.0
        turned = rotary(x)
        for t in (0, 1, 7, 15):
            angle = t * 10_000.0 ** (-2 * i / d)
            assert turned[t, i].item() == pytest.approx(math.cos(angle), abs=1e-5), (i, t)
            assert turned[t, i + d // 2].item() == pytest.approx(math.sin(angle), abs=1e-5), (i, t)
