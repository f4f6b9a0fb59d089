"""A loss that reads activations or parameters besides the output: H and its Gauss–Newton part are those of dense
derivatives in float64.
"""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from netvitals import curvature

NODES = ["a", "b"]
SIZES = [4, 3]


class Net(nn.Module):
    """Keeps what it computes, as users do for a penalty."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(3, 4), nn.Linear(4, 3), nn.Linear(3, 2)

    def forward(self, x):
        self.first = self.a(x)
        self.second = torch.tanh(self.b(torch.tanh(self.first)))
        return self.c(self.second)


def whole(out, first, second, y):
    """A loss that couples the output with both activations, so that no block of ∂²L is zero."""
    penalty = first.pow(4).sum(1).mean() + 0.3 * second.square().sum(1).mean()
    return F.mse_loss(out, y) + penalty + 0.2 * (out.sum(1) * first.sum(1) * second.exp().sum(1)).mean()


@pytest.fixture
def task():
    torch.manual_seed(0)
    return Net().double(), (torch.randn(6, 3).double(), torch.randn(6, 2).double())


def values(net, x, eps):
    """What the loss reads, with one perturbation of ``a`` and ``b`` for all examples."""
    e, f = eps.split(SIZES)
    first = net.a(x) + e
    second = torch.tanh(net.b(torch.tanh(first)) + f)
    return net.c(second), first, second


def dense(net, batch):
    """H and GN = Jᵀ ∂²L J, by torch.func on the functions written out."""
    x, y = batch
    zero = torch.zeros(sum(SIZES), dtype=torch.float64)
    read = lambda eps: torch.cat([v.flatten() for v in values(net, x, eps)])
    shapes = [v.shape for v in values(net, x, zero)]

    def loss(flat):
        parts = flat.split([s.numel() for s in shapes])
        return whole(*(p.view(s) for p, s in zip(parts, shapes)), y)

    j = torch.func.jacrev(read)(zero)
    h = torch.func.hessian(lambda e: loss(read(e)))(zero)
    return h.detach(), (j.T @ torch.func.hessian(loss)(read(zero)) @ j).detach()


def by_attribute(net):
    return lambda out, y: whole(out, net.first, net.second, y)


class Returned(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        return {"logits": self.net(x), "first": self.net.first, "second": self.net.second}


@pytest.mark.parametrize("method", ["exact", "stochastic"])
def test_penalties_on_activations_are_measured(task, method):
    net, batch = task
    h, gn = dense(net, batch)
    found = curvature.between_layers(net, by_attribute(net), batch, nodes=NODES, method=method)
    for v, at in zip(NODES, (slice(0, 4), slice(4, 7))):
        for w, to in zip(NODES, (slice(0, 4), slice(4, 7))):
            i, k = found.position(v), found.position(w)
            assert found.resonance[i, k] == pytest.approx(float(h[at, to].norm()), rel=1e-9)
            assert found.gauss_newton[i, k] == pytest.approx(float(gn[at, to].norm()), rel=1e-9)
            assert found.tensor[i, k] == pytest.approx(float((h - gn)[at, to].norm()), rel=1e-9)
            if method == "exact":
                torch.testing.assert_close(found.block(v, w).H, h[at, to], rtol=1e-9, atol=1e-12)
                torch.testing.assert_close(found.block(v, w).GN, gn[at, to], rtol=1e-9, atol=1e-12)


def test_what_a_model_returns_beside_its_logits_is_the_same_direct_term(task):
    net, batch = task
    loss = lambda out, y: whole(out["logits"], out["first"], out["second"], y)
    wanted = curvature.between_layers(net, by_attribute(net), batch, nodes=NODES, method="exact")
    found = curvature.between_layers(Returned(net), loss, batch, nodes=["net.a", "net.b"], method="exact")
    torch.testing.assert_close(found.blocks.gauss_newton, wanted.blocks.gauss_newton, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(found.blocks.tensor, wanted.blocks.tensor, rtol=1e-9, atol=1e-12)


def test_a_copy_in_float64_is_read_and_the_model_has_its_own_tensors_afterwards(task):
    net, batch = task
    wanted = curvature.between_layers(net, by_attribute(net), batch, nodes=NODES, method="exact")
    single, x, y = net.float(), batch[0].float(), batch[1].float()
    loss = by_attribute(single)
    loss(single(x), y).backward()  # as after a step of training: the activations are part of a graph
    first, kept = single.first, single.a.weight
    found = curvature.between_layers(single, loss, (x, y), nodes=NODES, method="exact")
    torch.testing.assert_close(found.blocks.hessian, wanted.blocks.hessian, rtol=1e-4, atol=1e-5)
    assert single.first is first and single.a.weight is kept and single.a.weight.dtype == torch.float32

    def broken(out, y):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        curvature.between_layers(single, broken, (x, y), nodes=NODES, method="exact")
    assert single.first is first and single.a.weight is kept


def parameter_reference(net, batch, penalty):
    """H in the weights of ``a`` and ``b``, and GN of (output, activations, weights), by torch.func."""
    x, y = batch
    names = ["a.weight", "a.bias", "b.weight", "b.bias"]
    params = dict(net.named_parameters())
    flat = torch.cat([params[n].detach().flatten() for n in names])
    sizes, shapes = [params[n].numel() for n in names], [params[n].shape for n in names]

    def read(theta):
        p = {n: t.view(s) for n, t, s in zip(names, theta.split(sizes), shapes)}
        first = x @ p["a.weight"].T + p["a.bias"]
        second = torch.tanh(torch.tanh(first) @ p["b.weight"].T + p["b.bias"])
        return torch.cat([v.flatten() for v in (net.c(second), first, second)] + [theta])

    def loss(r):
        out, first, second, theta = r.split([12, 24, 18, flat.numel()])
        return whole(out.view(6, 2), first.view(6, 4), second.view(6, 3), y) + penalty(theta)

    j = torch.func.jacrev(read)(flat)
    h = torch.func.hessian(lambda t: loss(read(t)))(flat)
    return h.detach(), (j.T @ torch.func.hessian(loss)(read(flat)) @ j).detach()


def test_between_parameters_penalties_on_activations_and_weights_are_direct_terms(task):
    net, batch = task
    h, gn = parameter_reference(net, batch, lambda theta: 0.01 * theta.pow(4).sum())
    own = [*net.a.parameters(), *net.b.parameters()]
    loss = lambda out, y: whole(out, net.first, net.second, y) + 0.01 * sum(p.pow(4).sum() for p in own)
    found = curvature.between_layers(net, loss, batch, nodes=NODES, space="parameter", method="exact")
    torch.testing.assert_close(found.blocks.gauss_newton, gn, rtol=1e-8, atol=1e-11)
    torch.testing.assert_close(found.blocks.hessian, h, rtol=1e-8, atol=1e-11)


def test_weight_decay_in_the_loss_is_twice_its_factor_on_the_diagonal():
    torch.manual_seed(0)
    net, batch = nn.Sequential(nn.Linear(3, 2)), (torch.randn(5, 3), torch.randn(5, 2))
    plain = curvature.between_layers(net, "mse", batch, nodes=["0"], space="parameter", method="exact")
    loss = lambda out, y: F.mse_loss(out, y) + 0.05 * sum(p.square().sum() for p in net.parameters())
    found = curvature.between_layers(net, loss, batch, nodes=["0"], space="parameter", method="exact")
    torch.testing.assert_close(
        found.blocks.gauss_newton - plain.blocks.gauss_newton, 0.1 * torch.eye(8).double(), rtol=1e-6, atol=1e-8
    )
    assert float(found.blocks.tensor.abs().max()) < 1e-12


def test_an_activation_of_an_earlier_pass_is_no_constant(task):
    net, (x, y) = task
    kept = {}
    net.a.register_forward_hook(lambda m, args, out: kept.__setitem__("first", out))
    net(x)
    with pytest.raises(ValueError, match="from an earlier forward pass"):
        curvature.between_layers(net, lambda out, y: whole(out, kept["first"], net.second, y), (x, y), nodes=NODES)


class OwnLoss(nn.Module):
    """A model that computes its loss and adds a term of another output, as mixtures of experts do."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x, labels=None):
        logits = self.net(x)
        balance = 0.1 * self.net.second.square().sum(1).mean()
        return SimpleNamespace(loss=F.mse_loss(logits, labels) + balance, logits=logits, balance=balance)


