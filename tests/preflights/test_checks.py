"""Each check of its own: a case that fails, one that passes, and one where it cannot be asked."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import netvitals as nv
from netvitals.checks import LossNode, losses_of
from netvitals.preflights.data import feature_table
from netvitals.preflights.first_step import guess
from netvitals.preflights.run import OWN, REPORTS


def data(n=256, width=8, k=4, scale=1.0):
    torch.manual_seed(0)
    x = torch.randn(n, width) * scale
    y = x[:, :k].argmax(1)
    return [(x[i : i + 32], y[i : i + 32]) for i in range(0, n, 32)]


def net(*layers, width=8, k=4):
    torch.manual_seed(0)
    return nn.Sequential(*layers) if layers else nn.Sequential(nn.Linear(width, 32), nn.ReLU(), nn.Linear(32, k))


def run(model, loader, loss="ce", lr=3e-3, optimizer=None, **options):
    optimizer = optimizer or torch.optim.Adam(model.parameters(), lr=lr)
    return nv.preflight(model, loss, loader, optimizer, **options)


# ---------------------------------------------------------------- data


@pytest.mark.parametrize(("scale", "status"), [(100.0, "failed"), (1.0, "passed")])
def test_unnormalised_input(scale, status):
    assert run(net(), data(scale=scale))["unnormalised input"].status == status


def test_one_feature_far_larger_than_the_others():
    batches = data()
    for x, _ in batches:
        x[:, 3] *= 5000
    assert "feature 3" in run(net(), batches)["unnormalised input"].measured
    # the same model behind a batch norm gets inputs of unit size
    assert run(net(nn.BatchNorm1d(8), *net()), batches)["unnormalised input"].status == "passed"


def test_token_ids_have_no_scale():
    ids = torch.randint(0, 9, (64, 6))
    model = nn.Sequential(nn.Embedding(9, 8), nn.Flatten(), nn.Linear(48, 4))
    found = run(model, [(ids, ids[:, 0] % 4)])
    assert found["unnormalised input"].status == found["input not finite"].status == "not applicable"


@pytest.mark.parametrize("shape", [(7, 3), (7, 5, 3), (7, 3, 4, 4)])
def test_the_table_of_features_is_that_of_numpy_in_float64(shape):
    x = torch.randn(*shape) * 3 + 1
    rows = np.moveaxis(x.double().numpy(), 1, -1) if x.ndim == 4 else x.double().numpy()
    rows = rows.reshape(-1, 3)
    mean, spread, size = feature_table(x)
    np.testing.assert_allclose(mean, rows.mean(0), rtol=1e-12)
    np.testing.assert_allclose(spread, rows.std(0), rtol=1e-12)
    np.testing.assert_allclose(size, np.sqrt((rows**2).mean(0)), rtol=1e-12)


def test_input_not_finite():
    batches = data()
    batches[5][0][3, 2] = math.inf
    found = run(net(), batches)
    assert found["input not finite"].status == "failed" and "1 of 2048" in found["input not finite"].measured
    assert run(net(), data())["input not finite"].status == "passed"


@pytest.mark.parametrize(("positive", "status"), [(8, "failed"), (90, "passed")])
def test_imbalanced_labels(positive, status):
    torch.manual_seed(0)
    x, y = torch.randn(256, 8), (torch.randperm(256) < positive).float()[:, None]
    batches = [(x[i : i + 64], y[i : i + 64]) for i in range(0, 256, 64)]
    assert run(net(k=1), batches, "bce")["imbalanced labels"].status == status
    weighted = nn.BCEWithLogitsLoss(pos_weight=torch.tensor(30.0))
    assert run(net(k=1), batches, weighted)["imbalanced labels"].status == "not applicable"


def test_overlap():
    batches = data()
    other = [(torch.randn(32, 8), torch.arange(32) % 4) for _ in range(3)]
    assert run(net(), batches, validation=other)["overlap"].status == "passed"
    found = run(net(), batches, validation=[*other, batches[2]])["overlap"]
    assert found.status == "failed" and found.measured.startswith("25.0% of 128")
    assert run(net(), batches)["overlap"].status == "not applicable"


class Noisy(Dataset):
    """Adds noise from a generator that it holds, as MONAI's transforms do."""

    def __init__(self, how):
        self.how, self.rng = how, np.random.default_rng(0)
        self.x, self.y = torch.randn(64, 4), torch.arange(64) % 2

    def __len__(self):
        return 64

    def __getitem__(self, i):
        noise = {"own": lambda: torch.as_tensor(self.rng.normal(size=4)), "torch": lambda: torch.randn(4)}
        x = self.x[i] + noise[self.how]().float() if self.how in noise else self.x[i]
        return x, self.y[i]


