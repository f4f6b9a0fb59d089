"""Cases every curvature test runs on: small nets of each shape, and the exact Hessian of their perturbed loss."""

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Residual(nn.Module):
    def __init__(self, d=5, act=nn.Tanh):
        super().__init__()
        self.a, self.b, self.act, self.head = nn.Linear(d, d), nn.Linear(d, d), act(), nn.Linear(d, 3)

    def forward(self, x):
        h = self.act(self.a(x))
        return self.head(h + self.act(self.b(h)))


class Diamond(nn.Module):
    """Branches of unequal length into a nonlinear merge: the case the paper's printed recursion gets wrong."""

    def __init__(self, d=4, act=nn.SiLU):
        super().__init__()
        self.stem, self.left, self.right, self.far = (nn.Linear(d, d) for _ in range(4))
        self.merge, self.act, self.head = nn.Linear(2 * d, d), act(), nn.Linear(d, 3)

    def forward(self, x):
        s = self.act(self.stem(x))
        left = self.act(self.left(s))
        right = self.act(self.far(self.act(self.right(s))))
        return self.head(self.act(self.merge(torch.cat([left, right], 1))))


class Attention(nn.Module):
    def __init__(self, d=4):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(d, d, bias=False) for _ in range(3))
        self.head = nn.Linear(d, 2)

    def forward(self, x):
        q, k, v = (m(x)[:, None] for m in (self.q, self.k, self.v))
        return self.head(F.scaled_dot_product_attention(q, k, v)[:, 0].mean(1))


class Tied(nn.Module):
    """One cell called three times."""

    def __init__(self, d=4):
        super().__init__()
        self.cell, self.head = nn.Linear(d, d), nn.Linear(d, 2)

    def forward(self, x):
        h = x
        for _ in range(3):
            h = torch.tanh(self.cell(h)) + x
        return self.head(h)


class Convolution(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1, self.n, self.c2 = nn.Conv2d(1, 2, 3, padding=1), nn.BatchNorm2d(2), nn.Conv2d(2, 2, 3, stride=2)
        self.head = nn.Linear(8, 3)
        self.n.running_mean += 0.1

    def forward(self, x):
        h = F.gelu(self.n(self.c1(x)))
        return self.head(F.max_pool2d(F.silu(self.c2(h)), 1).flatten(1))


@dataclass
class Case:
    name: str
    make: Callable[[], nn.Module]
    nodes: list[str]
    batch: Callable[[], tuple[Tensor, Tensor]]
    loss: Callable[[Tensor, Tensor], Tensor]


def _classes(k, *shape):
    return lambda: (torch.randn(3, *shape, dtype=torch.float64), torch.randint(0, k, (3,)))


def _values(k, *shape):
    return lambda: (torch.randn(3, *shape, dtype=torch.float64), torch.randn(3, k, dtype=torch.float64))


def chain(act=nn.Tanh, d=5):
    return nn.Sequential(nn.Linear(d, d), act(), nn.Linear(d, d), nn.LayerNorm(d), act(), nn.Linear(d, 3))


CASES = [
    Case("chain", chain, nodes=["0", "1", "2", "4", "5"], batch=_classes(3, 5), loss=F.cross_entropy),
    Case("residual", Residual, nodes=["a", "act", "b"], batch=_classes(3, 5), loss=F.cross_entropy),
    Case("diamond", Diamond, nodes=["stem", "left", "right", "far", "merge"], batch=_values(3, 4), loss=F.mse_loss),
    Case("attention", Attention, nodes=["q", "k", "v"], batch=_values(2, 3, 4), loss=F.mse_loss),
    Case("shared", Tied, nodes=["cell"], batch=_classes(2, 4), loss=F.cross_entropy),
    Case("convolution", Convolution, nodes=["c1", "n", "c2"], batch=_classes(3, 1, 5, 5), loss=F.cross_entropy),
]


def relative(a, b):
    return float((a - b).norm() / b.norm())


@pytest.fixture(params=CASES, ids=lambda c: c.name)
def case(request):
    torch.manual_seed(3)
    c = request.param
    model = c.make().double().eval()
    return model, c.loss, c.batch(), c.nodes


def perturbed_hessian(model, loss_fn, batch, calls, per_sample=False):
    """torch.func.hessian of the loss in perturbations added to module outputs, by plain hooks: the reference."""
    x, y = batch
    modules = dict(model.named_modules())
    shapes = {}
    counts: dict[str, int] = {}

    def remember(name):
        def hook(m, a, out):
            counts[name] = counts.get(name, 0) + 1
            shapes[name if counts[name] == 1 else f"{name}#{counts[name]}"] = tuple(out.shape)

        return hook

    bases = list(dict.fromkeys(c.split("#")[0] for c in calls))
    handles = [modules[b].register_forward_hook(remember(b)) for b in bases]
    model(x)
    [h.remove() for h in handles]
    rows = x.shape[0] if per_sample else 1
    inner = [shapes[c][1:] for c in calls]
    sizes = [rows * int(torch.tensor(s).prod()) for s in inner]

    def loss(flat):
        eps = {c: e.reshape(rows, *s) for c, e, s in zip(calls, flat.split(sizes), inner)}
        counts.clear()

        def add(name):
            def hook(m, a, out):
                counts[name] = counts.get(name, 0) + 1
                key = name if counts[name] == 1 else f"{name}#{counts[name]}"
                return out + eps[key] if key in eps else None

            return hook

        handles = [modules[b].register_forward_hook(add(b)) for b in bases]
        try:
            with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
                return loss_fn(model(x), y)
        finally:
            [h.remove() for h in handles]

    flat = torch.zeros(sum(sizes), dtype=x.dtype)
    return torch.func.jacrev(torch.func.jacrev(loss))(flat).detach(), sizes


def plain_layer_norm(x, shape, weight=None, bias=None, eps=1e-5):
    """Layer norm from elementary operations: torch.func's second derivative of the fused one is wrong in its weight."""
    c = x - x.mean(-1, keepdim=True)
    y = c / (c.square().mean(-1, keepdim=True) + eps).sqrt()
    return y if weight is None else y * weight + bias


def parameter_hessian(model, loss_fn, batch):
    """(P, P) Hessian over model.parameters(), by torch.func."""
    x, y = batch
    names, params = zip(*[(n, p) for n, p in model.named_parameters() if p.requires_grad])
    sizes = [p.numel() for p in params]

    def loss(flat):
        tree = {n: v.view_as(p) for n, v, p in zip(names, flat.split(sizes), params)}
        with (
            torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH),
            mock.patch.object(F, "layer_norm", plain_layer_norm),
        ):
            return loss_fn(torch.func.functional_call(model, tree, (x,)), y)

    flat = torch.cat([p.detach().flatten() for p in params])
    return torch.func.jacrev(torch.func.jacrev(loss))(flat).detach(), dict(zip(names, sizes))


@pytest.fixture
def bench():
    """The nets and references of this folder, for tests that build their own."""
    return SimpleNamespace(
        Residual=Residual,
        Diamond=Diamond,
        Attention=Attention,
        Tied=Tied,
        Convolution=Convolution,
        chain=chain,
        perturbed_hessian=perturbed_hessian,
        parameter_hessian=parameter_hessian,
        relative=relative,
    )
