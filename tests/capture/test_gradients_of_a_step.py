"""The gradients of a measured step are those that the optimizer was given, whatever it does to them."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import netvitals
from netvitals import stats


class Writes(torch.optim.SGD):
    """Writes into ``p.grad``, as schedule-free optimizers do."""

    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with torch.no_grad():
            for group in self.param_groups:
                for p in group["params"]:
                    p.grad.mul_(100.0).add_(1.0)
                    p.add_(p.grad, alpha=-1e-4)
        return loss


def problem():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))
    return net, (torch.randn(16, 6), torch.randn(16, 2))


def train(net, opt, batch, how, clip=None, watch=None, steps=3):
    """Norms of the gradients at the time of each step."""
    norms = []
    for _ in range(steps):

        def closure():
            opt.zero_grad()
            loss = F.mse_loss(net(batch[0]), batch[1])
            loss.backward()
            if clip:
                nn.utils.clip_grad_norm_(net.parameters(), clip)
            norms.append(math.hypot(*(float(p.grad.norm()) for p in net.parameters())))
            return loss

        if how == "before":
            loss = closure()
            opt.step()
        else:
            loss = opt.step(closure) if how == "positional" else opt.step(closure=closure)
        if watch is not None:
            watch.step(loss)
    return norms


@pytest.mark.parametrize("clip", [None, 0.05])
@pytest.mark.parametrize("how", ["before", "positional", "keyword"])
@pytest.mark.parametrize("kind", [Writes, torch.optim.SGD])
def test_an_optimizer_that_writes_into_gradients(kind, how, clip):
    net, batch = problem()
    opt = kind(net.parameters(), lr=0.1)
    with netvitals.watch(net, opt, every=1, vitals=["gradients"]) as seen:
        norms = train(net, opt, batch, how, clip, seen)
    read = {r.step: r.value for r in seen.measurements if (r.site, r.metric) == ("model", "grad_norm")}
    assert len(read) > 1 and read == pytest.approx({step: norms[step] for step in read}, rel=1e-6)
    other, batch = problem()
    train(other, kind(other.parameters(), lr=0.1), batch, how, clip)
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), other.parameters()))


def test_a_closure_that_is_called_often_shows_its_last_gradient():
    net, batch = problem()
    opt = torch.optim.LBFGS(net.parameters(), lr=0.1, max_iter=4)
    with netvitals.watch(net, opt, every=1, vitals=["gradients"]) as seen:
        norms = train(net, opt, batch, "positional", watch=seen, steps=1)
    (read,) = [r.value for r in seen.measurements if (r.site, r.metric) == ("model", "grad_norm")]
    assert len(norms) > 1 and read == pytest.approx(norms[-1], rel=1e-6)


def test_two_optimizers_of_which_the_first_writes():
    net, batch = problem()
    first, second = Writes(net[0].parameters(), lr=0.1), torch.optim.Adam(net[2].parameters(), lr=0.1)
    with netvitals.watch(net, [first, second], every=1, vitals=["gradients"]) as seen:
        loss = F.mse_loss(net(batch[0]), batch[1])
        loss.backward()
        wanted = {n: float(p.grad.norm()) for n, p in net.named_parameters()}
        first.step()
        first.zero_grad(set_to_none=False)
        second.step()
        seen.step(loss)
    assert {
        r.site: r.value for r in seen.measurements if r.metric == "grad_norm" and r.site != "model"
    } == pytest.approx(wanted, rel=1e-6)


def test_gradients_that_a_fused_optimizer_unscales_itself_are_shown_unscaled():
    net, batch = problem()
    opt = torch.optim.Adam(net.parameters(), lr=1e-3, fused=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    with netvitals.watch(net, opt, every=1, vitals=["gradients"]) as seen:
        loss = F.mse_loss(net(batch[0]), batch[1])
        grads = torch.autograd.grad(loss, list(net.parameters()), retain_graph=True)
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
        seen.step(loss)
    (read,) = [r.value for r in seen.measurements if (r.site, r.metric) == ("model", "grad_norm")]
    assert read == pytest.approx(math.hypot(*(float(g.norm()) for g in grads)), rel=1e-5)


class Spectral(nn.Module):
    """A layer in Fourier space, whose weight is complex."""

    def __init__(self):
        super().__init__()
        self.mix = nn.Parameter(0.1 * torch.randn(5, 5, dtype=torch.cfloat))
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        return self.head(torch.fft.irfft(torch.fft.rfft(x) @ self.mix, n=8))


def test_complex_parameters_count():
    torch.manual_seed(0)
    net, x, y = Spectral(), torch.randn(16, 8), torch.randn(16, 2)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    with netvitals.watch(net, opt, every=1, vitals=["gradients", "drift", "rank"]) as seen:
        loss = F.mse_loss(net(x), y)
        loss.backward()
        grads = {n: p.grad.clone() for n, p in net.named_parameters()}
        old = {n: p.detach().clone() for n, p in net.named_parameters()}
        opt.step()
        seen.step(loss)
    read = {(r.site, r.metric): r.value for r in seen.measurements if r.vital == "gradients"}
    for name, wanted in (("weight_norm", old), ("grad_norm", grads)):
        each = {n: float(t.abs().double().square().sum()) ** 0.5 for n, t in wanted.items()}
        assert {n: read[n, name] for n in each} == pytest.approx(each, rel=1e-6)
        assert read["model", name] == pytest.approx(math.hypot(*each.values()), rel=1e-6)
    assert read["mix", "update_norm"] == pytest.approx(0.1 * read["mix", "grad_norm"], rel=1e-5)
    # to first order the loss falls by the rate times the squared gradient
    assert read["model", "descent"] == pytest.approx(0.1 * read["model", "grad_norm"] ** 2, rel=1e-4)
    assert [why for place, why in seen.skipped.items() if "mix" in place and "complex" in why]


@pytest.mark.parametrize("shape", [(3, 5), (1000, 1001), (64, 64, 3, 3), (4, 8, 4096), (1, 1), (0, 3)])
@pytest.mark.parametrize("layout", ["contiguous", "transposed", "every other"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.cfloat])
def test_norms_and_inner_products_against_float64(shape, layout, dtype):
    torch.manual_seed(0)
    a, b = (torch.randn(shape, dtype=dtype) * 0.02 + 0.01 for _ in range(2))
    if layout != "contiguous":
        a, b = (t.transpose(0, 1) if layout == "transposed" else t[..., ::2] for t in (a, b))
    wide = lambda t: t.to(torch.cdouble if t.is_complex() else torch.float64)
    exact = float(torch.linalg.vector_norm(wide(a)))
    assert float(stats.norm(a)) == pytest.approx(exact, rel=1e-6)
    assert [float(n) for n in stats.norms([a, b])] == pytest.approx(
        [float(torch.linalg.vector_norm(wide(t))) for t in (a, b)], rel=1e-6
    )
    product = float((wide(a).conj() * wide(b)).real.sum())
    size = float((wide(a).abs() * wide(b).abs()).sum())
    assert abs(float(stats.inner(a, b)) - product) <= 1e-6 * size


def test_the_norm_of_a_wide_layer_is_good_to_a_millionth():
    w = torch.randn(2048, 8192, generator=torch.Generator().manual_seed(0))
    exact = float(torch.linalg.vector_norm(w, dtype=torch.float64))
    assert float(stats.norm(w)) == pytest.approx(exact, rel=1e-6)
    assert float(stats.row_norms(w.reshape(1, -1))) == pytest.approx(exact, rel=1e-6)
    wide = nn.Linear(8192, 1024, bias=False)
    opt = torch.optim.SGD(wide.parameters(), lr=1e-3)
    with netvitals.watch(wide, opt, every=1, vitals=["gradients"]) as seen:
        loss = wide(torch.randn(2, 8192)).square().mean()
        exact = float(torch.linalg.vector_norm(wide.weight.detach(), dtype=torch.float64))
        loss.backward()
        wanted = float(torch.linalg.vector_norm(wide.weight.grad, dtype=torch.float64))
        opt.step()
        seen.step(loss)
    read = {r.metric: r.value for r in seen.measurements if r.site == "weight"}
    assert (read["weight_norm"], read["grad_norm"]) == pytest.approx((exact, wanted), rel=1e-6)
