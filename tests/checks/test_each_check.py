"""Every check: a loop on which it fails, one on which it passes, and none without data."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv
from netvitals.checks import CHECKS
from netvitals.findings import diagnose


def mlp(*end, out=3):
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, out), *end)


def classes(n=48):
    x = torch.randn(n, 6)
    return x, x[:, :3].argmax(1)


def numbers(n=48, scale=1.0):
    x = torch.randn(n, 6)
    return x, scale * (x[:, :1] + 0.5 * x[:, 1:2])


def trained(net, loss, data=classes, optimizer=None, steps=60, zero=True, step=True, after=None, **options):
    """A plain loop under watch."""
    optimizer = optimizer or torch.optim.SGD(net.parameters(), lr=0.05)
    with nv.watch(net, optimizer, vitals=["optimizer"], forecasts=False, **options) as watch:
        for i in range(steps):
            x, y = data()
            if zero:
                optimizer.zero_grad()
            value = loss(net(x), y)
            if step == "early":
                optimizer.step()
            value.backward()
            if zero == "late":
                optimizer.zero_grad()
            if step is True:
                optimizer.step()
            watch.step(value)
            if after is not None:
                after(net, i)
    return watch


class Tokens(nn.Module):
    """A language model over 12 tokens; ``causal`` hides later ones, ``positions`` tells their order."""

    def __init__(self, causal=True, positions=True):
        super().__init__()
        self.embed, self.place = nn.Embedding(12, 16), nn.Embedding(10, 16)
        self.attend, self.out = nn.MultiheadAttention(16, 2, batch_first=True), nn.Linear(16, 12)
        self.causal, self.positions = causal, positions

    def forward(self, x):
        h = self.embed(x) + (self.place(torch.arange(x.shape[1])) if self.positions else 0)
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1]) if self.causal else None
        return self.out(h + self.attend(h, h, h, attn_mask=mask, need_weights=False)[0])


def sentences():
    tokens = torch.randint(0, 12, (8, 9))
    return tokens[:, :-1], tokens[:, 1:]


def copied():
    tokens = torch.randint(0, 12, (8, 8))
    return tokens, tokens


def padded():
    lengths = torch.randint(3, 7, (16, 1))
    tokens = torch.where(torch.arange(9) < lengths, torch.randint(1, 12, (16, 9)), 0)
    return tokens[:, :-1], tokens[:, 1:]


def over_tokens(**options):
    return lambda out, y: F.cross_entropy(out.flatten(0, 1), y.flatten(), **options)


class Listed(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.layers, self.out = kind([nn.Linear(6, 6), nn.Linear(6, 6)]), nn.Linear(6, 3)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x).relu()
        return self.out(x)


class Rounded(nn.Module):
    def __init__(self, straight):
        super().__init__()
        self.first, self.last, self.straight = nn.Linear(6, 8), nn.Linear(8, 3), straight

    def forward(self, x):
        h = self.first(x)
        return self.last(h + (h.round() - h).detach() if self.straight else h.round())


class Spare(nn.Module):
    def __init__(self, used):
        super().__init__()
        self.body, self.spare, self.used = mlp(), nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3)), used

    def forward(self, x):
        return self.body(x) + (self.spare(x) if self.used else 0)


class Mixing(nn.Module):
    def __init__(self, mixes):
        super().__init__()
        self.body, self.mixes = mlp(), mixes

    def forward(self, x):
        out = self.body(x)
        return out - out.mean() if self.mixes else out - out.mean(1, keepdim=True)


def drops(p):
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(p), nn.Linear(16, 3))


def evaluated(net, i, right):
    if i % 10 == 9:
        net.train(not right)
        with torch.no_grad():
            net(torch.randn(8, 6)), net(torch.randn(8, 6))
        net.train()


def left_in_eval(net, i):
    net.eval()


def parts(net, keep):
    """An optimizer that holds all layers, or all but one."""
    return torch.optim.SGD([p for n, p in net.named_parameters() if keep or not n.startswith("0.")], lr=0.05)


def optimizer_of_another(net):
    """An optimizer that keeps one of its tensors, and holds copies of the others."""
    copies = [nn.Parameter(p.detach().clone()) for p in list(net.parameters())[:-1]]
    return torch.optim.SGD([*copies, list(net.parameters())[-1]], lr=0.05)


def with_optimizer(make, model=mlp):
    net = model()
    return trained(net, F.cross_entropy, optimizer=make(net))


def grown(detach):
    net, total = mlp(), torch.zeros(())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    with nv.watch(net, optimizer, vitals=["optimizer"], forecasts=False) as watch:
        for _ in range(40):
            x, y = classes(8)
            total = 0.9 * (total.detach() if detach else total) + F.cross_entropy(net(x), y)
            optimizer.zero_grad()
            total.backward(retain_graph=True, inputs=[net[2].bias])
            optimizer.step()
            watch.step(total)
    return watch


def recreated(once):
    net = mlp()
    optimizer = torch.optim.Adam(net.parameters())
    with nv.watch(net, vitals=["optimizer"], forecasts=False) as watch:
        for _ in range(60):
            x, y = classes()
            optimizer = optimizer if once else torch.optim.Adam(net.parameters())
            optimizer.zero_grad()
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            watch.step(loss)
    return watch


class Tied(nn.Module):
    def __init__(self, kept):
        super().__init__()
        self.embed, self.out = nn.Embedding(12, 16), nn.Linear(16, 12, bias=False)
        self.out.weight = self.embed.weight if kept else nn.Parameter(self.embed.weight.detach().clone())

    def forward(self, x):
        return self.out(self.embed(x))


def random_labels(n=48):
    return torch.randn(n, 6), torch.randint(0, 3, (n,))


def one_class(n=48):
    x, y = classes(n)
    return x[y == 0], y[y == 0]


_turn = [0]


def sorted_classes(n=48):
    _turn[0] += 1
    x, y = classes(200)
    keep = y == _turn[0] % 3
    return x[keep], y[keep]


def leaking(n=48):
    x = torch.randn(n, 6)
    y = torch.randint(0, 2, (n, 1)).float()
    x[:, 4] = y[:, 0]
    return x, y


def constant(net, value=0.0):
    with torch.no_grad():
        for p in net.parameters():
            p.fill_(value)
    return net


def binary(high=1.0, n=48):
    x = torch.randn(n, 6)
    return x, (x[:, :1] > 0).float() * high


def speech():
    """Logits of 12 frames, and labels of three letters."""
    return torch.randn(8, 12, 6), torch.randint(1, 5, (8, 3))


def ctc(normalised=True, lowest=0):
    def loss(out, y):
        out = out.transpose(0, 1)
        lengths = torch.full((8,), 12), torch.full((8,), 3)
        return F.ctc_loss(out.log_softmax(2) if normalised else out, y - lowest, *lengths)

    return loss


def masked(reduction):
    def loss(out, y):
        mask = (torch.arange(len(y)) % 3 > 0).float()
        return (F.cross_entropy(out, y, reduction=reduction) * mask).sum() / mask.sum()

    return loss


def policy(detached):
    """Actor and critic with one loss: the critic's output is the fourth."""

    def loss(out, y):
        logits, value = out[:, :3], out[:, 3]
        chosen = torch.distributions.Categorical(logits=logits).log_prob(y)
        advantage = torch.rand(len(y)) - (value.detach() if detached else value)
        return -(chosen * advantage).mean() + (torch.rand(len(y)) - value).square().mean()

    return loss


