"""The imbalance identity is exact on a batch: any activation, any loss, any chain of a real model."""

import dataclasses
from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from netvitals import saddle

ACTIVATIONS = [
    nn.Tanh(),
    nn.GELU(),
    nn.SiLU(),
    nn.Sigmoid(),
    nn.Softplus(),
    nn.ReLU(),
    nn.LeakyReLU(0.1),
    nn.ELU(),
    nn.Mish(),
    nn.Identity(),
]
SHAPES = [(5, 7, 1), (4, 6, 3, 2), (3, 8, 8, 5, 1), (6, 4, 5, 6, 7, 3)]


def chain(sizes, act, bias=False):
    layers = []
    for a, b in pairwise(sizes):
        layers += [nn.Linear(a, b, bias=bias), act]
    return nn.Sequential(*layers[:-1]).double()


def losses(outputs):
    soft = lambda o, y: F.cross_entropy(o, torch.softmax(y, -1))
    out = [
        F.mse_loss,
        lambda o, y: torch.log(torch.cosh(o - y)).mean(),
        lambda o, y: F.binary_cross_entropy_with_logits(o, (y > 0).double()),
    ]
    return out + ([soft] if outputs > 1 else [])


@pytest.mark.parametrize("sizes", SHAPES, ids=str)
@pytest.mark.parametrize("act", ACTIVATIONS, ids=lambda m: type(m).__name__)
def test_identity_holds_for_any_activation_loss_and_shape(act, sizes):
    net = chain(sizes, act)
    x, y = torch.randn(9, sizes[0]).double(), torch.randn(9, sizes[-1]).double()
    for loss in losses(sizes[-1]):
        found = saddle.imbalance(net, loss, (x, y))
        assert len(found.pairs) == len(sizes) - 2
        assert max(found.defect.values()) <= 1e-12, found
        assert max(p.neuron_defect for p in found.pairs) <= 1e-12


@pytest.mark.parametrize("act", [nn.ReLU(), nn.LeakyReLU(0.2), nn.Identity()], ids=lambda m: type(m).__name__)
def test_homogeneous_activations_conserve_every_imbalance(act):
    net = chain((4, 6, 5, 2), act)
    found = saddle.imbalance(net, F.mse_loss, (torch.randn(8, 4).double(), torch.randn(8, 2).double()))
    for pair in found.pairs:
        assert abs(pair.rhs) <= 1e-12 * pair.scale
        assert float(pair.neuron_rhs.abs().max()) <= 1e-12 * pair.scale


def test_biases_enter_with_their_own_norm():
    net = chain((4, 6, 5, 2), nn.Tanh(), bias=True)
    found = saddle.imbalance(net, F.mse_loss, (torch.randn(8, 4).double(), torch.randn(8, 2).double()))
    w = [m for m in net if isinstance(m, nn.Linear)]
    norms = [float(t.detach().norm()) for t in (w[1].weight, w[0].weight, w[0].bias)]
    expected = norms[0] ** 2 - norms[1] ** 2 - norms[2] ** 2
    assert found.pairs[0].delta == pytest.approx(expected, rel=1e-12)
    assert max(found.defect.values()) <= 1e-12


def test_convolutions_pooling_and_inplace_activations():
    net = nn.Sequential(
        nn.Conv2d(3, 5, 3, padding=1, stride=2),
        nn.SiLU(),
        nn.Conv2d(5, 6, 3),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(6, 4),
    ).double()
    found = saddle.imbalance(net, F.cross_entropy, (torch.randn(4, 3, 8, 8).double(), torch.tensor([0, 1, 2, 3])))
    assert found.chains == (("0", "2", "6"),)
    assert max(found.defect.values()) <= 1e-12
    assert max(p.neuron_defect for p in found.pairs) <= 1e-12


