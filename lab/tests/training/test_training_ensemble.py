"""Ensembles: the same numbers as a loop over seeds, whatever the network, the optimiser and the order."""

import math
from dataclasses import replace

import pytest
import torch

from netvitals_lab import data, models
from netvitals_lab.training import LOSSES, Ensemble, Recipe, train
from netvitals_lab.training.losses import per_example
from netvitals_lab.training.stacked import fits_batched

SEEDS = (3, 0, 7)
SMALL = Recipe(epochs=3, batch=48, lr=0.05, weight_decay=1e-3)


@pytest.fixture(scope="module")
def digits():
    return data.load("digits,train=200,test=80")


def agree(ensemble, history, spec, dataset, recipe, tolerance=1e-5):
    for k, seed in enumerate(ensemble.seeds):
        model = models.build(spec, seed=seed, data=dataset)
        alone = train(model, dataset, replace(recipe, seed=seed))
        worst = max(
            (p - q).abs().max().item()
            for p, q in zip(ensemble.member(k).state_dict().values(), model.state_dict().values())
        )
        assert worst < tolerance, (seed, worst)
        assert (history.loss[:, k] - torch.tensor(alone.loss)).abs().max() < tolerance
        assert len(history.evaluations) == len(alone.evaluations)
        for a, b in zip(history.evaluations, alone.evaluations):
            assert (a.step, a.epoch) == (b.step, b.epoch)
            assert a.loss[k].item() == pytest.approx(b.loss, abs=tolerance)
            if b.accuracy is not None:
                assert a.accuracy[k].item() == pytest.approx(b.accuracy, abs=1e-6)
        assert history.decay == pytest.approx(alone.decay)


FAST = [
    "mlp:64-16x2-10",
    "mlp:64-16x2-10,norm=batch,act=gelu",
    "mlp:64-16x2-10,norm=layer,act=tanh",
    "mlp:64-16x2-10,norm=rms,act=silu,bias=no",
    "mlp:64-16x3-10,kind=residual,norm=batch",
    "mlp:64-16x3-10,kind=bottleneck,neck=4,act=mish",
    "mlp:64-16x3-10,kind=diamond,norm=batch",
    "mlp:64-16x3-10,kind=diamond,merge=cat,norm=layer,act=silu",
]
GENERAL = [
    "mlp:64-16-10,act=prelu",
    "mlp:64-16-10,norm=group:4",
    "vit-mini,depth=1,width=8,heads=2,hidden=16",
    "resnet-mini,width=4,blocks=1-1",
    "mlp:64-16-10,act=topk:gelu:0.5",
]


@pytest.mark.parametrize("spec", FAST + GENERAL)
def test_networks_equal_the_loop(digits, spec):
    assert fits_batched(models.build(spec)) == (spec in FAST)
    recipe = SMALL if spec in FAST else replace(SMALL, epochs=1)
    ensemble = Ensemble(spec, SEEDS)
    agree(ensemble, ensemble.train(digits, recipe), spec, digits, recipe)


@pytest.mark.parametrize(
    "changes",
    [
        {"momentum": 0.0, "nesterov": False},
        {"nesterov": False},
        {"optimizer": "adam", "lr": 0.003},
        {"optimizer": "adamw", "lr": 0.003, "weight_decay": 0.1},
        {"clip": 0.3},
        {"schedule": "trapezoid", "warmup": 3, "warmdown": 4},
        {"loss": "onehot-mse"},
        {"steps": 7},
        {"evaluate_every": 4},
        {"batch": 199},
    ],
)
def test_recipes_equal_the_loop(digits, changes):
    recipe = replace(SMALL, **changes)
    # a bias before a batch norm has gradient zero but for rounding, which Adam turns into full steps: see the test in
    # double precision
    spec = "mlp:64-16x2-10,norm=batch" if recipe.optimizer == "sgd" else "mlp:64-16x2-10,norm=layer"
    ensemble = Ensemble(spec, SEEDS)
    agree(ensemble, ensemble.train(digits, recipe), spec, digits, recipe)