def q_learning(detached):
    net = mlp()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    with nv.watch(net, optimizer, vitals=["optimizer"], forecasts=False) as watch:
        for _ in range(20):
            x, a = classes()
            best = net(torch.randn(48, 6)).max(1).values
            target = torch.rand(48) + 0.9 * (best.detach() if detached else best)
            loss = F.mse_loss(net(x).gather(1, a[:, None]).squeeze(1), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)
    return watch


def frozen(right):
    net = mlp()
    if right:
        net[0].requires_grad_(False)
    else:
        net[0].requires_grad = False
    return net


def repeated(copies):
    layer = nn.Linear(6, 6)
    return nn.Sequential(*([nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6)] if copies else [layer, nn.ReLU(), layer]))


def two_networks(right):
    """A generator and a discriminator, each cleared after its own step, or before its own backward pass."""
    first, second = mlp(out=6), mlp()
    a, b = (torch.optim.SGD(net.parameters(), lr=0.01) for net in (first, second))
    with nv.watch({"first": first, "second": second}, [a, b], vitals=["optimizer"], forecasts=False) as watch:
        for _ in range(20):
            x, y = classes()
            if right:
                b.zero_grad()
            F.cross_entropy(second(x), y).backward()
            b.step()
            b.zero_grad()
            a.zero_grad()
            loss = F.cross_entropy(second(first(x)), y)
            loss.backward()
            a.step()
            watch.step(loss)
    return watch


