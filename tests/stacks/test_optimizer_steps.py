"""Steps are those of the optimizer, however many micro-batches each takes."""

import math
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv
from netvitals.watching.arguments import inner_optimizer


def net(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))


def series(watching, metric, vital="gradients", site="model"):
    return {r.step: r.value for r in watching.measurements if (r.vital, r.site, r.metric) == (vital, site, metric)}


def accumulate(model, optimizer, micro, steps, say, zero_to_none=True):
    """Trains; returns by step the gradient norm that the optimizer used, the update ratio, and the mean loss."""
    generator = torch.Generator().manual_seed(1)
    truth = []
    for _ in range(steps):
        losses = []
        for i in range(micro):
            x = torch.randn(5, 6, generator=generator)
            y = torch.randint(0, 3, (5,), generator=generator)
            loss = F.cross_entropy(model(x), y)
            (loss / micro).backward()
            losses.append(loss.item())
            if i < micro - 1:
                say("micro-batch", loss)
        say("before", loss)
        norm = math.sqrt(sum(p.grad.double().square().sum().item() for p in model.parameters()))
        old = [p.detach().double().clone() for p in model.parameters()]
        optimizer.step()
        moved = math.sqrt(sum((p.detach().double() - o).square().sum().item() for p, o in zip(model.parameters(), old)))
        ratio = moved / math.sqrt(sum(o.square().sum().item() for o in old))
        optimizer.zero_grad(set_to_none=zero_to_none)
        say("after", loss)
        truth.append((norm, ratio, sum(losses) / micro))
    return truth


PLACES = {
    "never": (),
    "per micro-batch": ("micro-batch", "after"),
    "per micro-batch, before the optimizer": ("micro-batch", "before"),
    "per step": ("after",),
    "per step, before the optimizer": ("before",),
}


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("zero_to_none", [True, False])
@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize(("micro", "every"), [(4, 1), (2, 2), (1, 1)])
def test_gradients_updates_and_loss_are_those_of_the_optimizer(micro, every, where, zero_to_none, given):
    if where == "per step, before the optimizer" and micro == 2 and not zero_to_none:
        pytest.skip("one call for two passes, and gradients zeroed in place: nobody can tell which step it belongs to")
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with nv.watch(model, optimizer if given else None, every=every, vitals=["gradients", "gates"]) as watching:
        say = lambda place, loss: watching.step(loss) if place in PLACES[where] else None
        truth = accumulate(model, optimizer, micro, 6, say, zero_to_none)
    norms, ratios = series(watching, "grad_norm"), series(watching, "update_ratio")
    assert norms and norms.keys() == ratios.keys() and all(step % every == 0 for step in norms)
    for step in norms:
        assert norms[step] == pytest.approx(truth[step][0], rel=1e-5)
        assert ratios[step] == pytest.approx(truth[step][1], rel=1e-4)
    gates = sorted({r.step for r in watching.measurements if r.vital == "gates"})
    assert gates == list(range(0, 6, every))
    losses = series(watching, "loss", "loss")
    assert len(losses) == (0 if where == "never" else 6)
    for step, loss in losses.items():
        if "micro-batch" in where or micro == 1:
            assert loss == pytest.approx(truth[step][2], rel=1e-6), (step, losses)


@pytest.mark.parametrize(("micro", "every", "steps"), [(4, 1, 4), (8, 50, 101), (2, 2, 8), (4, 10, 41)])
def test_update_ratio_is_there_whatever_accumulation_and_every_are(micro, every, steps):
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    with nv.watch(model, optimizer=optimizer, every=every, vitals=["gradients"]) as watching:
        accumulate(model, optimizer, micro, steps, lambda place, loss: watching.step(loss) if place != "before" else 0)
    assert sorted(series(watching, "update_ratio")) == list(range(0, steps, 2 * every))


def test_the_norm_is_of_all_micro_batches_not_of_one():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with nv.watch(model, optimizer, every=1, vitals=["gradients"]) as watching:
        x, y = torch.randn(5, 6), torch.randint(0, 3, (5,))
        norms = []
        for _ in range(4):  # not divided: the sum is four times one
            F.cross_entropy(model(x), y).backward()
            norms.append(torch.cat([p.grad.flatten() for p in model.parameters()]).norm().item())
            watching.step()
        optimizer.step()
    assert series(watching, "grad_norm")[0] == pytest.approx(4 * norms[0], rel=1e-5)


