"""Every vital sign that wrote nothing has a line in ``skipped``, and what a model returns is found wherever it is."""

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv
from netvitals.vitals import names

CLASSES = 7


def train(model, loss_of, steps=3, give=True, every=1, **options):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with nv.watch(model, optimizer, every=every, **options) as watching:
        for _ in range(steps):
            loss = loss_of(model)
            if loss is None:
                optimizer.step()
                continue
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watching.step(loss if give else None)
    return watching


def silent(watching):
    """Default vital signs without a measurement and without a line."""
    wrote = {r.vital for r in watching.measurements} | {a.vital for a in watching.arrays}
    about = lambda name: any(
        p == name or p.startswith(f"{name}: ") or p.endswith(f"({name})") for p in watching.skipped
    )
    return [name for name in names(default=True) if name not in wrote and not about(name)]


@dataclasses.dataclass
class Out:
    loss: torch.Tensor
    logits: torch.Tensor


class Returns(nn.Module):
    """Its loss is taken inside forward; what it returns is one of several things."""

    def __init__(self, how):
        super().__init__()
        torch.manual_seed(0)
        self.body, self.head, self.how = nn.Sequential(nn.Linear(4, 9), nn.ReLU()), nn.Linear(9, CLASSES), how

    def forward(self, x, y):
        logits = self.head(self.body(x))
        loss = F.cross_entropy(logits, y)
        return {
            "dict": lambda: {"loss": loss, "logits": logits},
            "dict with another name": lambda: {"loss": loss, "pred": logits},
            "tuple": lambda: (loss, logits),
            "dataclass": lambda: Out(loss, logits),
            "nested": lambda: {"loss": loss, "heads": [Out(loss, logits)]},
        }[self.how]()


def first(output):
    return output.loss if isinstance(output, Out) else output["loss"] if isinstance(output, dict) else output[0]


def accuracy_by_hand(model, batches):
    out = []
    with torch.no_grad():
        for x, y in batches:
            out.append((model.head(model.body(x)).argmax(1) == y).float().mean().item())
    return out


@pytest.mark.parametrize("how", ["dict", "dict with another name", "tuple", "dataclass", "nested"])
def test_outputs_are_read_wherever_the_logits_are(how):
    model = Returns(how)
    torch.manual_seed(1)
    batches = iter([(torch.randn(16, 4), torch.randint(0, CLASSES, (16,))) for _ in range(3)])
    before = []

    def loss_of(model):
        x, y = next(batches)
        before.extend(accuracy_by_hand(model, [(x, y)]))
        return first(model(x, y))

    watching = train(model, loss_of)
    found = {(r.step, r.metric): r.value for r in watching.measurements if r.vital == "outputs"}
    for step in (0, 2):
        assert found[step, "scale"] == pytest.approx(1, abs=1e-5) and found[step, "misfit"] < 1e-5
        assert found[step, "accuracy"] == pytest.approx(before[step], abs=1e-6)
        assert found[step, "classes"] == CLASSES
    assert silent(watching) == [] and "outputs" not in watching.skipped


def test_outputs_of_hugging_face_models_are_their_logits():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    tiny = {"n_embd": 16, "n_layer": 2, "n_head": 2, "vocab_size": 23, "n_positions": 12}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**tiny))
    ids = torch.randint(0, 23, (4, 12))
    watching = train(model, lambda model: model(input_ids=ids, labels=ids).loss)
    found = {r.metric: r.value for r in watching.measurements if r.vital == "outputs" and r.step == 0}
    assert found["classes"] == 23 and found["rows"] == 4 * 11  # the last position has no label
    assert found["scale"] == pytest.approx(1, rel=1e-3) and found["misfit"] < 1e-3
    assert silent(watching) == []


class Graph(nn.Module):
    """Layers with a sum over neighbours between them."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = nn.Linear(4, 8), nn.Linear(8, CLASSES)
        self.register_buffer("edges", (torch.rand(16, 16) < 0.3).float())

    def forward(self, x):
        return self.edges @ self.b(self.edges @ self.a(x).relu())


class Reused(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.into, self.step, self.out = nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, CLASSES)

    def forward(self, x):
        h = self.into(x)
        for _ in range(3):
            h = self.step(h).tanh()
        return self.out(h)


MODELS = {
    "a perceptron": lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, CLASSES)),
    "a graph network": Graph,
    "reused modules": Reused,
    "one layer": lambda: nn.Linear(4, CLASSES),
    "a regression": lambda: nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 1)),
}


@pytest.mark.parametrize("kind", MODELS)
def test_nothing_is_missing_without_a_word(kind, tmp_path):
    x, y = torch.randn(16, 4), torch.randint(0, CLASSES, (16,))

    def loss_of(model):
        out = model(x)
        return F.cross_entropy(out, y) if out.shape[1] > 1 else out.square().mean()

    watching = train(MODELS[kind](), loss_of, run=tmp_path / "run")
    assert silent(watching) == []
    assert watching.skipped["attention"] == "no attention was found"
    assert nv.open_run(tmp_path / "run").meta["skipped"] == watching.skipped
    measured = {r.site for r in watching.measurements if r.vital == "imbalance"}
    if kind == "a graph network":
        assert measured == set() and "lies between" in watching.skipped["a→b (imbalance)"]
    if kind == "one layer":
        assert measured == set() and "no two layers" in watching.skipped["imbalance"]
    if kind == "a regression":
        assert "two or more outputs" in watching.skipped["outputs"]


def test_a_forward_that_raises_has_a_line_and_the_next_one_is_measured():
    class Sometimes(nn.Sequential):
        left = 1

        def forward(self, x):
            out = super().forward(x)
            if self.left:
                self.left -= 1
                raise ValueError("a bad batch")
            return out

    def loss_of(model):
        try:
            return model(torch.randn(8, 4)).square().mean()
        except ValueError:
            return None

    parts = lambda: (nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, CLASSES))
    watching = train(Sometimes(*parts()), loss_of)
    assert {r.step for r in watching.measurements if r.vital == "gates"} == {1, 2}
    assert "raised ValueError" in watching.skipped["forward"] and "gates" not in watching.skipped
    always = Sometimes(*parts())
    always.left = 99
    watching = train(always, loss_of)
    assert "raised ValueError" in watching.skipped["gates"] and silent(watching) == []


def test_a_loss_that_is_never_given_has_a_line():
    loss_of = lambda model: model(torch.randn(8, 4)).square().mean()
    assert "call vitals.step(loss)" in train(MODELS["a perceptron"](), loss_of, give=False).skipped["loss"]
    assert "loss" not in train(MODELS["a perceptron"](), loss_of).skipped


def test_a_watch_that_measures_nothing_says_so():
    watching = nv.watch(MODELS["a perceptron"](), every=1)
    watching.close()
    assert silent(watching) == []