class Dropped(nn.Module):
    def __init__(self, right):
        super().__init__()
        self.body, self.drop, self.right = mlp(), nn.Dropout(0.1), right

    def forward(self, x):
        return F.dropout(self.drop(self.body(x)), 0.5, training=self.training or not self.right)


class Taught(nn.Module):
    def __init__(self, right):
        super().__init__()
        self.student, self.teacher, self.right = mlp(), drops(0.3).requires_grad_(False), right

    def forward(self, x):
        self.teacher.train(not self.right)
        with torch.no_grad():
            target = self.teacher(x)
        return self.student(x) + 0 * target


def evaluated_at(net, i, scale):
    if i % 10 == 9:
        net.eval()
        with torch.no_grad():
            net(scale * torch.randn(8, 6)), net(scale * torch.randn(8, 6))
        net.train()


class Two(nn.Module):
    def __init__(self, used):
        super().__init__()
        self.a, self.b, self.used = mlp(), mlp(), used

    def forward(self, x):
        return self.a(x[..., :6]) + (self.b(x[..., 6:]) if self.used else self.b(0 * x[..., 6:]))


class Pair(nn.Module):
    def __init__(self, used):
        super().__init__()
        self.net = Two(used)

    def forward(self, x, z):
        return self.net(torch.cat([x, z], 1))


def with_noise(used):
    net = Pair(used)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    with nv.watch(net, optimizer, vitals=["optimizer"], forecasts=False) as watch:
        for _ in range(20):
            x, y = classes()
            loss = F.cross_entropy(net(x, torch.randn(48, 6)), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)
    return watch


class Reader(nn.Module):
    """Classifies texts with attention; ``masked`` hides the padding."""

    def __init__(self, masked):
        super().__init__()
        self.embed, self.out, self.masked = nn.Embedding(12, 16), nn.Linear(16, 3), masked
        self.attend = nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(self, x):
        h, pad = self.embed(x), x == 0
        h = self.attend(h, h, h, key_padding_mask=pad if self.masked else None, need_weights=False)[0]
        return self.out(h[:, 0])


def texts():
    lengths = torch.randint(2, 9, (32, 1))
    x = torch.where(torch.arange(10) < lengths, torch.randint(1, 12, (32, 10)), 0)
    return x, x[:, 0] % 3


def photographs(right):
    def batch():
        smooth = F.avg_pool2d(torch.randn(8, 3, 20, 20), 5, 1)
        pixels = smooth.permute(0, 2, 3, 1).contiguous()
        return (pixels.permute(0, 3, 1, 2) if right else pixels.view(8, 3, 16, 16)), torch.randint(0, 3, (8,))

    return batch


def images():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))


def rows_of_classes():
    return torch.randn(48, 6), F.one_hot(torch.randint(0, 3, (48,)), 3).float()