def test_a_closure_is_one_step():
    model = net()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4)
    x, y = torch.randn(16, 6), torch.randint(0, 3, (16,))
    calls = 0

    def closure():
        nonlocal calls
        calls += 1
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss

    with nv.watch(model, optimizer, every=1, vitals=["gradients", "gates"]) as watching:
        for _ in range(3):
            watching.step(optimizer.step(closure))
    assert calls > 3 and sorted(series(watching, "loss", "loss")) == [0, 1, 2]
    assert sorted(series(watching, "update_ratio")) == [0, 2] and min(series(watching, "update_ratio").values()) > 0
    assert sorted({r.step for r in watching.measurements if r.vital == "gates"}) == [0, 1, 2]


def test_steps_that_a_grad_scaler_leaves_out_are_noted():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
    with nv.watch(model, optimizer, every=1, vitals=["gradients"]) as watching:
        for i in range(8):
            loss = F.cross_entropy(model(torch.randn(5, 6)), torch.randint(0, 3, (5,)))
            optimizer.zero_grad()
            scaler.scale(loss * (float("inf") if i in (3, 5) else 1)).backward()
            scaler.step(optimizer)
            scaler.update()
            watching.step(loss)
    assert watching.skipped["optimizer steps"].startswith("2 skipped")
    assert max(series(watching, "loss", "loss")) == 5  # six steps were made
    assert all(math.isfinite(v) for v in series(watching, "grad_norm").values())


@pytest.mark.parametrize("said", [True, False])
def test_two_optimizers_make_one_step(said):
    model = net()
    optimizers = [torch.optim.SGD(model[0].parameters(), lr=0.1), torch.optim.Adam(model[2].parameters(), lr=0.01)]
    with nv.watch(model, optimizers, every=1, vitals=["gradients", "gates"]) as watching:
        for _ in range(4):
            loss = F.cross_entropy(model(torch.randn(5, 6)), torch.randint(0, 3, (5,)))
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
            if said:
                watching.step(loss)
    assert sorted({r.step for r in watching.measurements if r.vital == "gates"}) == [0, 1, 2, 3]
    assert {r.site for r in watching.measurements if r.metric == "update_ratio"} == {
        "model",
        "0.weight",
        "0.bias",
        "2.weight",
        "2.bias",
    }


def test_an_optimizer_that_steps_more_often_sets_the_pace():
    model = net()
    often, seldom = torch.optim.SGD(model[0].parameters(), lr=0.1), torch.optim.SGD(model[2].parameters(), lr=0.1)
    with nv.watch(model, [often, seldom], every=1, vitals=["gates"]) as watching:
        for i in range(9):
            F.cross_entropy(model(torch.randn(5, 6)), torch.randint(0, 3, (5,))).backward()
            if i % 3 == 2:
                seldom.step()
            often.step()
            model.zero_grad()
    assert watching._step == 9 and len({r.step for r in watching.measurements if r.vital == "gates"}) >= 8


def test_an_optimizer_of_another_model_is_ignored_with_a_note():
    model, other = net(), net(1)
    mine, foreign = torch.optim.SGD(model.parameters(), lr=0.1), torch.optim.Adam(other.parameters())
    with nv.watch(model, [foreign, mine], every=1, vitals=["gradients"]) as watching:
        for _ in range(3):
            F.cross_entropy(model(torch.randn(5, 6)), torch.randint(0, 3, (5,))).backward()
            mine.step()
            foreign.step()
    assert watching.skipped["Adam"] == "it holds no parameter of the watched model"
    assert watching._step == 3


def test_an_optimizer_of_other_tensors_alone_is_heard_by_the_checks():
    model = net()
    params = {name: p.detach().clone().requires_grad_() for name, p in model.named_parameters()}
    for call, expected in (
        (lambda x: torch.func.functional_call(model, params, (x,)), set()),  # functional training
        (model, {"stale parameters"}),
    ):
        optimizer = torch.optim.SGD(params.values(), lr=0.1)
        with pytest.warns(RuntimeWarning, match="SGD holds no parameter of the watched model"):
            watching = nv.watch(model, optimizer, every=1, vitals=["gradients"])
        for _ in range(12):
            optimizer.zero_grad()
            loss = F.cross_entropy(call(torch.randn(5, 6)), torch.randint(0, 3, (5,)))
            loss.backward()
            optimizer.step()
            watching.step(loss)
        watching.close()
        assert {f.rule for f in watching.findings().alarming} == expected