def test_transformer_feedforward_is_a_chain_and_attention_is_left_out():
    block = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, activation="gelu", dropout=0.1).double()
    x = torch.randn(2, 5, 8).double()
    found = saddle.imbalance(block, F.mse_loss, (x, torch.randn(2, 5, 8).double()))
    assert list(found.delta) == ["linear1 → linear2"]
    assert found.defect["linear1 → linear2"] <= 1e-12


@pytest.mark.parametrize(
    "act", [nn.Tanh(), nn.GELU(), nn.SiLU(), nn.ReLU(), nn.Sigmoid(), nn.Softplus()], ids=lambda m: type(m).__name__
)
def test_corrected_matrix_form_holds_and_the_printed_one_fails_off_the_diagonal(act):
    net = chain((5, 7, 6, 3), act)
    with torch.no_grad():
        for p in net.parameters():
            p.normal_()  # unit weights, so that the activations bend
    found = saddle.imbalance(net, F.mse_loss, (torch.randn(16, 5).double(), torch.randn(16, 3).double()))
    for pair in found.pairs:
        left, right = pair.matrix()
        assert float((left - right).norm() / left.norm()) <= 1e-12
        left, printed = pair.matrix(printed=True)
        assert float((left - printed).norm() / left.norm()) > 0.01  # erratum E2
        assert float((left - printed).diagonal().abs().max()) <= 1e-12 * float(left.norm())


def test_printed_matrix_form_is_right_for_linear_networks():
    net = chain((5, 7, 6, 3), nn.Identity())
    found = saddle.imbalance(net, F.mse_loss, (torch.randn(16, 5).double(), torch.randn(16, 3).double()))
    left, printed = found.pairs[0].matrix(printed=True)
    assert float((left - printed).norm()) <= 1e-12 * found.pairs[0].scale


def test_rates_weigh_the_norms_and_leave_the_right_side():
    net = chain((5, 8, 8, 1), nn.Tanh())
    data = (torch.randn(16, 5).double(), torch.randn(16, 1).double())
    rates = {"0.weight": 1.0, "2.weight": 1 / 8, "4.weight": 1 / 8}
    plain, weighted = saddle.imbalance(net, F.mse_loss, data), saddle.imbalance(net, F.mse_loss, data, rates=rates)
    assert weighted.rhs == plain.rhs
    assert weighted.pairs[0].delta == pytest.approx(
        8 * float(net[2].weight.detach().norm()) ** 2 - float(net[0].weight.detach().norm()) ** 2
    )
    # one step of rate-weighted gradient descent changes the weighted Δ exactly as predicted
    loss = F.mse_loss(net(data[0]), data[1])
    grads = torch.autograd.grad(loss, list(net.parameters()))
    with torch.no_grad():
        for (name, p), g in zip(net.named_parameters(), grads):
            p -= 0.05 * rates[name] * g
    after = saddle.imbalance(net, F.mse_loss, data, rates=rates)
    for old, new in zip(weighted.pairs, after.pairs):
        assert new.delta - old.delta == pytest.approx(old.predicted_change(0.05), abs=1e-12)


def test_model_is_left_as_it_was_and_float32_can_be_measured_precisely():
    net = nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.Dropout(0.5), nn.Linear(6, 2))
    net[0].weight.requires_grad_(False)
    net[3].weight.grad = torch.ones_like(net[3].weight)
    before, rng = {k: v.clone() for k, v in net.state_dict().items()}, torch.get_rng_state()
    data = (torch.randn(8, 4), torch.randn(8, 2))
    rng = torch.get_rng_state()
    found = saddle.imbalance(net, F.mse_loss, data, precise=True)
    saddle.imbalance(net, F.mse_loss, data)
    assert max(found.defect.values()) <= 1e-12
    assert torch.equal(torch.get_rng_state(), rng)
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())
    assert not net[0].weight.requires_grad and torch.equal(net[3].weight.grad, torch.ones_like(net[3].weight))
    assert not any(m._forward_hooks for m in net.modules())