bce = F.binary_cross_entropy_with_logits
one = lambda *end: mlp(*end, out=1)
CASES = {
    "infinite gradient": (
        lambda: trained(one(), lambda o, y: ((o - o.detach()).square() + 0 * y).sqrt().mean(), numbers, steps=12),
        lambda: trained(one(), lambda o, y: ((o - y).square() + 1e-6).sqrt().mean(), numbers, steps=12),
    ),
    "equal units": (
        lambda: trained(constant(mlp(), 0.1), F.cross_entropy),
        lambda: trained(mlp(), F.cross_entropy),
    ),
    "all gradients zero": (
        lambda: trained(constant(nn.Sequential(mlp(), nn.ReLU()), -0.1), F.cross_entropy),
        lambda: trained(mlp(), F.cross_entropy),
    ),
    "labels out of range": (
        lambda: trained(one(), bce, lambda: binary(2.0)),
        lambda: trained(one(), bce, binary),
    ),
    "class without weight": (
        lambda: trained(mlp(), lambda o, y: F.cross_entropy(o, y, weight=torch.tensor([1.0, 0.0, 2.0]))),
        lambda: trained(mlp(), lambda o, y: F.cross_entropy(o, y, weight=torch.tensor([1.0, 0.5, 2.0]))),
    ),
    "blank among the labels": (
        lambda: trained(nn.Linear(6, 5), ctc(lowest=1), speech),
        lambda: trained(nn.Linear(6, 5), ctc(), speech),
    ),
    "mask after the mean": (
        lambda: trained(mlp(), masked("mean")),
        lambda: trained(mlp(), masked("none")),
    ),
    "advantage with a gradient": (
        lambda: trained(mlp(out=4), policy(False)),
        lambda: trained(mlp(out=4), policy(True)),
    ),
    "target with a gradient": (
        lambda: q_learning(False),
        lambda: trained(Two(True), lambda o, y: F.mse_loss(o, o.roll(1, 0)), lambda: (torch.randn(9, 12), None)),
    ),
    "freezing without effect": (
        lambda: trained(frozen(False), F.cross_entropy),
        lambda: trained(frozen(True), F.cross_entropy),
    ),
    "shared module": (
        lambda: trained(repeated(False), F.cross_entropy, lambda: (torch.randn(9, 6), torch.arange(9) % 6)),
        lambda: trained(repeated(True), F.cross_entropy, lambda: (torch.randn(9, 6), torch.arange(9) % 6)),
    ),
    "gradients of another loss": (lambda: two_networks(False), lambda: two_networks(True)),
    "dropout in eval mode": (
        lambda: trained(Dropped(False), F.cross_entropy),
        lambda: trained(Dropped(True), F.cross_entropy),
    ),
    "teacher in train mode": (
        lambda: trained(Taught(False), F.cross_entropy),
        lambda: trained(Taught(True), F.cross_entropy),
    ),
    "evaluation on another scale": (
        lambda: trained(mlp(), F.cross_entropy, after=lambda net, i: evaluated_at(net, i, 255.0)),
        lambda: trained(mlp(), F.cross_entropy, after=lambda net, i: evaluated_at(net, i, 1.5)),
    ),
    "input ignored": (lambda: with_noise(False), lambda: with_noise(True)),
    "padding changes the output": (
        lambda: trained(Reader(False), F.cross_entropy, texts),
        lambda: trained(Reader(True), F.cross_entropy, texts),
    ),
    "scrambled images": (
        lambda: trained(images(), F.cross_entropy, photographs(False)),
        lambda: trained(images(), F.cross_entropy, photographs(True)),
    ),
    "regression on classes": (
        lambda: trained(mlp(), F.mse_loss, rows_of_classes),
        lambda: trained(one(), F.mse_loss, numbers),
    ),
    "double softmax": (lambda: trained(mlp(nn.Softmax(1)), F.cross_entropy), lambda: trained(mlp(), F.cross_entropy)),
    "double sigmoid": (lambda: trained(one(nn.Sigmoid()), bce, leaking), lambda: trained(one(), bce, leaking)),
    "missing log-softmax": (
        lambda: trained(mlp(), F.nll_loss),
        lambda: trained(mlp(nn.LogSoftmax(1)), F.nll_loss),
    ),
    "softmax over one class": (
        lambda: trained(one(nn.Softmax(1)), F.mse_loss, numbers),
        lambda: trained(mlp(nn.Softmax(1)), lambda o, y: F.nll_loss(o.log(), y)),
    ),
    "softmax dimension": (
        lambda: trained(mlp(nn.Softmax(0)), lambda o, y: F.nll_loss(o.log(), y)),
        lambda: trained(mlp(nn.Softmax(1)), lambda o, y: F.nll_loss(o.log(), y)),
    ),
    "output activation": (
        lambda: trained(one(nn.ReLU()), F.mse_loss, numbers),
        lambda: trained(one(nn.ReLU()), F.mse_loss, lambda: (numbers()[0], torch.rand(48, 1))),
    ),
    "broadcast": (
        lambda: trained(one(), lambda o, y: ((o - y[:, 0]) ** 2).mean(), numbers),
        lambda: trained(one(), lambda o, y: ((o - y) ** 2).mean(), numbers),
    ),
    "loss sign": (lambda: trained(mlp(), lambda o, y: -F.cross_entropy(o, y)), lambda: trained(mlp(), F.cross_entropy)),
    "padding counted": (
        lambda: trained(Tokens(), over_tokens(), padded),
        lambda: trained(Tokens(), over_tokens(ignore_index=0), padded),
    ),
    "graph grows": (lambda: grown(False), lambda: grown(True)),
    "no optimizer step": (
        lambda: trained(mlp(), F.cross_entropy, step=False),
        lambda: trained(mlp(), F.cross_entropy),
    ),
    "zero gradient": (
        lambda: trained(Rounded(False), F.cross_entropy),
        lambda: trained(Rounded(True), F.cross_entropy),
    ),
    "unused layers": (lambda: trained(Spare(False), F.cross_entropy), lambda: trained(Spare(True), F.cross_entropy)),
    "stacked linear layers": (
        lambda: trained(nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 3)), F.cross_entropy, random_labels),
        lambda: trained(mlp(), F.cross_entropy, random_labels),
    ),
    "batch norm on few examples": (
        lambda: trained(
            nn.Sequential(nn.Conv1d(1, 4, 3), nn.BatchNorm1d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3)),
            F.cross_entropy,
            lambda: (torch.randn(1, 1, 6), torch.randint(0, 3, (1,))),
        ),
        lambda: trained(mlp(), F.cross_entropy, random_labels),
    ),
    "cut off": (
        lambda: trained(mlp(), lambda o, y: F.cross_entropy(o.detach().requires_grad_(), y)),
        lambda: trained(mlp(), F.cross_entropy),
    ),
    "loss clamped": (
        lambda: trained(mlp(), lambda o, y: F.cross_entropy(o, y).clamp(max=1.0)),
        lambda: trained(mlp(), F.cross_entropy),
    ),
    "loss mismatch": (
        lambda: trained(one(nn.Sigmoid()), lambda o, y: F.binary_cross_entropy(0.8 * y + 0.1, o), leaking),
        lambda: trained(one(nn.Sigmoid()), F.binary_cross_entropy, leaking),
    ),
    "summed loss": (
        lambda: trained(mlp(), lambda o, y: F.cross_entropy(o, y, reduction="sum"), random_labels),
        lambda: trained(mlp(), F.cross_entropy, random_labels),
    ),
    "precision": (
        lambda: trained(mlp().half(), F.cross_entropy, lambda: (torch.randn(8, 6).half(), torch.randint(0, 3, (8,)))),
        lambda: trained(mlp(), F.cross_entropy, random_labels),
    ),
    "strong dropout": (
        lambda: trained(drops(0.95), F.cross_entropy, random_labels),
        lambda: trained(drops(0.2), F.cross_entropy, random_labels),
    ),
    "gradients gone": (
        lambda: trained(mlp(), F.cross_entropy, zero="late"),
        lambda: trained(mlp(), F.cross_entropy),
    ),
    "step before backward": (
        lambda: trained(nn.Linear(6, 3), F.cross_entropy, step="early"),
        lambda: trained(mlp(), F.cross_entropy),
    ),
    "gradients carried over": (
        lambda: trained(mlp(), F.cross_entropy, zero=False),
        lambda: trained(mlp(), F.cross_entropy),
    ),
    "not in the optimizer": (
        lambda: with_optimizer(lambda net: parts(net, False)),
        lambda: with_optimizer(lambda net: parts(net, True)),
    ),
    "not registered": (
        lambda: trained(Listed(list), F.cross_entropy),
        lambda: trained(Listed(nn.ModuleList), F.cross_entropy),
    ),
    "stale parameters": (
        lambda: with_optimizer(optimizer_of_another),
        lambda: with_optimizer(lambda net: parts(net, True)),
    ),
    "update lost": (
        lambda: with_optimizer(lambda net: torch.optim.SGD(net.parameters(), lr=1e-12)),
        lambda: with_optimizer(lambda net: parts(net, True)),
    ),
    "optimizer recreated": (lambda: recreated(False), lambda: recreated(True)),
    "tying lost": (
        lambda: trained(Tied(False), over_tokens(), sentences),
        lambda: trained(Tokens(), over_tokens(), sentences) and None,  # nothing to compare: asked of untied models only
    ),
    "train mode in evaluation": (
        lambda: trained(drops(0.2), F.cross_entropy, after=lambda net, i: evaluated(net, i, False)),
        lambda: trained(drops(0.2), F.cross_entropy, after=lambda net, i: evaluated(net, i, True)),
    ),
    "left in eval mode": (
        lambda: trained(drops(0.2), F.cross_entropy, after=left_in_eval),
        lambda: trained(drops(0.2), F.cross_entropy),
    ),
    "constant labels": (
        lambda: trained(mlp(), F.cross_entropy, one_class),
        lambda: trained(mlp(), F.cross_entropy),
    ),
    "sorted labels": (
        lambda: trained(mlp(), F.cross_entropy, sorted_classes),
        lambda: trained(mlp(), F.cross_entropy),
    ),
    "label is input": (
        lambda: trained(Tokens(), over_tokens(), copied),
        lambda: trained(Tokens(), over_tokens(), sentences),
    ),
    "label leak": (
        lambda: trained(one(), bce, leaking),
        lambda: trained(mlp(), F.cross_entropy),
    ),
    "future leak": (
        lambda: trained(Tokens(causal=False), over_tokens(), sentences),
        lambda: trained(Tokens(), over_tokens(), sentences),
    ),
    "order ignored": (
        lambda: trained(Tokens(positions=False), over_tokens(), sentences),
        lambda: trained(Tokens(), over_tokens(), sentences),
    ),
    "examples mixed": (
        lambda: trained(Mixing(True), F.cross_entropy),
        lambda: trained(Mixing(False), F.cross_entropy),
    ),
    "targets not scaled": (
        lambda: trained(one(), F.mse_loss, lambda: numbers(scale=1e3)),
        lambda: trained(one(), F.mse_loss, numbers),
    ),
    "targets not finite": (
        lambda: trained(one(), F.mse_loss, lambda: (numbers()[0], numbers()[1].log())),
        lambda: trained(one(), F.mse_loss, numbers),
    ),
}


