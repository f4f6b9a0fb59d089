"""The training loop: its arithmetic, its repeatability, what it leaves alone, and how it ends."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import netvitals_lab.data as lab_data
from netvitals_lab import data, models
from netvitals_lab.training import Recipe, evaluate, load_checkpoint, recipe_named, train

SMALL = Recipe(epochs=2, batch=64, lr=0.05)


@pytest.fixture(scope="module")
def digits():
    return data.load("digits,train=200,test=80")


def net(**changes):
    return models.build("mlp:64-16x2-10", seed=0, **changes)


def equal(a, b):
    return all(torch.equal(p, q) for p, q in zip(a.state_dict().values(), b.state_dict().values()))


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw"])
def test_loop_is_the_plain_torch_loop(digits, name):
    recipe = Recipe(epochs=3, batch=64, lr=0.01, optimizer=name, weight_decay=0.01, clip=0.5)
    model, twin = net(norm="batch"), net(norm="batch")
    history = train(model, digits, recipe)
    make = {
        "sgd": lambda p: torch.optim.SGD(p, 0.01, momentum=0.9, nesterov=True, weight_decay=0.01),
        "adam": lambda p: torch.optim.Adam(p, 0.01, weight_decay=0.01),
        "adamw": lambda p: torch.optim.AdamW(p, 0.01, weight_decay=0.01),
    }
    optimizer = make[name](twin.parameters())
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: 0.5 * (1 + math.cos(math.pi * t / 12)))
    order = torch.Generator().manual_seed(0)
    losses = []
    for _ in range(3):
        for index in torch.randperm(200, generator=order).split(64):
            loss = F.cross_entropy(twin(digits.train.x[index]), digits.train.y[index])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(twin.parameters(), 0.5)
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
    assert equal(model, twin)
    assert list(history.loss) == losses and history.steps == history.total == 12
    assert len(history.grad_norm) == 12 and history.stopped is None


def test_one_seed_one_run_and_the_generator_is_left_alone(digits):
    before = torch.get_rng_state()
    runs = []
    for seed in (0, 0, 1):
        model = net(dropout=0.2)
        runs.append((model, train(model, digits, replace(SMALL, seed=seed))))
        torch.manual_seed(99)
        torch.set_rng_state(before)
    assert equal(runs[0][0], runs[1][0]) and runs[0][1].loss == runs[1][1].loss
    assert not equal(runs[0][0], runs[2][0])
    assert torch.equal(before, torch.get_rng_state())


def test_mode_is_put_back(digits):
    model = net(dropout=0.2).eval()
    train(model, digits, SMALL)
    assert not model.training and not model.blocks[0].dropout.training


def test_accumulation_is_a_larger_batch(digits):
    one, many = net(), net()
    train(one, digits, Recipe(epochs=1, batch=40, lr=0.05))
    history = train(many, digits, Recipe(epochs=1, batch=20, lr=0.05, accumulate=2))
    assert history.steps == 5
    assert all(torch.allclose(p, q, atol=1e-6) for p, q in zip(one.parameters(), many.parameters()))


def test_accumulation_over_an_uneven_epoch(digits):
    history = train(net(), digits, Recipe(epochs=1, batch=50, accumulate=3))
    assert history.steps == history.total == 2


def test_evaluation_cadence(digits):
    history = train(net(), digits, SMALL)
    assert [(e.step, e.epoch) for e in history.evaluations] == [(0, -1), (4, 0), (8, 1)]
    assert history.final.examples == 80 and 0 <= history.accuracy <= 1
    history = train(net(), digits, replace(SMALL, evaluate_every=3, evaluate_on=50))
    assert [e.step for e in history.evaluations] == [0, 3, 6, 8]
    assert history.final.examples == 50
    assert train(net(), digits, replace(SMALL, evaluate_on=0)).evaluations == ()


def test_evaluate_is_exact_and_leaves_the_mode(digits):
    model = net(norm="batch").train()
    train(model, digits, SMALL)
    model.train()
    seen = evaluate(model, digits.test, "ce", batch=30)
    assert model.training
    model.eval()
    out = model(digits.test.x)
    assert seen.loss == pytest.approx(F.cross_entropy(out, digits.test.y).item(), rel=1e-5)
    assert seen.accuracy == pytest.approx((out.argmax(1) == digits.test.y).float().mean().item())


def test_hooks_see_the_run_and_can_end_it(digits):
    epochs, steps = [], []

    def on_step(moment):
        assert all(p.grad is not None for p in moment.model.parameters())
        steps.append(moment.step)
        return True if moment.step == 6 else None

    history = train(
        net(), digits, SMALL, callback=lambda m: epochs.append((m.epoch, m.step, m.evaluation.loss)), on_step=on_step
    )
    assert [e[:2] for e in epochs] == [(-1, 0), (0, 4)]
    assert steps == [1, 2, 3, 4, 5, 6] and history.steps == 6
    assert "after 6 of 8" in history.stopped


def test_loss_that_is_not_finite_ends_the_run_with_a_sentence(digits):
    model = net()
    poisoned = replace(digits, train=lab_data.Split(digits.train.x.clone(), digits.train.y))
    poisoned.train.x[int(torch.randperm(200, generator=torch.Generator().manual_seed(0))[130])] = math.nan
    history = train(model, poisoned, SMALL)
    assert history.steps == 2 and len(history.loss) == 3 and math.isnan(history.loss[-1])
    assert "nan at step 2" in history.stopped and "learning rate" in history.stopped
    assert all(torch.isfinite(p).all() for p in model.parameters())
    assert history.stopped in str(history)


def test_divergence_keeps_the_history(digits):
    history = train(net(), digits, Recipe(epochs=3, batch=64, lr=1e12, loss="onehot-mse"))
    assert history.stopped is not None and 0 < history.steps < history.total


def test_loaders(digits):
    pairs = [(digits.train.x[i : i + 50], digits.train.y[i : i + 50]) for i in range(0, 200, 50)]
    recipe = Recipe(epochs=2, lr=0.05, loss="ce")
    assert train(net(), pairs, recipe).steps == 8
    short = train(net(), iter(pairs), replace(recipe, steps=10))
    assert short.steps == 4 and "4 of 10" in short.stopped

    class Short(list):
        def __len__(self):
            return 6

    history = train(net(), Short(pairs), recipe)
    assert history.steps == 8 and "8 of 12" in history.stopped
    with pytest.raises(ValueError, match="steps"):
        train(net(), iter(pairs), recipe)
    with pytest.raises(ValueError, match="dataset"):
        train(net(), pairs, replace(recipe, loss="auto"))


def test_checkpoints_are_safe_to_read_and_go_on_exactly(digits, tmp_path):
    recipe = replace(SMALL, epochs=4, checkpoint_every=1)
    whole, model = net(dropout=0.1), net(dropout=0.1)
    reference = train(whole, digits, recipe, folder=tmp_path)
    assert [p.name for p in reference.checkpoints] == ["init.pt", *(f"epoch-000{i}.pt" for i in range(1, 5)), "last.pt"]
    raw = torch.load(tmp_path / "epoch-0002.pt", weights_only=True)
    assert raw["step"] == 8
    checkpoint = load_checkpoint(tmp_path / "epoch-0002.pt")
    assert checkpoint.recipe == recipe and checkpoint.epoch == 1
    history = train(model, digits, recipe, resume=tmp_path / "epoch-0002.pt")
    assert equal(model, whole)
    assert history.loss == reference.loss and history.evaluations == reference.evaluations
    fresh = net()
    fresh.load_state_dict(load_checkpoint(tmp_path / "init.pt").model)
    assert equal(fresh, net())


def test_muon_run_goes_on_exactly(tmp_path):
    tokens = data.load("random-tokens,vocab=11,context=8,count=64,test=64")
    recipe = recipe_named("gpt-micro", steps=12, warmup=2, warmdown=4, checkpoint_every=1)
    whole, model = (models.build("gpt-micro,width=16,depth=1", seed=0, data=tokens) for _ in range(2))
    reference = train(whole, tokens, recipe, folder=tmp_path)
    history = train(model, tokens, recipe, resume=tmp_path / "epoch-0002.pt")
    assert equal(model, whole) and history.loss == reference.loss
    assert reference.lr[:2] == (0.5, 1.0) and reference.lr[-1] == 0.25


def test_wrong_checkpoints(tmp_path):
    with pytest.raises(FileNotFoundError, match="no checkpoint"):
        load_checkpoint(tmp_path / "none.pt")
    torch.save({"weights": torch.zeros(2)}, tmp_path / "other.pt")
    with pytest.raises(ValueError, match="not a checkpoint"):
        load_checkpoint(tmp_path / "other.pt")
    (tmp_path / "torn.pt").write_bytes((tmp_path / "other.pt").read_bytes()[:300])
    (tmp_path / "words.pt").write_text("hi")
    for name in ("torn.pt", "words.pt"):
        with pytest.raises(ValueError, match="cannot be read as a checkpoint"):
            load_checkpoint(tmp_path / name)


def test_watch_given_or_made(digits):
    class Counter:
        closed = 0

        def __init__(self):
            self.losses = []

        def step(self, loss=None):
            self.losses.append(loss)

        def close(self):
            self.closed += 1

    given, made = Counter(), []

    def make(model, optimizer):
        made.append((Counter(), optimizer))
        return made[0][0]

    history = train(net(), digits, SMALL, watch=given)
    assert tuple(given.losses) == history.loss and given.closed == 0
    train(net(), digits, SMALL, watch=make)
    assert made[0][0].closed == 1 and isinstance(made[0][1], torch.optim.Optimizer)


def test_a_real_watch_changes_nothing(digits):
    import netvitals

    bare, watched = net(norm="batch"), net(norm="batch")
    train(bare, digits, SMALL)
    seen = []

    def observe(model, optimizer):
        seen.append(netvitals.watch(model, optimizer=optimizer, every=2))
        return seen[0]

    train(watched, digits, SMALL, watch=observe)
    assert equal(bare, watched)
    assert {r.step for r in seen[0].measurements if r.vital == "gates"} == {0, 2, 4, 6}


def test_integrated_decay_of_the_run(digits):
    from netvitals_lab.training import integrated_decay, match_decay

    recipe = match_decay(SMALL, 2.44, digits)
    assert train(net(), digits, recipe).decay == pytest.approx(2.44) == integrated_decay(recipe, digits)


@pytest.mark.parametrize(
    ("name", "spec", "changes"),
    [
        ("noise,inputs=64", "mlp:64-16-10", {"fresh": True}),
        ("digits,train=64,test=64", "resnet-mini,width=4", {"augment": True}),
        ("digits,train=64,test=64", "mlp:64-16-10", {"loss": "onehot-mse", "optimizer": "muon"}),
        ("teacher,count=128", "mlp:16-8x3-1,act=tanh", {"loss": "half-mse"}),
        ("sequence-teacher,count=128,test=64", "toy-attention", {"optimizer": "adam", "lr": 1e-3}),
        ("audio,count=16,test=64", "denoiser,width=4,hidden=8", {"optimizer": "adam", "lr": 1e-3, "batch": 8}),
        ("random-tokens,vocab=11,context=8,count=64", "gpt-micro,width=16,depth=1", {"optimizer": "adamw", "lr": 1e-3}),
    ],
)
def test_every_task_trains(name, spec, changes):
    dataset = data.load(name)
    recipe = Recipe(**{"epochs": 1, "batch": 32, "lr": 0.01, **changes})
    history = train(models.build(spec, seed=0, data=dataset), dataset, recipe)
    assert history.stopped is None and all(math.isfinite(v) for v in history.loss)
    assert (history.final.accuracy is None) == (dataset.task == "values")


def test_autocast_surrounds_the_forward_pass_only(digits):
    class Gain(nn.Module):  # no matrix product: not every processor has a bfloat16 one
        def __init__(self):
            super().__init__()
            self.gain = nn.Parameter(torch.ones(10))
            self.seen = []

        def forward(self, x):
            self.seen.append(torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") is torch.bfloat16)
            return x.flatten(1)[:, :10] * self.gain

    model = Gain()
    train(model, digits, replace(SMALL, epochs=1, autocast="bfloat16"))
    assert model.seen == [False] + [True] * 4 + [False]  # evaluation, four steps, evaluation


def test_digits_are_learned():
    dataset = data.load("digits")
    history = train(models.build("mlp:64-64x2-10,norm=batch", seed=0), dataset, Recipe(epochs=10))
    assert history.accuracy > 0.95
    assert "accuracy" in str(history)
