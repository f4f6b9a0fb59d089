"""One registry: every vital sign is in it, works by its name, and describes exactly what it writes."""

import importlib
import inspect
import json
import pkgutil
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv
from netvitals import vitals
from netvitals.capture import Metric, Vital, WatchContext
from netvitals.report.glossary import CHECKUP, SIGNS, sign
from netvitals_lab import models

DEFAULT = [
    "gates",
    "preactivations",
    "drift",
    "sparsity",
    "spikes",
    "imbalance",
    "rank",
    "stream",
    "gradients",
    "optimizer",
    "attention",
    "experts",
    "inputs",
    "outputs",
    "training",
]
OPTIONAL = [
    "plateau",
    "accounting",
    "stream_floor",
    "kfac_floor",
    "orders",
    "gauge_charges",
    "curvature",
    "ranks",
]


def conv(seed=0):
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Conv2d(1, 6, 3), nn.ReLU(), nn.Conv2d(6, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(24, 3))
    return net, torch.randn(48, 1, 6, 6), torch.randint(0, 3, (48,)), F.cross_entropy


def gpt(seed=0):
    net = models.build("gpt-micro,depth=2,width=16,heads=2", seed=seed)
    x, y = torch.randint(0, 256, (2, 4, 16), generator=torch.Generator().manual_seed(seed))
    return net, x, y, lambda out, target: F.cross_entropy(out.flatten(0, -2), target.flatten())


def normed(seed=0):
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.GELU(), nn.Linear(8, 3))
    return net, torch.randn(32, 8), torch.randint(0, 3, (32,)), F.cross_entropy