def test_every_check_has_its_cases():
    assert set(CASES) == set(CHECKS) - {"replicas differ"}  # tests/stacks/test_ranks.py


@pytest.mark.parametrize("name", CASES)
def test_a_check_fails_passes_and_says_when_it_has_no_data(name):
    torch.manual_seed(0)
    broken, healthy = CASES[name]
    failed = broken().findings()
    status = {check.name: check.status for check in failed.checks}
    assert status[name] == "failed" and name in [f.rule for f in failed.all], str(failed)
    watch = healthy()
    if watch is not None:
        passed = watch.findings()
        assert {c.name: c.status for c in passed.checks}[name] == "passed", str(passed)
        assert name not in [f.rule for f in passed.all]
    asked = {c.name: c.status for c in diagnose([]).checks}
    assert asked[name] == "not enough data"


def test_the_same_batch_again_and_again_is_no_label_leak():
    torch.manual_seed(0)
    batch = classes(256)
    watch = trained(mlp(), F.cross_entropy, lambda: batch)
    assert not [c for c in watch.findings().checks if c.status == "failed" and c.name in CHECKS]


def test_a_healthy_loop_fails_no_check_and_is_the_same_bit_for_bit():
    def run(**options):
        torch.manual_seed(1)
        net = drops(0.3)
        watch = trained(net, F.cross_entropy, **options)
        return watch, [p.detach().clone() for p in net.parameters()], torch.get_rng_state()

    watched, plain = run(), run(checks=False)
    assert all(torch.equal(a, b) for a, b in zip(watched[1], plain[1])) and torch.equal(watched[2], plain[2])
    assert not [c for c in watched[0].findings().checks if c.status == "failed"]
    assert not watched[0]._checks.why and torch.autograd.backward.__module__ == "torch.autograd"


