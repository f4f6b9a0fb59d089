"""A forecast is shown only on a kind of run where its method has a measured skill."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import netvitals as nv
from netvitals.forecasts import Forecast, kind_of, skill

MLP = lambda: nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4))


class Block(nn.Module):
    def __init__(self, way):
        super().__init__()
        self.a, self.b, self.c, self.way = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4), way

    def forward(self, x):
        if self.way == "residual":
            x = self.a(x)
            return self.c(x + self.b(torch.relu(x)))
        if self.way == "gated":
            return self.c(torch.sigmoid(self.a(x)) * self.b(x))
        if self.way == "attention":
            return self.c(F.scaled_dot_product_attention(self.a(x), self.b(x), self.b(x)))
        return self.c(torch.softmax(self.a(x) @ self.b(x).transpose(1, 2), -1) @ x)


class Rows(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.out = nn.GRU(4, 4, batch_first=True), nn.Linear(4, 4)

    def forward(self, x):
        return self.out(self.cell(x)[0])


def conv():
    return nn.Sequential(nn.Conv1d(3, 4, 2), nn.ReLU(), nn.Flatten(), nn.Linear(12, 4))


@pytest.mark.parametrize(
    ("make", "architecture"),
    [
        (MLP, "mlp"),
        (lambda: Block("residual"), "residual"),
        (lambda: Block("gated"), "gated"),
        (lambda: Block("attention"), "transformer"),
        (lambda: Block("by hand"), "transformer"),
        (Rows, "recurrent"),
        (conv, "cnn"),
    ],
)
@pytest.mark.parametrize("early", [True, False])
def test_the_kind_of_a_run_is_read_from_the_graph_of_its_loss(make, architecture, early):
    net, x = make(), torch.randn(5, 3, 4)
    loss = F.mse_loss(out := net(x), torch.zeros_like(out))
    if not early:
        loss.backward()
    assert kind_of(loss, net) == f"squared error, {architecture}"
    flat = net(x).flatten(0, -2)
    assert kind_of(F.cross_entropy(flat, torch.zeros(len(flat), dtype=torch.long)), net).startswith("cross-entropy, ")


def test_losses_by_hand_and_losses_without_a_graph():
    net, x = MLP(), torch.randn(5, 4)
    assert kind_of(((net(x) - x) ** 2).mean(), net) == "squared error, mlp"  # a product in the loss is no gate
    assert kind_of(F.binary_cross_entropy_with_logits(net(x), x.sigmoid()), net) == "cross-entropy, mlp"
    assert kind_of(F.l1_loss(net(x), x), net) == "other loss, mlp"
    assert kind_of(F.mse_loss(net(x), x).detach(), net) == ""


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, g):
        return 2 * g


def test_a_kind_is_not_guessed():
    net, x = MLP(), torch.randn(5, 4)
    hidden = lambda: Doubled.apply(net(x))  # as torch.compile and checkpointing hide what is inside
    assert kind_of(F.mse_loss(hidden(), x), net) == "squared error, unknown"
    bare = nn.Embedding(3, 4)
    assert kind_of(F.mse_loss(bare(torch.zeros(5, dtype=torch.long)), x), bare) == "squared error, unknown"
    layer = nn.Linear(4, 4)
    own = lambda h: h * torch.sigmoid(h)
    assert kind_of(F.mse_loss(layer(own(layer(x))), x), layer) == "squared error, mlp"  # SiLU by hand is no gate
    normed = lambda h: h * torch.rsqrt(h.square().mean(-1, keepdim=True))
    assert kind_of(F.mse_loss(layer(normed(layer(x))), x), layer) == "squared error, mlp"  # nor is RMSNorm


@pytest.mark.parametrize(("value", "speaks"), [(0.2, True), (0.19, False), (None, False), (-3.0, False)])
def test_a_method_below_the_least_skill_is_refused_with_the_reason(monkeypatch, value, speaks):
    monkeypatch.setattr(skill, "skills", lambda: {"plateau": {"squared error, mlp": {"skill": value}}})
    f = Forecast(quantity="plateau/drop@0.5", made_at=3, for_step=9, value=6.0, method="saddle")
    found = skill.shown(f, "squared error, mlp")
    assert found.known is speaks and not skill.shown(f, "squared error, cnn").known
    if not speaks:
        assert found.refused == "no method beats the baseline for this kind of run (squared error, mlp)"
    assert "no loss with a graph was given" in skill.shown(f, "").refused


def test_the_table_that_is_shipped_has_every_method_and_numbers_of_skill():
    found = skill.skills()
    assert set(found) == {"plateau", "losses", "look-ahead"} == set(skill.METHODS.values())
    entries = [e for kinds in found.values() for e in kinds.values()]
    assert len(entries) > 10 and all(e["runs"] > 0 and (e["skill"] is None or e["skill"] <= 1) for e in entries)


@pytest.mark.parametrize("least", [-math.inf, math.inf])
def test_a_watch_shows_a_call_where_the_method_has_skill_and_else_the_reason(monkeypatch, least):
    monkeypatch.setattr(skill, "LEAST", least)
    torch.manual_seed(0)
    net, x = MLP(), torch.randn(32, 4)
    opt = torch.optim.SGD(net.parameters(), lr=0.05)
    with nv.watch(net, opt, every=10, vitals=["optimizer"]) as seen:
        for t in range(160):
            loss = F.mse_loss(net(x), x) * (1.0 if t < 60 else 1.08 ** (t - 60))
            opt.zero_grad()
            F.mse_loss(net(x), x).backward()
            opt.step()
            seen.step(loss)
    (told,) = [f for f in seen.forecasts if f.quantity == "loss/lost"]
    assert told.known is (least < 0) and ("squared error, mlp" in told.refused) is (least > 0)
    assert ("divergence forecast" in {f.rule for f in seen.findings().all}) is (least < 0)
