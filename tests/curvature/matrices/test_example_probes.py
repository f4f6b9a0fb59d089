"""A probe of its own for every example: unbiased for every tensor, less spread, and left alone where examples meet."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from netvitals.curvature import trace
from netvitals.curvature.engine.layout import Place
from netvitals.curvature.matrices.layer_calls import LayerCall, root, source_of


class Text(nn.Module):
    """Tokens, positions, attention by hand, norms; ``tied`` reads the table of tokens twice."""

    def __init__(self, tied=False):
        super().__init__()
        self.tokens, self.places = nn.Embedding(7, 4, padding_idx=0), nn.Embedding(5, 4)
        self.norm, self.rms = nn.LayerNorm(4), nn.RMSNorm(4)
        self.qkv, self.out = nn.Linear(4, 12), nn.Linear(4, 4, bias=False)
        self.head = nn.Linear(4, 7, bias=False)
        if tied:
            self.head.weight = self.tokens.weight

    def forward(self, x):
        h = self.tokens(x) + self.places(torch.arange(x.shape[1]))
        q, k, v = self.qkv(self.norm(h)).chunk(3, -1)
        h = h + self.out((q @ k.mT).softmax(-1) @ v)
        return self.head(self.rms(h)).transpose(1, 2)


class Images(nn.Module):
    def __init__(self):
        super().__init__()
        self.wide, self.group = nn.Conv2d(2, 4, 3, padding=1), nn.GroupNorm(2, 4)
        self.depth, self.deep = nn.Conv2d(4, 4, 3, groups=4), nn.Conv2d(4, 3, 3, stride=2)
        self.head = nn.Linear(3, 3)

    def forward(self, x):
        h = torch.tanh(self.depth(F.silu(self.group(self.wide(x)))))
        return self.head(torch.tanh(self.deep(h)).mean((2, 3)))


class Line(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.norm, self.b = nn.Conv1d(2, 3, 3, padding=1), nn.BatchNorm1d(3), nn.Linear(3, 2)

    def forward(self, x):
        return self.b(torch.tanh(self.norm(self.a(x))).mT).mean(1)


def text_batch():
    return torch.randint(0, 7, (4, 5)), torch.randint(0, 7, (4, 5))


CASES = {
    "text": (Text, text_batch, F.cross_entropy, {"places.weight"}),
    "tied": (lambda: Text(True), text_batch, F.cross_entropy, {"places.weight", "tokens.weight"}),
    "images": (Images, lambda: (torch.randn(4, 2, 6, 6).double(), torch.randint(0, 3, (4,))), F.cross_entropy, set()),
    "line": (Line, lambda: (torch.randn(4, 2, 5).double(), torch.randn(4, 2).double()), F.mse_loss, set()),
    "huber": (Line, lambda: (torch.randn(4, 2, 5).double(), torch.randn(4, 2).double()), F.smooth_l1_loss, set()),
}


@pytest.mark.parametrize("name", CASES)
def test_every_tensor_has_the_trace_of_the_dense_hessian(name, bench):
    torch.manual_seed(0)
    make, batch, loss, shared = CASES[name]
    net, data = make().double().eval(), batch()
    with torch.no_grad():
        for p in net.parameters():
            p.add_(0.1 * torch.randn_like(p))
    dense, sizes = bench.parameter_hessian(net, loss, data)
    exact = np.array([float(d.sum()) for d in dense.diag().split(list(sizes.values()))])
    found = trace(net, loss, data, probes=1000)
    assert found.method == "examples" and found.names == tuple(sizes)
    z = (np.array(list(found.by_tensor.values())) - exact) / np.maximum(list(found.by_tensor_stderr.values()), 1e-10)
    assert np.abs(z).max() < 4.2, dict(zip(sizes, z.round(1)))
    gn, plain = (trace(net, loss, data, probes=500, part="GN", method=m) for m in ("examples", "hutchinson"))
    for n in sizes:
        off = abs(gn.by_tensor[n] - plain.by_tensor[n])
        assert off < 4.2 * np.hypot(gn.by_tensor_stderr[n], plain.by_tensor_stderr[n]) + 1e-10, n
    if not shared and loss is not F.smooth_l1_loss:
        assert gn.total_stderr < 1e-9 * gn.total, "few outputs: Gauss–Newton is exact"


def test_the_error_is_a_fraction_of_what_shared_probes_leave():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4)).double()
    batch = torch.randn(64, 8).double(), torch.randint(0, 4, (64,))
    own, shared = (trace(net, F.cross_entropy, batch, probes=30, method=m) for m in ("examples", "hutchinson"))
    assert own.total_stderr < 0.25 * shared.total_stderr
    many = trace(net, F.cross_entropy, [(batch[0][:40], batch[1][:40]), (batch[0][40:], batch[1][40:])], probes=30)
    assert many.method == "examples" and abs(many.total - own.total) < 5 * np.hypot(many.total_stderr, own.total_stderr)
    assert many.total_sampling > many.total_stderr


def test_a_piecewise_linear_net_is_exact_and_a_frozen_tensor_left_out(bench):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 3)).double()
    net[2].weight.requires_grad_(False)
    batch = torch.randn(9, 5).double(), torch.randint(0, 3, (9,))
    found = trace(net, F.cross_entropy, batch, probes=5)
    dense, sizes = bench.parameter_hessian(net, F.cross_entropy, batch)
    np.testing.assert_allclose(list(found.by_tensor.values()), [d.sum() for d in dense.diag().split([*sizes.values()])])
    assert found.skipped == {"2.weight": "frozen"} and "2.bias" in found.names and net[0].weight.requires_grad


def centred(out, y):
    return F.mse_loss(out - out.mean(0), y)


@pytest.mark.parametrize("how", ["norm", "loss", "pairs"])
def test_examples_that_see_each_other_share_their_probes(how, bench):
    torch.manual_seed(0)
    middle = nn.BatchNorm1d(4) if how == "norm" else nn.Identity()
    net = nn.Sequential(nn.Linear(3, 4), middle, nn.Tanh(), nn.Linear(4, 2)).double()
    batch = torch.randn(6, 3).double(), torch.randn(6, 2).double()
    swapped = lambda out, y: F.mse_loss(out * out.flip(0).sigmoid(), y)
    loss = {"norm": F.mse_loss, "loss": centred, "pairs": swapped}[how]
    found = trace(net, loss, batch, probes=400)
    assert found.method != "examples" and "examples see each other" in found.note and found.note in str(found)
    if how != "norm":
        exact = float(bench.parameter_hessian(net, loss, batch)[0].trace())
        assert abs(found.total - exact) < 4 * found.total_stderr
    with pytest.raises(ValueError, match="cannot be used here"):
        trace(net, loss, batch, probes=4, method="examples")
    many = trace(net, loss, [batch, batch], probes=10)
    assert many.method == "hutchinson" and "examples see each other" in many.note


def test_a_weight_that_is_also_read_elsewhere_keeps_a_shared_probe(bench):
    """By a penalty whose gradient vanishes, by a functional call, and by a subclass with a formula of its own."""

    class Twice(nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x)

    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), Twice(4, 4), nn.Tanh(), nn.Linear(4, 4)).double()
    batch = torch.randn(6, 3).double(), torch.randn(6, 4).double()
    start = net[0].weight.detach().clone()

    def loss(out, y):
        return F.mse_loss(F.linear(out, net[4].weight), y) + 3 * (net[0].weight - start).square().sum()

    found = trace(net, loss, batch, probes=1500)
    h = lambda p: sum(_second(loss, net, batch, p, i) for i in range(p.numel()))
    for name, p in net.named_parameters():
        off = abs(found.by_tensor[name] - h(p))
        assert off < 4 * found.by_tensor_stderr[name] + 1e-9, name


def _second(loss, net, batch, p, i):
    (g,) = torch.autograd.grad(loss(net(batch[0]), batch[1]), p, create_graph=True)
    return float(torch.autograd.grad(g.reshape(-1)[i], p)[0].reshape(-1)[i])


def test_roots_and_layouts():
    g = torch.Generator().manual_seed(0)
    for t, width in ((3, 7), (7, 3)):
        a = torch.randn(2, t, width, generator=g, dtype=torch.float64)
        a[0, 1] = a[0, 0]  # a singular Gram matrix
        torch.testing.assert_close(root(a) @ root(a).mT, a @ a.mT)
    layer = nn.Linear(3, 2).double()
    x = torch.randn(5, 4, 3, generator=g, dtype=torch.float64)  # positions first
    first, second = (
        source_of(LayerCall(layer, Place("rows", d), "w", "b"), v, torch.Size((*v.shape[:2], 2)), 4)
        for d, v in ((1, x), (0, x.transpose(0, 1)))
    )
    r = torch.randn(6, first.size, generator=g, dtype=torch.float64)
    for (p, _), (q, _) in zip(first.made(r), second.made(r)):
        torch.testing.assert_close(p, q.transpose(1, 2))
    gradient = torch.randn(2, 5, 4, 2, generator=g, dtype=torch.float64)
    by_hand = torch.einsum("mtbo,tbi->mboi", gradient, x).square().sum((1, 2, 3))
    torch.testing.assert_close(first.squared(gradient)["w"], by_hand)
    torch.testing.assert_close(second.squared(gradient.transpose(1, 2))["b"], gradient.sum(1).square().sum((1, 2)))