def mixture(seed=0):
    """A gated MLP and a mixture of experts."""

    class Mixture(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate, self.up = nn.Linear(8, 8), nn.Linear(8, 8)
            self.router, self.experts = nn.Linear(8, 4), nn.ModuleList(nn.Linear(8, 3) for _ in range(4))

        def forward(self, x):
            x = F.silu(self.gate(x)) * self.up(x)
            weights, chosen = self.router(x).softmax(-1).topk(2, -1)
            out = x.new_zeros(len(x), 3)
            for i, expert in enumerate(self.experts):
                rows, place = torch.where(chosen == i)
                out = out.index_add(0, rows, expert(x[rows]) * weights[rows, place, None])
            return out

    torch.manual_seed(seed)
    return Mixture(), torch.randn(32, 8), torch.randint(0, 3, (32,)), F.cross_entropy


def watched(made, names, *, with_probe, steps=12, micro=1, kind=torch.optim.SGD, **options):
    net, x, y, loss_fn = made()
    opt = kind(net.parameters(), lr=0.01)
    probe = (x, y, loss_fn) if with_probe else None
    with nv.watch(net, optimizer=opt, every=1, vitals=names, probe=probe, **options) as seen:
        for _ in range(steps):
            opt.zero_grad()
            for _ in range(micro):
                loss = loss_fn(net(x), y)
                loss.backward()
                if micro > 1:
                    seen.step(loss)
            opt.step()
            if micro == 1:
                seen.step(loss)
    return seen


@pytest.fixture(scope="module")
def written():
    """(vital, metric) of every number and array of four runs, in which every vital sign has something to look at."""
    runs = [
        watched(conv, ["default", *(n for n in OPTIONAL if n != "stream_floor")], with_probe=True),
        watched(gpt, ["default", "stream_floor", "kfac_floor", "attention"], with_probe=False),
        watched(mixture, ["gates", "experts"], with_probe=False),
        watched(normed, ["default"], with_probe=False, kind=torch.optim.AdamW, total_steps=12),
        watched(normed, ["ranks"], with_probe=False, micro=2),
    ]
    return {(r.vital, r.metric) for run in runs for r in (*run.measurements, *run.arrays) if r.vital != "loss"}


def test_every_watcher_of_the_room_is_registered_and_complete():
    classes = set()
    for module in pkgutil.walk_packages(vitals.__path__, "netvitals.vitals."):
        room = importlib.import_module(module.name)
        classes |= {
            c
            for _, c in inspect.getmembers(room, inspect.isclass)
            if issubclass(c, Vital) and c.__module__ == room.__name__
        }
    assert classes == set(vitals.REGISTRY.values())
    assert vitals.names(default=True) == DEFAULT and vitals.names(default=False) == OPTIONAL
    for name, vital in vitals.REGISTRY.items():
        assert vital.name == name and vital.title and vital.meaning.endswith(".") and vital.metrics
        assert all(isinstance(m, Metric) and m.meaning for m in vital.metrics.values())
        assert vital.every >= 1 and vital.min_steps >= 1 and set(vital.every_by_method) <= set(dir(vital))
        assert vital.headline and all(vital.described(h) for h in vital.headline)
        assert vitals.get(name).min_steps == vital.min_steps  # the registry tells the truth about an instance


def test_nothing_but_watchers_lives_in_the_room():
    """Functions that measure are in the rooms of their papers; here only what the registry needs."""
    found = {}
    for module in pkgutil.walk_packages(vitals.__path__, "netvitals.vitals."):
        room = importlib.import_module(module.name)
        found[module.name.removeprefix("netvitals.vitals.")] = [
            n
            for n, f in inspect.getmembers(room, inspect.isfunction)
            if f.__module__ == room.__name__ and not n.startswith("_")
        ]
    assert {name: functions for name, functions in found.items() if functions} == {"curvature": ["monitor"]}  # old name


def test_every_metric_that_is_written_is_described(written):
    unknown = {(v, m) for v, m in written if vitals.REGISTRY[v].described(m) is None}
    assert unknown == set()


def test_every_metric_that_is_described_is_written(written):
    described = {(name, pattern) for name, vital in vitals.REGISTRY.items() for pattern in vital.metrics}
    assert described - {(v, vitals.REGISTRY[v].described(m)) for v, m in written} == set()


def test_the_glossary_is_the_registry(written):
    assert set(SIGNS) == {*vitals.REGISTRY, *CHECKUP} and not set(CHECKUP) & set(vitals.REGISTRY)
    for name, vital in vitals.REGISTRY.items():
        entry = sign(name)
        assert (entry.title, entry.meaning, entry.headline) == (vital.title, vital.meaning, vital.headline)
        assert entry.metrics is vital.metrics
    assert all(
        sign(v).explain(m) == vitals.REGISTRY[v].metrics[vitals.REGISTRY[v].described(m)].meaning for v, m in written
    )
    assert sign("my_own").title == "My own" and sign("my_own").explain("x") == ""


def test_the_reference_is_written_from_the_registry():
    text = (Path(__file__).parents[2] / "docs" / "vital-signs.md").read_text(encoding="utf-8")
    assert text == vitals.reference(), "write it with `netvitals vitals --reference > docs/vital-signs.md`"
    assert vitals.table() in text and all(f"| `{name}` |" in vitals.table() for name in vitals.names())
    assert all(f"| `{m}` |" in text for vital in vitals.REGISTRY.values() for m in vital.metrics)


# ------------------------------------------------------------------ by name


@pytest.mark.parametrize("name", DEFAULT + OPTIONAL)
def test_each_works_alone_by_its_name_in_watch_and_checkup(name, recwarn):
    others = {"preactivations": normed, "experts": mixture}
    made = gpt if name in ("stream", "stream_floor", "attention") else others.get(name, conv)
    seen = watched(made, [name], with_probe=bool(vitals.REGISTRY[name].needs), steps=2)
    assert {r.vital for r in seen.measurements} == {"loss", name}
    net, x, y, loss_fn = made()
    if name in ("accounting", "ranks"):
        with pytest.raises(ValueError, match="but a checkup makes no step"):
            nv.checkup(net, loss_fn, (x, y), vitals=[name])
        return
    if name == "optimizer":  # a checkup trains nothing
        found = nv.checkup(net, loss_fn, (x, y), vitals=["gates", name], curvature=False)
        assert {r.vital for r in found.measurements} == {"loss", "gates"}
        return
    found = nv.checkup(net, loss_fn, (x, y), vitals=[name], curvature=False)
    assert {r.vital for r in found.measurements} == {"loss", name}
    assert not [w for w in recwarn if "netvitals" in str(w.message)]


def test_default_among_names_adds_and_an_instance_takes_the_place_of_its_name():
    assert [v.name for v in vitals.choose(None)] == DEFAULT == [v.name for v in vitals.choose(["default"])]
    assert [v.name for v in vitals.choose(["default", "plateau"])] == [*DEFAULT, "plateau"]
    own = vitals.Gates(thetas=[0.5])
    chosen = vitals.choose(["default", own, "rank"])
    assert [v.name for v in chosen].count("gates") == [v.name for v in chosen].count("rank") == 1 and own in chosen
    with pytest.raises(TypeError, match="list of names or vital signs, got 'gates'"):
        vitals.choose("gates")
    with pytest.raises(ValueError, match="two vital signs have the name 'gates'"):
        nv.watch(conv()[0], vitals=["gates", "gates"])


@pytest.mark.parametrize("name", ["orders", "curvature"])
@pytest.mark.parametrize("probe", [False, True])
def test_what_is_missing_is_said_before_training(name, probe):
    net, x, y, _ = conv()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    given = {"probe": (x, y)} if probe else {}
    with pytest.raises(ValueError, match=rf"vital sign '{name}' .*pass probe=\(x, y, loss_fn\) to watch"):
        nv.watch(net, optimizer=opt, vitals=["default", name], **given)
    nv.watch(net, optimizer=opt).close()  # the refused watch left nothing behind


def test_a_forecast_asks_for_one_optimizer_where_steps_follow():
    net, x, y, loss_fn = conv()
    with pytest.raises(ValueError, match=r"'plateau' needs exactly one optimizer .* none was given: pass optimizer="):
        nv.watch(net, vitals=["plateau"], probe=(x, y, loss_fn))
    two = [torch.optim.SGD(part.parameters(), lr=0.1) for part in (net[0], net[2])]
    with pytest.raises(ValueError, match="2 were given"):
        nv.watch(net, vitals=["plateau"], probe=(x, y, loss_fn), optimizer=two)


def test_orders_refuse_a_loss_whose_likelihood_is_unknown():
    net, x, y, _ = conv()
    with pytest.raises(ValueError, match="the type of likelihood cannot be determined"):
        nv.watch(net, vitals=["orders"], probe=(x, y, lambda out, target: F.cross_entropy(out, target)))


def test_gauges_say_what_to_pass_where_no_input_can_be_guessed():
    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(3, 4), nn.Linear(4, 2)

        def forward(self, x, scale):
            return self.b(F.relu(self.a(x))) * scale

    with pytest.raises(ValueError, match=r"probe=\(x, y, loss_fn\)"):
        nv.watch(Pair(), vitals=["gauge_charges"])


def test_a_vital_sign_of_ones_own_is_given_the_context():
    class Own:
        name = "own"

        def begin(self, context):
            self.context = context

        def parameters(self, recorder, view):
            recorder.write("model", ("one",), torch.ones(1))

    net, x, y, loss_fn = conv()
    own, opt = Own(), torch.optim.SGD(net.parameters(), lr=0.1)
    nv.watch(net, optimizer=opt, probe=(x, y, loss_fn), vitals=[own]).close()
    assert isinstance(own.context, WatchContext) and own.context.model is net and own.context.training
    assert own.context.optimizers == (opt,) and own.context.fixed_batch("own")[0] is loss_fn
    nv.checkup(net, loss_fn, (x, y), vitals=["gates", own], curvature=False)
    assert not own.context.training and own.context.optimizer("own") is None


def test_the_schedule_keeps_what_the_registry_says():
    class Slow(Vital):
        name, min_steps = "slow", 5

        def parameters(self, recorder, view):
            recorder.write("model", ("one",), torch.ones(1))

    class Rare(Slow):
        name, min_steps, every = "rare", 1, 3

    seen = watched(normed, [Slow(), Rare(), "kfac_floor"], with_probe=False, steps=13)
    steps = {v: sorted({r.step for r in seen.measurements if r.vital == v}) for v in ("slow", "rare", "kfac_floor")}
    assert steps == {"slow": [0, 5, 10], "rare": [0, 3, 6, 9, 12], "kfac_floor": [0]}


def test_watching_with_every_vital_sign_changes_nothing():
    def run(names):
        net, x, y, loss_fn = conv()
        opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
        seen = None if names is None else nv.watch(net, optimizer=opt, every=1, vitals=names, probe=(x, y, loss_fn))
        for _ in range(4):
            opt.zero_grad()
            loss = loss_fn(net(x), y)
            loss.backward()
            opt.step()
            if seen is not None:
                seen.step(loss)
        if seen is not None:
            seen.close()
        return [p.detach().clone() for p in net.parameters()], torch.rand(2)

    (plain, draw), (watched_net, other) = run(None), run(["default", *OPTIONAL])
    assert torch.equal(draw, other) and all(torch.equal(p, q) for p, q in zip(plain, watched_net))


# ------------------------------------------------------------------ old names


# ------------------------------------------------------------------ the command


def test_the_command_lists_all_and_one(capsys):
    from netvitals.cli import main

    def run(*arguments):
        with pytest.raises(SystemExit) as left:
            main(list(arguments))
        captured = capsys.readouterr()
        return left.value.code, captured.out, captured.err

    code, text, _ = run("vitals")
    assert code == 0 and all(f"{name}  {vital.title}" in text for name, vital in vitals.REGISTRY.items())
    _, text, _ = run("vitals", "spikes")
    assert (
        "99.9 % quantile of the absolute activations (activation)" in text
        and "every 5th measured step" in text
        and "gates" not in text
    )
    _, text, _ = run("vitals", "--markdown")
    assert text.strip() == vitals.table()
    _, text, _ = run("vitals", "plateau", "--json")
    (entry,) = json.loads(text)
    assert entry["name"] == "plateau" and not entry["default"] and entry["metrics"]["escape"]["unit"] == "step"
    code, _, error = run("vitals", "spike")
    assert code == 2 and "did you mean spikes" in error
