"""γ, T, S and M of a module: against finite differences, against definitions, and against the stack of matrices."""

import copy
import dataclasses

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import reader_models
from netvitals import saddle


def moved(net, x, y, h):
    """The network after a step of gradient flow on half the squared error."""
    net = copy.deepcopy(net)
    loss = 0.5 * (net(x).flatten(1) - y).square().sum(1).mean()
    with torch.no_grad():
        for p, g in zip(net.parameters(), torch.autograd.grad(loss, list(net.parameters()))):
            p.sub_(h * g)
    return net


NETS = {
    "with biases": lambda: nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 6), nn.GELU(), nn.Linear(6, 2)),
    "convolution": lambda: nn.Sequential(
        nn.Unflatten(1, (1, 3)), nn.Conv1d(1, 4, 2), nn.Tanh(), nn.Flatten(), nn.Linear(8, 2)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NETS)
def test_the_rate_of_the_signal_is_that_of_gradient_flow(name):
    torch.manual_seed(0)
    net = NETS[name]().double()
    x = torch.randn(40, 3, dtype=torch.float64)
    y = torch.stack([x[:, 0] * 2, x[:, 1] - x[:, 2]], 1)
    found, h = saddle.signal_energy(net, (x, y)), 1e-5
    ahead, behind = (saddle.signal_energy(moved(net, x, y, s * h), (x, y)).gamma for s in (1, -1))
    assert found.gamma_dot == pytest.approx((ahead - behind) / (2 * h), rel=1e-7)
    u, s, v = torch.linalg.svd(y.T @ x / 40)
    gamma = ((net(x) @ u[:, 0]) * (x @ v[0])).mean()
    grads = torch.autograd.grad(gamma, list(net.parameters()))
    assert found.gamma == pytest.approx(float(gamma.detach()), rel=1e-12) and found.correlation == pytest.approx(
        float(s[0])
    )
    assert found.energy == pytest.approx(sum(float(g.square().sum()) for g in grads), rel=1e-12)
    assert any(n.endswith("bias") and e > 0 for n, e in found.by_parameter.items())
    weights = [m.weight.detach().flatten(1) for m in net.modules() if hasattr(m, "weight")]
    assert found.scale == pytest.approx(max(float(torch.linalg.matrix_norm(w, 2)) for w in weights))


def test_a_stack_without_biases_has_the_same_numbers():
    from netvitals.saddle.measure.signal import stack_signal
    from netvitals.saddle.students.task import Sample

    torch.manual_seed(0)
    task = saddle.teacher("tanh", 4)
    w = [torch.randn(1, 5, 4).double() / 4, torch.randn(1, 5, 5).double() / 4, torch.randn(1, 1, 5).double() / 4]
    x = torch.randn(2000, 4).double()
    x = (x - x.mean(0)) @ torch.linalg.inv(torch.linalg.cholesky((x - x.mean(0)).T @ (x - x.mean(0)) / 2000)).T
    y = task.target(x)[:, :1]
    v = (y.T @ x / 2000)[0]
    task = dataclasses.replace(task, directions=(v / v.norm())[None])
    stack = stack_signal(w, task, Sample(x, torch.full((2000,), 1 / 2000).double()), 2)
    shapes = ((4, 5), (5, 5), (5, 1))
    net = nn.Sequential(*[m for a, b in shapes for m in (nn.Linear(a, b, bias=False), nn.Tanh())][:-1]).double()
    for layer, m in zip(net[::2], w):
        layer.weight.data.copy_(m[0])
    found = saddle.signal_energy(net, (x, y), only=["0", "2"])
    sign = 1 if found.gamma * float(stack.gamma[0]) > 0 else -1
    assert found.energy == pytest.approx(float(stack.energy[0]), rel=1e-6)
    assert found.gamma == pytest.approx(sign * float(stack.gamma[0]), rel=1e-6)
    assert found.scale == pytest.approx(float(stack.scale[0]), rel=1e-9)


REFUSED = {"gpt": "not token ids", "llama": "not token ids"}


@pytest.mark.parametrize("name", reader_models.NAMES)
def test_six_architectures(name):
    model, _, batch = reader_models.make(name)
    if name in REFUSED:
        with pytest.raises(ValueError, match=REFUSED[name]):
            saddle.signal_energy(model, batch)
        return
    state = {k: v.clone() for k, v in model.state_dict().items()}
    found = saddle.signal_energy(model, batch, mode="eval")
    assert found.energy > 0 and found.scale > 0 and found.plot().svg()
    assert len(str(found).splitlines()) <= 45 and len(found.to_frame()) == len(found.by_parameter)
    assert all(torch.equal(v, state[k]) for k, v in model.state_dict().items())


def test_classes_are_one_hot_less_their_mean():
    net, x, y = nn.Linear(3, 4).double(), torch.randn(20, 3).double(), torch.arange(20) % 4
    assert saddle.signal_energy(net, (x, y)) == saddle.signal_energy(net, (x, F.one_hot(y, 4).double() - 0.25))
    with pytest.raises(ValueError, match="the same shape"):
        saddle.signal_energy(net, (x, torch.randn(20, 3).double()))
    with pytest.raises(ValueError, match=r"give the batch as \(x, y\)"):
        saddle.signal_energy(net, x)