def test_a_failing_check_leaves_the_training_alone(monkeypatch):
    from netvitals.checks import losses

    def oops(*_):
        raise RuntimeError("oops")

    monkeypatch.setattr(losses, "walk", oops)
    watch = trained(mlp(), F.cross_entropy)
    assert "oops" in watch._checks.why["checks"]


def alarms_of(watch):
    return {f.rule: f for f in watch.findings().alarming}


def test_a_pole_that_is_met_after_the_first_steps_is_named():
    torch.manual_seed(0)
    step = iter(range(1000))

    def loss(out, y):
        cosine = torch.tanh(out.mean(1)) * 0.5
        if next(step) == 70:
            cosine = cosine - cosine.detach() + 1.0
        return torch.acos(cosine).mean()

    found = alarms_of(trained(mlp(), loss, steps=80))
    assert found["infinite gradient"].since == 71 and "acos" in found["infinite gradient"].what
    diverging = alarms_of(trained(one(), lambda out, y: (out.square() + 1).sqrt().square().sum() * 1e6, steps=80))
    assert "infinite gradient" not in diverging  # the loss grew before


def test_rows_that_end_alike_by_chance_are_no_padding():
    torch.manual_seed(0)

    def sometimes():
        x = torch.randint(1, 12, (4, 9))
        if torch.rand(()) < 0.3:
            x[:, int(torch.randint(4, 7, ())) :] = torch.randint(1, 12, ())
            x[0, -1] = 0
        return x[:, :-1], x[:, 1:]

    assert "padding counted" not in alarms_of(trained(Tokens(), over_tokens(), sometimes))