def test_a_models_own_loss_may_have_a_second_term_among_its_outputs(task):
    net, (x, y) = task
    found = curvature.between_layers(
        OwnLoss(net), None, {"x": x, "labels": y}, nodes=["net.a", "net.b"], method="exact"
    )
    zero = torch.zeros(sum(SIZES), dtype=torch.float64)

    def loss(eps):
        out, _, second = values(net, x, eps)
        return F.mse_loss(out, y) + 0.1 * second.square().sum(1).mean()

    out = lambda eps: values(net, x, eps)[0].flatten()
    j = torch.func.jacrev(out)(zero)
    torch.testing.assert_close(found.blocks.hessian, torch.func.hessian(loss)(zero), rtol=1e-9, atol=1e-12)
    # the balance ends as one number: what curves inside the model is in T
    torch.testing.assert_close(found.blocks.gauss_newton, j.T @ j * 2 / y.numel(), rtol=1e-9, atol=1e-12)


def test_half_of_the_examples_are_half_of_what_the_loss_reads(task):
    """A mean over examples stays one: reductions by example are allowed, and their mean is the whole."""
    net, batch = task
    each = curvature.between_layers(net, by_attribute(net), batch, nodes=NODES, method="exact", reduction="per_sample")
    mean = curvature.between_layers(net, by_attribute(net), batch, nodes=NODES, method="exact")
    torch.testing.assert_close(each.blocks.hessian.mean(0), mean.blocks.hessian, rtol=1e-9, atol=1e-12)
    bare = lambda out, y: whole(out, net.first, net.second, y) * len(out)
    with pytest.raises(ValueError, match="not a mean over examples"):
        curvature.between_layers(net, bare, batch, nodes=NODES, method="exact", reduction="per_sample")


def test_a_term_that_torch_does_not_hand_over_is_refused(task):
    net, batch = task

    class Square(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x):
            return x.square()

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, g):
            return 2 * ctx.saved_tensors[0] * g

    loss = lambda out, y: F.mse_loss(out, y) + Square.apply(net.second).mean()
    with pytest.raises(ValueError, match="does not come through the model"):
        curvature.between_layers(net, loss, batch, nodes=NODES, method="exact")
