"""K-FAC factors against direct per-sample computation, and what is read off them."""

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from netvitals.singular import kfac, kl_order
from netvitals.singular.moments.factors import (
    dead_entry,
    joint_mode,
    kronecker_lift,
    lambda_min,
    schur_complement,
    schur_constant,
)


def per_sample(model, layer, x, seeds):
    """Σ over the given output gradients of the per-sample δδᵀ at ``layer``, averaged over samples."""
    total = 0.0
    for i in range(len(x)):
        kept = []
        handle = layer.register_forward_hook(lambda m, a, out, kept=kept: kept.append(out))
        out = model(x[i : i + 1])
        handle.remove()
        for s in seeds(out.detach()):
            d = torch.autograd.grad(out, kept[0], s, retain_graph=True)[0]
            d = d.movedim(1, -1).reshape(-1, d.shape[1]) if d.ndim == 4 else d.reshape(-1, d.shape[-1])
            total = total + d.T @ d
    return total / len(x)


def softmax_roots(out):
    p = out[0].softmax(-1)
    return ((torch.diag(p.sqrt()) - torch.outer(p, p.sqrt())).T)[:, None]


def unit_roots(out):
    return torch.eye(out.shape[-1], dtype=out.dtype)[:, None]


NETS = {
    "mlp": (lambda: nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)), (6, 5)),
    "conv": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 3, 3, padding=1), nn.ReLU(), nn.Conv2d(3, 4, 2, stride=2), nn.Flatten(), nn.Linear(16, 3)
        ),
        (4, 2, 4, 4),
    ),
}


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize(("loss", "roots"), [("mse", unit_roots), ("ce", softmax_roots)])
def test_expected_factors_are_exact(net, loss, roots):
    build, shape = NETS[net]
    model, x = build().double(), torch.randn(shape, dtype=torch.float64)
    found = kfac(model, loss, x)
    for name, factor in found.layers.items():
        layer = model.get_submodule(name)
        assert torch.allclose(factor.G, per_sample(model, layer, x, roots), rtol=1e-10, atol=1e-12)
        assert torch.allclose(factor.A, factor.A.T)
    assert torch.allclose(found.layers["0"].G_spectrum, torch.linalg.eigvalsh(found["0"].G))


def test_input_factor_of_a_linear_layer():
    model, x = NETS["mlp"][0]().double(), torch.randn(6, 5, dtype=torch.float64)
    assert torch.allclose(kfac(model, "mse", x)["0"].A, x.T @ x / 6)
    assert kfac(model, "mse", x, bias=True)["0"].A.shape == (6, 6)


def test_for_one_linear_layer_the_kronecker_product_is_the_fisher():
    model, x = nn.Sequential(nn.Linear(4, 3, bias=False)).double(), torch.randn(50, 4, dtype=torch.float64)
    factor = kfac(model, "mse", x)["0"]
    jacobian = torch.func.jacrev(lambda w: x @ w.reshape(3, 4).T)(model[0].weight.detach().flatten())
    fisher = torch.einsum("nki,nkj->ij", jacobian, jacobian) / 50
    assert torch.allclose(torch.kron(factor.G, factor.A), fisher, atol=1e-12)


def test_monte_carlo_and_empirical_are_near_the_expected_one_when_the_model_is_right():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).double(), torch.randn(6000, 4).double()
    y = torch.multinomial(model(x).softmax(-1), 1).squeeze(1)
    exact = kfac(model, "ce", x)
    for other in (kfac(model, "ce", x, fisher="monte-carlo"), kfac(model, "ce", (x, y), fisher="empirical")):
        for name in exact.layers:
            assert torch.allclose(other[name].G, exact[name].G, atol=0.1 * float(exact[name].G.abs().max()))


def test_sequences_sum_over_positions():
    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.mix, self.head = nn.Embedding(11, 6), nn.Linear(6, 6), nn.Linear(6, 3)

        def forward(self, tokens):
            h = torch.tanh(self.mix(self.embed(tokens)))
            return self.head(h + h.mean(1, keepdim=True))

    model, tokens = Tagger().double(), torch.randint(0, 11, (5, 4))
    found = kfac(model, "ce", tokens)
    sampled = sum(kfac(model, "ce", tokens, fisher="monte-carlo", seed=s)["mix"].G for s in range(600)) / 600
    assert torch.allclose(sampled, found["mix"].G, atol=0.1 * float(found["mix"].G.abs().max()))
    assert found["embed"].A.shape == (11, 11) and float(found["embed"].A.trace()) == pytest.approx(1)
    assert found["mix"].positions == 4