@pytest.mark.parametrize(("how", "status"), [("own", "failed"), ("torch", "passed"), ("none", "not applicable")])
def test_workers_that_draw_the_same(how, status):
    loader = DataLoader(Noisy(how), 16, num_workers=2)
    assert run(net(width=4, k=2), loader, batches=2)["workers repeat"].status == status


# ---------------------------------------------------------------- the untrained model


def test_what_guessing_costs_is_exact():
    torch.manual_seed(0)
    logits = torch.randn(40, 5, requires_grad=True)
    labels = torch.randint(0, 5, (40,))
    labels[:3] = -100
    cost, best = guess(losses_of(nn.functional.cross_entropy(logits, labels).grad_fn)[0])
    p = np.bincount(labels[3:].numpy()) / 37.0
    assert cost == pytest.approx(math.log(5), rel=1e-12)
    assert best == pytest.approx(-(p * np.log(p)).sum(), rel=1e-12)

    y = torch.randn(40, 5).double() + 2
    cost, best = guess(losses_of(nn.functional.mse_loss(logits.double(), y).grad_fn)[0])
    assert cost == pytest.approx(float((y**2).mean()), rel=1e-12)
    assert best == pytest.approx(float(y.var(0, unbiased=False).mean()), rel=1e-12)

    cost, best = guess(LossNode("l1", 1, target=y))
    assert cost == pytest.approx(float(y.abs().mean()), rel=1e-12)
    assert best == pytest.approx(np.abs(y.numpy() - np.median(y.numpy(), 0)).mean(), rel=0.02)

    z = (torch.rand(40) < 0.3).double()
    cost, best = guess(LossNode("bce_logits", 1, target=z))
    q = float(z.mean())
    assert cost == pytest.approx(math.log(2)) and best == pytest.approx(-q * math.log(q) - (1 - q) * math.log(1 - q))
    assert math.isnan(guess(LossNode("ctc", 1))[0]) and math.isnan(guess(LossNode("mse", 1, target=y * math.nan))[0])


@pytest.mark.parametrize(("gain", "status"), [(60.0, "failed"), (1.0, "passed")])
def test_loss_at_initialisation(gain, status):
    model = net()
    model[2].weight.data.mul_(gain)
    found = run(model, data())["loss at initialisation"]
    assert found.status == status and f"guessing gives {math.log(4):.4g}" in found.measured


def test_loss_at_initialisation_of_targets_far_from_zero():
    batches = [(x, x[:, :1] + 500) for x, _ in data()]
    found = run(net(k=1), batches, "mse")["loss at initialisation"]
    assert found.status == "failed" and "y_train.mean()" in found.fix


def test_a_frozen_model_has_been_trained_before():
    model = net()
    model[2].weight.data.mul_(60)
    model[0].weight.requires_grad_(False)
    optimizer = torch.optim.Adam(model[2].parameters(), lr=1e-3)
    assert run(model, data(), optimizer=optimizer)["loss at initialisation"].status == "not applicable"


@pytest.mark.parametrize(("depth", "status"), [(12, "failed"), (1, "passed")])
def test_vanishing_signal(depth, status):
    layers = [m for _ in range(depth) for m in (nn.Linear(8, 8), nn.Sigmoid())]
    assert run(net(*layers, nn.Linear(8, 4)), data())["vanishing signal"].status == status


def test_an_output_layer_of_zeros_has_no_signal_yet():
    model = net()
    nn.init.zeros_(model[2].weight)
    assert run(model, data())["vanishing signal"].status == "not applicable"


@pytest.mark.parametrize(("lr", "status"), [(0.5, "failed"), (1e-3, "passed")])
def test_update_size(lr, status):
    assert run(net(), data(), lr=lr)["update size"].status == status


def test_update_size_is_exact():
    model, batches = net(), data()
    found = run(model, batches, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))["update size"]
    loss = nn.functional.cross_entropy(model(batches[0][0]), batches[0][1])
    weights = [model[0].weight, model[2].weight]
    grads = torch.autograd.grad(loss, weights)
    ratios = sorted(float(0.1 * g.double().norm() / w.detach().double().norm()) for g, w in zip(grads, weights))
    assert f"first step is {ratios[1]:.2g}" in found.measured


# ---------------------------------------------------------------- custom functions