def functional_training(own):
    """Six watched steps with the model's own parameters, or with others by functional_call."""
    model = net()
    params = {name: p.detach().clone().requires_grad_() for name, p in model.named_parameters()}
    trained = dict(model.named_parameters()) if own else params
    optimizer = torch.optim.SGD(trained.values(), lr=0.1)
    torch.manual_seed(1)
    with nv.watch(model, optimizer, every=1, parameters=None if own else params, checks=False) as watching:
        for _ in range(6):
            x, y = torch.randn(5, 6), torch.randint(0, 3, (5,))
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x) if own else torch.func.functional_call(model, params, (x,)), y)
            loss.backward()
            optimizer.step()
            watching.step(loss)
    assert watching.meta["untrained"] == {} and watching.meta["groups"][0]["parameters"] == list(params)
    assert not [f for f in watching.findings() if f.rule == "frozen"]
    return {(r.step, r.vital, r.site, r.metric): r.value for r in watching.measurements}


def test_functional_training_is_measured_like_any_other_where_its_parameters_are_given():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        own, given = functional_training(True), functional_training(False)
    assert {vital for _, vital, _, _ in given} >= {"gates", "gradients", "drift", "optimizer", "outputs", "training"}
    assert own.keys() == given.keys()
    for key, value in own.items():
        assert given[key] == pytest.approx(value, rel=1e-5, abs=1e-8, nan_ok=True), key


def test_parameters_of_no_use_get_a_sentence():
    model = net()
    for wrong, message in (
        ({"nowhere": torch.ones(1)}, "no parameter of that name"),
        ({"0.weight": torch.ones(1)}, "shape"),
        ([torch.ones(1)], "a dict from names to tensors"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            nv.watch(model, parameters=wrong)


def test_the_step_of_an_optimizer_inside_another_is_not_counted_twice():
    class Slow(torch.optim.Optimizer):
        def __init__(self, inner):
            self.inner = inner
            super().__init__(inner.param_groups, {})

        def step(self, closure=None):
            return self.inner.step(closure)

    model = net()
    optimizer = Slow(torch.optim.SGD(model.parameters(), lr=0.1))
    with nv.watch(model, every=1, vitals=["gradients"]) as watching:
        for _ in range(3):
            F.cross_entropy(model(torch.randn(5, 6)), torch.randint(0, 3, (5,))).backward()
            optimizer.step()
    assert watching._step == 3


def test_a_loop_that_moves_parameters_by_hand_counts_calls():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)  # made and given, but never used
    with nv.watch(model, optimizer, every=2, vitals=["gates"]) as watching:
        for _ in range(6):
            F.cross_entropy(model(torch.randn(5, 6)), torch.randint(0, 3, (5,))).backward()
            with torch.no_grad():
                for p in model.parameters():
                    p -= 0.1 * p.grad
                    p.grad = None
            watching.step(1.0)
    assert sorted({r.step for r in watching.measurements if r.vital == "gates"}) == [0, 2, 4]


def test_wrappers_are_taken_off():
    inner = torch.optim.SGD(net().parameters(), lr=0.1)
    lightning = pytest.importorskip("lightning.pytorch.core.optimizer")
    fabric = pytest.importorskip("lightning.fabric.wrappers")
    accelerate = pytest.importorskip("accelerate.optimizer")
    pytest.importorskip("accelerate").Accelerator(cpu=True)
    wrapped = [
        lightning.LightningOptimizer(inner),
        fabric._FabricOptimizer(inner, strategy=None),
        accelerate.AcceleratedOptimizer(inner),
    ]
    assert all(inner_optimizer(one) is inner for one in wrapped)
    assert inner_optimizer(inner) is inner


def test_hooks_of_torch_are_gone_when_the_watch_is():
    from torch.optim import optimizer as of_torch

    before = len(of_torch._global_optimizer_pre_hooks), len(of_torch._global_optimizer_post_hooks)
    with nv.watch(net(), every=1):
        assert len(of_torch._global_optimizer_post_hooks) == before[1] + 2
    assert before == (len(of_torch._global_optimizer_pre_hooks), len(of_torch._global_optimizer_post_hooks))