def test_sixteen_seeds_of_a_three_layer_perceptron(digits):
    spec, recipe = "mlp:64-64x2-10,norm=batch", replace(SMALL, epochs=2, batch=64)
    ensemble = Ensemble(spec, range(16))
    agree(ensemble, ensemble.train(digits, recipe), spec, digits, recipe)


@pytest.mark.parametrize(
    ("name", "spec", "changes"),
    [
        ("teacher,count=96,test=64", "mlp:16-8x2-1,act=tanh,bias=no", {"fresh": True, "loss": "half-mse"}),
        ("teacher,count=96,test=64", "mlp:16-8x2-1", {"loss": "mse"}),
        ("digits,train=96,test=64", "mlp:64-8-10", {"augment": True}),
        (
            "random-tokens,vocab=11,context=8,count=96,test=64",
            "gpt-micro,width=16,depth=1",
            {"optimizer": "adamw", "lr": 0.003},
        ),
    ],
)
def test_tasks_equal_the_loop(name, spec, changes):
    dataset, recipe = data.load(name), replace(SMALL, epochs=2, **changes)
    ensemble = Ensemble(spec, SEEDS, data=dataset)
    agree(ensemble, ensemble.train(dataset, recipe), spec, dataset, recipe)


@pytest.mark.parametrize("changes", [{}, {"optimizer": "adam", "lr": 0.003}, {"optimizer": "adamw", "lr": 0.003}])
def test_in_double_precision_nothing_is_left_of_the_difference(digits, changes):
    recipe = replace(SMALL, epochs=5, **changes)
    dataset = replace(
        digits,
        train=replace(digits.train, x=digits.train.x.double()),
        test=replace(digits.test, x=digits.test.x.double()),
    )
    networks = [models.build("mlp:64-16x2-10,norm=batch,act=gelu", seed=s).double() for s in SEEDS]
    ensemble = Ensemble(networks, SEEDS)
    ensemble.train(dataset, recipe)
    for k, (seed, network) in enumerate(zip(SEEDS, networks)):
        train(network, dataset, replace(recipe, seed=seed))
        for a, b in zip(ensemble.member(k).state_dict().values(), network.state_dict().values()):
            assert (a - b).abs().max() < 1e-9


def test_gradients_of_other_strides_reach_the_fused_optimiser_in_order(digits):
    """The fused optimisers ignore strides on the CPU: a transposed gradient would move the wrong weights."""
    for spec in FAST[:2] + GENERAL[2:3]:
        ensemble, strides = Ensemble(spec, SEEDS), []
        ensemble.train(
            digits,
            replace(SMALL, steps=1),
            on_step=lambda m, s=strides: s.extend(
                p.grad.stride() == p.stride() for p in m.ensemble.parameters.values()
            ),
        )
        assert all(strides) and strides


def test_rows_given_by_number(digits):
    rows = torch.randint(0, 200, (3, 5, 20), generator=torch.Generator().manual_seed(1))
    ensemble = Ensemble("mlp:64-16-10", SEEDS)
    history = ensemble.train(digits, replace(SMALL, evaluate_on=0), rows=rows)
    assert history.loss.shape == (5, 3)
    for k, seed in enumerate(SEEDS):
        model = models.build("mlp:64-16-10", seed=seed)
        pairs = [(digits.train.x[i], digits.train.y[i]) for i in rows[k]]
        alone = train(model, pairs, replace(SMALL, steps=5, loss="ce"))
        assert (history.loss[:, k] - torch.tensor(alone.loss)).abs().max() < 1e-5
    with pytest.raises(ValueError, match="rows"):
        ensemble.train(digits, SMALL, rows=rows[:2])