class Isrlu(torch.autograd.Function):
    """x / sqrt(1 + min(x, 0)²); ``backward`` as in the report, which forgets the outer gradient."""

    @staticmethod
    def forward(ctx, x):
        ctx.root = torch.rsqrt(1 + x.clamp_max(0) ** 2)
        return x * ctx.root

    @staticmethod
    def backward(ctx, outer):
        return ctx.root**3


class RightIsrlu(Isrlu):
    @staticmethod
    def forward(ctx, x):
        ctx.root = torch.rsqrt(1 + x.clamp_max(0) ** 2)
        return x * ctx.root

    @staticmethod
    def backward(ctx, outer):
        return outer * ctx.root**3


class Reversal(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, outer):
        return -outer


class Straight(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x.round()

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, outer):
        return outer


class Apply(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function.apply(x)


@pytest.mark.parametrize(
    ("function", "status"),
    [(Isrlu, "failed"), (RightIsrlu, "passed"), (Reversal, "not applicable"), (Straight, "not applicable")],
)
def test_custom_gradient(function, status):
    forward = function.forward
    model = net(nn.Linear(8, 32), Apply(function), nn.Linear(32, 4))
    assert run(model, data())["custom gradient"].status == status
    assert function.forward is forward


# ---------------------------------------------------------------- copies that train


def test_memorises_one_batch():
    assert run(net(), data())["memorises one batch"].status == "passed"
    model = net(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4), nn.Sigmoid())
    found = run(model, data())
    assert found["memorises one batch"].status == "failed"
    assert found.failed[0].name == "output activation"  # the cause stands before what follows from it


def test_a_starved_layer_is_named():
    layers = [m for _ in range(9) for m in (nn.Linear(8, 8), nn.Sigmoid())]
    found = run(net(*layers, nn.Linear(8, 4)), data())["memorises one batch"]
    assert found.status == "failed" and "No gradient reaches " in found.measured


@pytest.mark.parametrize(("lr", "failed"), [(30.0, "too high"), (1e-5, "too low"), (0.1, "")])
def test_learning_rates(lr, failed):
    torch.manual_seed(0)
    x = torch.randn(256, 8)
    y = x @ torch.randn(8, 1)
    batches = [(x[i : i + 32], y[i : i + 32]) for i in range(0, 256, 32)]
    model = nn.Linear(8, 1)
    found = run(model, batches, "mse", optimizer=torch.optim.SGD(model.parameters(), lr=lr))
    for name in ("too high", "too low"):
        assert found[f"learning rate {name}"].status == ("failed" if name == failed else "passed")
    if failed:
        return
    # plain gradient descent on a quadratic diverges above 2 / λ, with λ the largest curvature
    top = float(torch.linalg.eigvalsh(2 * x.double().T @ x.double() / 256)[-1])
    assert 2 / top / 2 < found.rates.high < 2 / top * 10
    assert found.rates.low is not None and found.rates.low < found.rates.high


def test_the_rate_before_a_warm_up_is_that_of_the_optimizer():
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: step / 100)
    assert optimizer.param_groups[0]["lr"] == 0
    assert run(model, data(), optimizer=optimizer).rates.yours == 3e-3


def test_an_optimizer_that_searches_itself():
    model = net()
    found = run(model, data(), optimizer=torch.optim.LBFGS(model.parameters()))
    assert found["learning rate too high"].status == "not applicable" and found["one step"].status == "passed"


@pytest.mark.parametrize(("momentum", "status"), [(0.0, "failed"), (0.1, "passed")])
def test_train_and_eval(momentum, status):
    model = net(nn.Linear(8, 32), nn.BatchNorm1d(32, momentum=momentum), nn.ReLU(), nn.Linear(32, 4))
    model[0].weight.data.mul_(40)
    assert run(model, data())["train and eval"].status == status
    assert run(net(), data())["train and eval"].status == "not applicable"


def test_a_label_beyond_the_outputs_is_said_in_words():
    found = run(net(k=3), data())
    assert found["one step"].status == "failed" and "one output per class" in found["one step"].fix


def test_a_table_of_every_example_with_every_other_mixes_none():
    class Pairs(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x, z):
            return self.a(x) @ self.b(z).T

    torch.manual_seed(0)
    batches = [(x, x + 0.1 * torch.randn_like(x), torch.arange(32)) for x, _ in data()]
    assert "examples mixed" not in [c.name for c in run(Pairs(), batches).failed]


def test_ranks_are_asked_of_several_only():
    assert run(net(), data())["ranks"].status == "not applicable"


def test_at_most_fifteen_checks_of_its_own():
    assert len(OWN) <= 15 and set(REPORTS) <= set(OWN)