def test_scores_of_pairs_of_examples_may_depend_on_each_other():
    torch.manual_seed(0)

    class Pairs(nn.Module):
        def __init__(self):
            super().__init__()
            self.map = nn.Linear(6, 8)

        def forward(self, x):
            return self.map(x) @ self.map(x).T

    loss = lambda scores, y: F.cross_entropy(scores, torch.arange(len(scores)))
    assert "examples mixed" not in alarms_of(trained(Pairs(), loss, lambda: classes(16)))


def test_a_network_that_is_mostly_frozen_may_begin_with_a_large_loss():
    def first_loss(frozen):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3))
        with torch.no_grad():
            net[2].weight *= 400
        net[2].requires_grad_(not frozen)
        opt = torch.optim.Adam([p for p in net.parameters() if p.requires_grad], lr=5e-3)
        with nv.watch(net, opt, every=5) as watch:
            for _ in range(60):
                x, y = classes()
                opt.zero_grad()
                loss = F.cross_entropy(net(x), y)
                loss.backward()
                opt.step()
                watch.step(loss)
        return alarms_of(watch)

    assert "initialisation too large" in first_loss(False) and "initialisation too large" not in first_loss(True)


def test_copies_of_the_model_that_are_trained_inside_are_not_new_layers():
    torch.manual_seed(0)
    net = mlp()
    opt = torch.optim.Adam(net.parameters(), lr=5e-3)
    with nv.watch(net, opt, vitals=["optimizer"], forecasts=False) as watch:
        for _ in range(30):
            learner = copy.deepcopy(net)
            x, y = classes()
            loss = F.cross_entropy(learner(x), y)
            loss.backward()
            for p, q in zip(net.parameters(), learner.parameters()):
                p.grad = q.grad
            opt.step()
            watch.step(loss.detach())
    assert "not registered" not in alarms_of(watch)