def test_what_is_not_a_link_is_named():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c, self.d = (nn.Linear(4, 4) for _ in range(4))

        def forward(self, x):
            h = torch.tanh(self.a(x))
            return self.d(torch.tanh(self.c(self.b(h) + h)))

    net = Twice().double()
    found = saddle.imbalance(net, F.mse_loss, (torch.randn(8, 4).double(), torch.randn(8, 4).double()))
    assert list(found.delta) == ["c → d"]
    assert "c sees b as well" in found.skipped["a"]
    assert "c sees a as well" in found.skipped["b"]


def test_a_model_without_a_chain_says_what_was_looked_for():
    with pytest.raises(ValueError, match="needs layers whose input comes from exactly one earlier layer"):
        saddle.imbalance(nn.Linear(3, 2), F.mse_loss, (torch.randn(4, 3), torch.randn(4, 2)))
    with pytest.raises(TypeError, match="must return one number"):
        saddle.imbalance(
            chain((3, 4, 2), nn.Tanh()), lambda o, y: o - y, (torch.randn(4, 3).double(), torch.randn(4, 2).double())
        )


def test_an_output_used_twice_is_no_link():
    class Side(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = nn.Linear(3, 4), nn.Linear(4, 4), nn.Linear(4, 1)

        def forward(self, x):
            z = self.b(torch.tanh(self.a(x)))
            return self.c(torch.tanh(z)) + z.sum(-1, keepdim=True)

    found = saddle.imbalance(Side().double(), F.mse_loss, (torch.randn(6, 3).double(), torch.randn(6, 1).double()))
    assert list(found.delta) == ["a → b"] and "leaves the model" in found.skipped["b"]


def test_the_change_of_one_gradient_step_is_told_exactly_with_biases_and_rates():
    torch.manual_seed(5)
    net = chain((4, 6, 5, 2), nn.GELU(), bias=True)
    x, y = torch.randn(8, 4).double(), torch.randn(8, 2).double()
    rates = {"0.bias": 0.5, "2.weight": 2.0}
    before = saddle.imbalance(net, F.mse_loss, (x, y), rates=rates)
    F.mse_loss(net(x), y).backward()
    lr = 0.1
    with torch.no_grad():
        for name, p in net.named_parameters():
            p -= lr * rates.get(name, 1.0) * p.grad
    after = saddle.imbalance(net, F.mse_loss, (x, y), rates=rates)
    for one, two in zip(before.pairs, after.pairs):
        assert two.delta - one.delta == pytest.approx(one.predicted_change(lr), rel=1e-9), one
        assert float(one.neuron_delta.sum()) == pytest.approx(one.delta, rel=1e-12)


def test_the_defect_is_a_share_of_the_terms():
    net = chain((3, 4, 2), nn.Tanh())
    pair = saddle.imbalance(net, F.mse_loss, (torch.randn(5, 3).double(), torch.randn(5, 2).double())).pairs[0]
    off = dataclasses.replace(pair, rhs=pair.lhs + 0.5 * pair.scale, neuron_rhs=pair.neuron_lhs + pair.neuron_scale)
    assert off.defect == pytest.approx(0.5) and off.neuron_defect == pytest.approx(1.0)
    sizes = [abs(pair.lhs), float(pair.neuron_lhs.abs().max())]
    assert pair.scale >= sizes[0] and pair.neuron_scale >= 0.5 * sizes[1]


def test_a_result_does_not_change_when_the_model_does():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2)).double()
    (pair,) = saddle.imbalance(net, F.mse_loss, (torch.randn(9, 4).double(), torch.randn(9, 2).double())).pairs
    before = [side.clone() for side in pair.matrix()]
    with torch.no_grad():
        for p in net.parameters():
            p.add_(torch.randn_like(p))
    left, right = pair.matrix()
    torch.testing.assert_close(left, right, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close((left, right), tuple(before), rtol=0, atol=0)


GROUPED = {
    "second": lambda: [nn.Conv2d(3, 4, 3), nn.Tanh(), nn.Conv2d(4, 6, 3, groups=2)],
    "first": lambda: [nn.Conv2d(4, 6, 3, groups=2), nn.Tanh(), nn.Conv2d(6, 2, 3)],
    "depthwise": lambda: [nn.Conv2d(3, 4, 3), nn.Tanh(), nn.Conv2d(4, 4, 3, groups=4)],
    "transposed": lambda: [nn.Conv2d(3, 4, 3), nn.Tanh(), nn.ConvTranspose2d(4, 6, 3, groups=2)],
    "transposed first": lambda: [nn.ConvTranspose2d(4, 6, 3, groups=2), nn.Tanh(), nn.Conv2d(6, 2, 3)],
}


@pytest.mark.parametrize("name", GROUPED)
def test_neurons_of_grouped_convolutions_have_their_own_imbalance(name):
    torch.manual_seed(0)
    first, act, second = GROUPED[name]()
    net = nn.Sequential(first, act, second).double()
    x = torch.randn(4, first.in_channels, 8, 8).double()
    found = saddle.imbalance(net, lambda o, _: o.square().mean(), (x, None))
    (pair,) = found.pairs
    assert not found.skipped and pair.neuron_defect <= 1e-12 and pair.defect <= 1e-12
    for j in range(first.out_channels):  # the weights that unit j feeds and is fed by
        silent = [p.detach().clone().requires_grad_() for p in second.parameters()]
        only = torch.zeros(4, first.out_channels, 8, 8).double()
        only[:, j] = 1.0
        out = torch.func.functional_call(second, dict(zip(("weight", "bias"), silent)), (only,))
        (used,) = torch.autograd.grad(out.sum(), silent[0])
        out_size = float(second.weight.detach()[used != 0].square().sum())
        leaf = {k: v.detach().clone().requires_grad_() for k, v in first.named_parameters()}
        mine = torch.autograd.grad(torch.func.functional_call(first, leaf, (x,))[:, j].sum(), list(leaf.values()))
        in_size = sum(float(p[g != 0].square().sum()) for p, g in zip(leaf.values(), mine))
        assert float(pair.neuron_delta[j]) == pytest.approx(out_size - in_size, rel=1e-10), j
    with pytest.raises(ValueError, match="cannot be written with matrices"):
        pair.matrix()


def test_numbers_per_neuron_are_left_out_with_a_reason_where_inputs_are_not_in_the_order_of_units():
    class Flat(nn.Module):
        def __init__(self, last):
            super().__init__()
            self.a, self.b, self.last = nn.Conv2d(2, 3, 3), nn.Linear(12, 2), last

        def forward(self, x):
            z = torch.relu(self.a(x))
            return self.b((z.permute(0, 2, 3, 1) if self.last else z).flatten(1))

    torch.manual_seed(0)
    batch = torch.randn(5, 2, 4, 4).double(), torch.randn(5, 2).double()
    for last in (False, True):
        net = Flat(last).double()
        found = saddle.imbalance(net, F.mse_loss, batch)
        (pair,) = found.pairs
        assert pair.defect <= 1e-12
        if last:
            assert pair.neuron_delta.isnan().all() and "order" in found.skipped["a → b, per neuron"]
        else:
            shares = net.b.weight.detach().reshape(2, 3, 4).square().sum((0, 2))
            mine = net.a.weight.detach().square().sum((1, 2, 3)) + net.a.bias.detach().square()
            torch.testing.assert_close(pair.neuron_delta, shares - mine)
            assert not found.skipped


def test_glu_leaves_numbers_per_neuron_out_with_a_reason():
    net = nn.Sequential(nn.Linear(3, 8), nn.GLU(), nn.Linear(4, 2)).double()
    found = saddle.imbalance(net, F.mse_loss, (torch.randn(5, 3).double(), torch.randn(5, 2).double()))
    assert "4 inputs" in found.skipped["0 → 2, per neuron"] and "8 units" in found.skipped["0 → 2, per neuron"]