def test_kernel_of_the_softmax_head_is_the_logit_shift():
    model, x = nn.Sequential(nn.Linear(4, 5)).double(), torch.randn(40, 4, dtype=torch.float64)
    g = kfac(model, "ce", x)["0"].G
    ones = torch.ones(5, dtype=torch.float64)
    assert float((g @ ones).norm()) < 1e-12
    value, below = lambda_min(g)
    assert below == 1 and value > 0


@pytest.mark.parametrize(
    ("h", "expected"), [(2, 0.10132), (4, 0.18573), (8, 0.24374), (16, 0.27854), (32, 0.29774), (64, 0.30785)]
)
def test_schur_constant_of_relu(h, expected):
    assert schur_constant(h) == pytest.approx(expected, abs=1e-5)
    if h <= 16:
        x = torch.relu(torch.randn(400_000, h, generator=torch.Generator().manual_seed(h), dtype=torch.float64))
        m = x.T @ x / len(x)
        e = torch.eye(h, dtype=torch.float64)[-1]
        assert 1 - schur_complement(m, e) / dead_entry(m, e) == pytest.approx(expected, rel=0.02)


def test_zero_mean_activations_have_no_schur_correction():
    assert schur_constant(8, dead=(0.0, 1.0), live=(0.0, 1.0)) == 0


def test_kronecker_lift_is_the_bottom_eigenvector():
    model, x = NETS["mlp"][0]().double(), torch.randn(40, 5, dtype=torch.float64)
    factor = kfac(model, "mse", x)["0"]
    lift, value = kronecker_lift(factor)
    product = torch.kron(factor.G, factor.A)
    assert torch.allclose(product @ lift.flatten(), value * lift.flatten(), atol=1e-12)


def test_joint_mode_of_a_dead_unit_has_order_two_and_the_lift_alone_is_gauge():
    model = nn.Sequential(nn.Linear(4, 3, bias=False), nn.Tanh(), nn.Linear(3, 2, bias=False)).double()
    with torch.no_grad():
        model[0].weight[2] = 0
        model[2].weight[:, 2] = 0
    x = torch.randn(200, 4, dtype=torch.float64)
    names = [n for n, _ in model.named_parameters()]
    shapes = [p.shape for p in model.parameters()]
    theta = torch.cat([p.detach().flatten() for p in model.parameters()])

    def outputs(flat):
        parts = torch.split(flat, [s.numel() for s in shapes])
        return torch.func.functional_call(model, {n: p.reshape(s) for n, p, s in zip(names, parts, shapes)}, (x,))

    both = joint_mode(model, "0", "2", 2)
    assert kl_order(outputs, theta, torch.cat([both[n].flatten() for n in names])).order == 2
    alone = torch.cat([both["0.weight"].flatten(), torch.zeros(6, dtype=torch.float64)])
    assert "gauge" in kl_order(outputs, theta, alone).note


def test_model_is_left_as_it_was_and_hooks_are_gone():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))
    before = copy.deepcopy(model.state_dict())
    kfac(model, "ce", torch.randn(8, 3))
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    assert not any(m._forward_hooks for m in model.modules()) and model.training
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m: kfac(m, "hinge", torch.randn(4, 3)), "no loss"),
        (lambda m: kfac(m, "mse", torch.randn(4, 3), fisher="true"), "expected"),
        (lambda m: kfac(m, "mse", torch.randn(4, 3), fisher="empirical"), "needs labels"),
        (lambda m: kfac(m, "mse", torch.full((4, 3), math.nan)), "NaN or infinit"),
        (lambda m: kfac(nn.ReLU(), "mse", torch.randn(4, 3)), "no Linear"),
    ],
)
def test_wrong_input_gets_a_sentence(call, words):
    with pytest.raises(ValueError, match=words):
        call(nn.Linear(3, 2))


def test_unused_layers_are_named():
    class Spare(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.spare = nn.Linear(3, 2), nn.Linear(3, 2)

        def forward(self, x):
            return F.relu(self.used(x))

    assert kfac(Spare(), "mse", torch.randn(4, 3)).skipped == {"spare": "never called"}


def test_float32_rounding_does_not_pass_for_the_smallest_eigenvalue():
    torch.manual_seed(0)
    head = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 5))
    narrow = nn.Sequential(nn.Linear(10, 4), nn.Linear(4, 32), nn.Linear(32, 5))
    x = torch.randn(200, 10)
    for model, name, part in ((head, "2", "G"), (narrow, "2", "A")):  # the logit shift; a rank of five
        single, double = (kfac(m, "ce", v)[name] for m, v in ((model, x), (copy.deepcopy(model).double(), x.double())))
        low, zeros = lambda_min(getattr(single, part), floor=single.floor)
        assert (pytest.approx(low, rel=1e-4), zeros) == lambda_min(getattr(double, part))
        assert single.condition == pytest.approx(double.condition, rel=1e-4)