def test_labels_that_are_handed_in_for_teacher_forcing_are_no_copy():
    torch.manual_seed(0)

    class Forced(nn.Module):
        def __init__(self, shifted):
            super().__init__()
            self.embed, self.cell, self.out = nn.Embedding(13, 16), nn.GRU(16, 16, batch_first=True), nn.Linear(16, 12)
            self.shifted = shifted

        def forward(self, y):
            seen = torch.cat([torch.full_like(y[:, :1], 12), y[:, :-1]], 1) if self.shifted else y
            return self.out(self.cell(self.embed(seen))[0])

    for shifted in (True, False):
        net = Forced(shifted)
        opt = torch.optim.Adam(net.parameters(), lr=1e-2)
        with nv.watch(net, opt, vitals=["optimizer"], forecasts=False) as watch:
            for _ in range(20):
                y = torch.randint(0, 12, (16, 6))
                loss = F.cross_entropy(net(y).flatten(0, 1), y.flatten())
                opt.zero_grad()
                loss.backward()
                opt.step()
                watch.step(loss)
        assert ("label is input" in alarms_of(watch)) is not shifted


def test_a_loss_that_is_not_a_number_is_named_though_its_gradient_is_finite():
    torch.manual_seed(0)
    found = alarms_of(trained(one(), lambda out, y: torch.log(out - 3).mean(), numbers, steps=20))
    assert "The loss is not finite because of log of 0 or less" in found["infinite gradient"].what


def test_the_logarithm_of_a_normaliser_has_no_sign_of_its_own():
    torch.manual_seed(0)

    def list_mle(out, y):
        scores = out.exp()
        return -(out - torch.log(scores.flip(1).cumsum(1).flip(1) + 1e-10)).sum(1).mean()

    assert "loss sign" not in alarms_of(trained(mlp(), list_mle))


def test_rows_that_are_put_back_after_each_step_are_no_lost_update():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Embedding(12, 8), nn.Flatten(), nn.Linear(8 * 9, 12))
    kept = net[0].weight.detach().clone()

    def back(model, i):
        with torch.no_grad():
            model[0].weight[:10] = kept[:10]

    data = lambda: (torch.randint(0, 12, (16, 9)), torch.randint(0, 12, (16,)))
    assert "update lost" not in alarms_of(trained(net, F.cross_entropy, data, after=back))


def test_a_frozen_average_of_the_weights_is_no_frozen_network():
    torch.manual_seed(0)
    net = mlp()
    ema = copy.deepcopy(net).requires_grad_(False)
    opt = torch.optim.SGD(net.parameters(), lr=1e-4)
    with nv.watch({"net": net, "ema": ema}, opt, every=5) as watch:
        for _ in range(40):
            x, y = classes()
            loss = F.cross_entropy(net(x), y) + F.mse_loss(net(x), ema(x))
            opt.zero_grad()
            loss.backward()
            opt.step()
            watch.step(loss)
    assert "frozen" not in {f.rule for f in watch.findings().all}