def test_calling_it_is_calling_each_member(digits):
    for spec in ("mlp:64-16-10,norm=batch", "vit-mini,depth=1"):
        ensemble = Ensemble(spec, SEEDS).train_mode(False)
        shared = ensemble(digits.test.x)
        own = ensemble(digits.test.x.expand(3, *digits.test.x.shape), each=True)
        for k, member in enumerate(ensemble.members()):
            assert torch.allclose(shared[k], member(digits.test.x), atol=1e-5)
            assert torch.allclose(own[k], shared[k], atol=1e-5)


def test_a_member_is_a_copy(digits):
    ensemble = Ensemble("mlp:64-16-10", SEEDS)
    member = ensemble.member(1)
    with torch.no_grad():
        member.head.weight.zero_()
    assert ensemble.parameters["head.weight"][1].abs().max() > 0
    assert torch.equal(ensemble.member(1).head.weight, models.build("mlp:64-16-10", seed=0).head.weight)


def test_a_diverging_seed_does_not_touch_the_others(digits):
    networks = [models.build("mlp:64-16-10", seed=s) for s in SEEDS]
    with torch.no_grad():
        networks[1].head.weight.fill_(1e30)
    ensemble = Ensemble(networks, SEEDS)
    recipe = replace(SMALL, loss="onehot-mse", lr=0.01)
    history = ensemble.train(digits, recipe)
    assert list(history.diverged) == [0] and "seed 0 at step" in str(history)
    step = history.diverged[0]
    assert not math.isfinite(history.loss[step, 1])
    assert all(torch.isfinite(t).all() for t in ensemble.member(1).state_dict().values())
    alone = train(models.build("mlp:64-16-10", seed=3), digits, replace(recipe, seed=3))
    assert (history.loss[:, 0] - torch.tensor(alone.loss)).abs().max() < 1e-5
    everyone = Ensemble("mlp:64-16-10", SEEDS).train(digits, replace(recipe, lr=1e20))
    assert everyone.stopped is not None and everyone.steps < everyone.total


def test_hooks_and_what_is_left_alone(digits):
    before, seen = torch.get_rng_state(), []
    ensemble = Ensemble("mlp:64-16-10", SEEDS)
    history = ensemble.train(
        digits, SMALL, callback=lambda m: seen.append((m.epoch, m.step)), on_step=lambda m: m.step == 7
    )
    assert seen == [(-1, 0), (0, 5)] and history.steps == 7 and "7 of 15" in history.stopped
    assert torch.equal(before, torch.get_rng_state())
    assert all(p.grad is None for p in ensemble.parameters.values())


def test_per_example_losses_average_to_the_loss():
    outputs, classes, values = torch.randn(2, 5, 3), torch.randint(0, 3, (2, 5)), torch.randn(2, 5, 3)
    for name in LOSSES:
        if name == "lm":
            outputs_, targets = torch.randn(2, 5, 4, 3), torch.randint(0, 3, (2, 5, 4))
        else:
            outputs_, targets = outputs, classes if name in ("ce", "onehot-mse") else values
        mean = per_example(name, outputs_, targets).mean(1)
        for k in range(2):
            assert mean[k].item() == pytest.approx(LOSSES[name](outputs_[k], targets[k]).item(), rel=1e-5), name


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda d: Ensemble("mlp", []), "at least one seed"),
        (lambda d: Ensemble([models.build("mlp")], (0, 1)), "as many seeds"),
        (lambda d: Ensemble([models.build("mlp"), models.build("mlp:64-8-10")], (0, 1)), "same parameters"),
        (lambda d: Ensemble("mlp", (0,)).train(d, Recipe(optimizer="muon")), "sgd, adam or adamw"),
        (lambda d: Ensemble("mlp", (0,)).train(d, Recipe(accumulate=2)), "accumulation"),
        (lambda d: Ensemble("mlp", (0,)).train(d, Recipe(fresh=True)), "afresh"),
    ],
)
def test_wrong_use_gets_a_sentence(digits, make, words):
    with pytest.raises(ValueError, match=words):
        make(digits)