def test_batches_that_cannot_be_used():
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    x = torch.randn(5, 3)
    before = copy.deepcopy(model.state_dict())
    for batch, loss, fisher, words in [
        (x[:0], "mse", "expected", "empty"),
        ((x, torch.full((5,), 7)), "ce", "empirical", "classes from 0 to 1"),
        ((x, torch.full((5,), -100)), "ce", "empirical", "ignored"),
        ((x, torch.zeros(3, dtype=torch.long)), "ce", "empirical", "shape"),
        ((x, torch.randn(5, 1)), "mse", "empirical", "shape"),
    ]:  # would be broadcast
        with pytest.raises(ValueError, match=words):
            kfac(model, loss, batch, fisher=fisher)
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    frozen = copy.deepcopy(model).requires_grad_(False)
    with pytest.raises(ValueError, match="frozen"):
        kfac(frozen, "mse", x)
    depthwise = nn.Sequential(nn.Conv2d(4, 4, 3, groups=4), nn.Flatten(), nn.Linear(16, 2))
    assert "grouped" in kfac(depthwise, "mse", torch.randn(3, 4, 4, 4)).skipped["0"]


def test_directions_that_do_not_fit_a_factor():
    for read in (dead_entry, schur_complement):
        for direction in (torch.zeros(3), torch.ones(2)):
            with pytest.raises(ValueError, match="direction"):
                read(torch.eye(3, dtype=torch.float64), direction)
    for matrix in (torch.full((2, 2), math.nan), torch.zeros(0, 0), torch.zeros(2, 3)):
        with pytest.raises(ValueError, match="square with finite entries"):
            lambda_min(matrix)


def test_fused_attention_is_said_to_be_left_out():
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    found = kfac(layer, "mse", torch.randn(4, 5, 8), fisher="monte-carlo")
    assert "linear1" in found.layers and "fused call" in found.skipped["self_attn"] and "self_attn" in str(found)


def test_every_matrix_of_a_hugging_face_gpt2_is_covered_or_named_with_a_reason():
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_layer=2, n_head=2, n_embd=8, vocab_size=11, n_positions=6)
    gpt = transformers.GPT2LMHeadModel(config).double().eval()
    ids = torch.randint(0, 11, (3, 5))
    found = kfac(gpt, "ce", {"input_ids": ids}, fisher="monte-carlo")
    owners = {n.rpartition(".")[0] for n, p in gpt.named_parameters(remove_duplicate=False) if p.ndim > 1}
    assert owners == set(found.layers) | set(found.skipped)
    layer = "transformer.h.0.mlp.c_fc"
    seen = []
    handle = gpt.get_submodule(layer).register_forward_hook(lambda m, a, o: seen.append(a[0].detach()))
    gpt(ids)
    handle.remove()
    rows = seen[0].reshape(-1, 8)
    torch.testing.assert_close(found[layer].A, rows.T @ rows / len(rows), rtol=1e-12, atol=0)
    assert found[layer].G.shape == (32, 32)


def test_a_matrix_of_another_kind_of_module_is_named():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.experts = nn.Parameter(torch.randn(3, 4, 4))
            self.head = nn.Linear(4, 2)

        def forward(self, x):
            return self.head(torch.einsum("bi,eij->bj", x, self.experts))

    net = Own()
    assert "3×4×4" in kfac(net, "mse", torch.randn(5, 4)).skipped[""]


@pytest.mark.parametrize("fisher", ["expected", "empirical"])
def test_many_batches_have_the_factors_of_their_union(fisher):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Tanh(), nn.Flatten(), nn.Linear(18, 3)).double()
    x, y = torch.randn(11, 1, 5, 5).double(), torch.randint(0, 3, (11,))
    one = kfac(net, "ce", (x, y), fisher=fisher)
    many = kfac(net, "ce", ((x[i : i + 4], y[i : i + 4]) for i in (0, 4, 8)), fisher=fisher)
    assert many.examples == 11 and list(many.layers) == list(one.layers)
    for name, factor in one.layers.items():
        torch.testing.assert_close(many[name].A, factor.A, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(many[name].G, factor.G, rtol=1e-12, atol=1e-12)
    with pytest.raises(ValueError, match="no batch"):
        kfac(net, "ce", [])
