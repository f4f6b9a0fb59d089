"""Recipes: schedules, integrated decay, groups of parameters, losses."""

import math

import pytest
import torch
from torch import nn

from netvitals_lab import data, models
from netvitals_lab.training import (
    LOSSES,
    RECIPES,
    Group,
    Recipe,
    integrated_decay,
    kinds,
    loss_named,
    make_optimizer,
    match_decay,
    multiplier,
    recipe_named,
    steps_of,
)


def test_integrated_decay_of_the_papers_schedule():
    # 391 steps × 25 epochs, cosine from 0.1: S = 2.44 for SGD, 0.0024 for AdamW (gate-density, scale-down rule)
    assert integrated_decay(Recipe(), 391) == pytest.approx(2.44, abs=0.005)
    assert math.exp(-integrated_decay(Recipe(), 391)) == pytest.approx(0.087, abs=5e-4)
    adamw = integrated_decay(Recipe(optimizer="adamw", lr=1e-3), 391)
    assert adamw == pytest.approx(0.0024, abs=5e-5) and math.exp(-adamw) == pytest.approx(0.9976, abs=5e-5)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"optimizer": "adamw", "lr": 1e-3},
        {"schedule": "constant"},
        {"schedule": "trapezoid", "warmup": 7, "warmdown": 9},
        {"accumulate": 3},
        {"optimizer": "muon", "lr": 0.01},
        {"steps": 50},
        {"schedule": "cosine-epoch"},
    ],
)
def test_matched_decay_is_the_one_asked_for(changes):
    short = match_decay(Recipe(epochs=4, **changes), 2.44, 20)
    assert integrated_decay(short, 20) == pytest.approx(2.44, rel=1e-12)


def test_matched_decay_shrinks_a_free_parameter_by_its_factor():
    recipe = match_decay(Recipe(steps=2000, lr=0.01, nesterov=False), 1.0, 100)
    p = nn.Parameter(torch.ones(1, dtype=torch.double))
    optimizer = torch.optim.SGD([p], lr=recipe.lr, momentum=recipe.momentum, weight_decay=recipe.weight_decay)
    for t in range(2000):
        optimizer.param_groups[0]["lr"] = recipe.lr * multiplier(recipe, t, 2000, 100)
        p.grad = torch.zeros_like(p)
        optimizer.step()
    assert p.item() == pytest.approx(math.exp(-1), rel=0.01)


def test_schedules():
    cosine = Recipe(schedule="cosine")
    assert multiplier(cosine, 0, 10, 5) == 1 and multiplier(cosine, 5, 10, 5) == pytest.approx(0.5)
    steps = [multiplier(Recipe(schedule="cosine-epoch"), t, 10, 5) for t in range(10)]
    assert steps == [1.0] * 5 + [pytest.approx(0.5)] * 5
    trapezoid = recipe_named("gpt-nano")
    assert multiplier(trapezoid, 0, 7168, 1) == 1 / 2000
    assert multiplier(trapezoid, 1999, 7168, 1) == 1
    assert multiplier(trapezoid, 5139, 7168, 1) == 1
    assert multiplier(trapezoid, 5140, 7168, 1) == 1.0
    assert multiplier(trapezoid, 5141, 7168, 1) == 2027 / 2028
    assert multiplier(trapezoid, 7167, 7168, 1) == 1 / 2028
    assert all(multiplier(Recipe(schedule="constant"), t, 10, 5) == 1 for t in range(10))


def test_steps():
    digits = data.load("digits")
    assert steps_of(Recipe(epochs=2), digits) == (24, 12)
    assert steps_of(Recipe(epochs=2, accumulate=5), digits) == (6, 3)
    assert steps_of(Recipe(steps=7), digits) == (7, 12)


def test_kinds_and_groups():
    model = models.build("gpt-micro,width=16,depth=1,vocab=11,context=8")
    found = kinds(model)
    assert found["embed.weight"] == "embedding" and found["norm.weight"] == "norm"
    assert found["blocks.0.mlp.up.weight"] == "matrix"
    recipe = Recipe(groups=(Group(kinds=("norm",), weight_decay=0.0), Group(names=r"mlp\.up", lr=0.5)))
    named = dict(model.named_parameters())
    settings = {
        id(p): (g["lr"], g["weight_decay"]) for g in make_optimizer(model, recipe).param_groups for p in g["params"]
    }
    assert settings[id(named["norm.weight"])] == (0.1, 0.0)
    assert settings[id(named["blocks.0.mlp.up.weight"])] == (0.05, 5e-4)
    assert settings[id(named["embed.weight"])] == (0.1, 5e-4)
    assert len(settings) == len(named)


def test_muon_split_of_a_gpt():
    model = models.build("gpt-micro,width=16,depth=2,vocab=11,context=8")
    optimizer = make_optimizer(model, recipe_named("gpt-nano"))
    names = {id(p): n for n, p in model.named_parameters()}
    muon = [g for g in optimizer.param_groups if "momentum" in g]
    held = {names[id(p)] for g in muon for p in g["params"]}
    assert held == {n for n in names.values() if n.startswith("blocks") and "norm" not in n}
    assert all(g["lr"] == 5e-4 for g in muon)
    assert {names[id(p)] for g in muon if g["parts"] == 3 for p in g["params"]} == {n for n in held if "qkv" in n}
    rest = [g for g in optimizer.param_groups if "momentum" not in g]
    assert all(g["lr"] == 5e-3 and tuple(g["betas"]) == (0.9, 0.95) for g in rest)


def test_losses_are_their_formulas():
    outputs, classes, values = torch.randn(5, 3), torch.tensor([0, 2, 1, 1, 0]), torch.randn(5, 3)
    logs = outputs.log_softmax(1)
    assert torch.allclose(LOSSES["ce"](outputs, classes), -logs[torch.arange(5), classes].mean())
    assert torch.allclose(LOSSES["mse"](outputs, values), ((outputs - values) ** 2).mean())
    assert torch.allclose(LOSSES["half-mse"](outputs, values), 0.5 * ((outputs - values) ** 2).sum(1).mean())
    assert torch.allclose(
        LOSSES["onehot-mse"](outputs, classes), 0.5 * ((outputs - torch.eye(3)[classes]) ** 2).sum(1).mean()
    )
    tokens, targets = torch.randn(2, 4, 3), torch.randint(0, 3, (2, 4))
    assert torch.allclose(LOSSES["lm"](tokens, targets), LOSSES["ce"](tokens.reshape(8, 3), targets.reshape(8)))
    assert loss_named("auto", data.load("teacher")) is LOSSES["mse"]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Recipe(optimizer="sdg"), "sgd"),
        (lambda: Recipe(schedule="linear"), "schedule"),
        (lambda: Recipe(batch=0), "batch"),
        (lambda: Recipe(lr=-1), "lr"),
        (lambda: Recipe(epochs=-1), "epochs"),
        (lambda: recipe_named("gate"), "gate-density"),
        (lambda: loss_named("nll"), "ce"),
        (lambda: loss_named("auto"), "dataset"),
        (lambda: match_decay(Recipe(epochs=0), 1.0, 3), "no step"),
        (lambda: match_decay(Recipe(), -1.0, 3), "negative"),
        (lambda: make_optimizer(nn.ReLU(), Recipe()), "no parameter"),
        (lambda: make_optimizer(nn.Linear(2, 2), Recipe(optimizer="muon")), "Muon"),
    ],
)
def test_wrong_settings_get_a_sentence(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_every_named_recipe_builds_its_optimizer():
    for name in RECIPES:
        make_optimizer(models.build("mlp:4-4-4-2"), recipe_named(name))
