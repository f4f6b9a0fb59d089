"""One signature for everything that runs a model, and results that are read, kept and shown in one way."""

import inspect
import json

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from netvitals import curvature
from netvitals.capture.result import Result
from netvitals.curvature import between_layers

ORDER = ("mode", "only", "nodes", "seed", "progress")
MEASURES = {
    "between_layers": {"probes": 4},
    "between_layers in parameter space": {"probes": 4, "space": "parameter"},
    "between_layers exactly": {"method": "exact"},
    "cost": {"probes": 4},
    "graph": {"probes": 4},
    "trace": {"probes": 4},
    "top_eigenvalues": {"k": 2},
    "spectral_density": {"steps": 4, "runs": 2},
}
CONTEXTS = ("operators", "node_jacobians")


def measure(case, *args, **more):
    return getattr(curvature, case.split()[0])(*args, **MEASURES.get(case, {}), **more)


def enter(context):
    """A context begins its work when it is entered."""
    with context:
        pass


class Named(nn.Module):
    """Eight layers, so that tables have to be cut."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(8))
        self.act, self.head = nn.Tanh(), nn.Linear(4, 3)

    def forward(self, x):
        for layer in self.layers:
            x = self.act(layer(x))
        return self.head(x)


@pytest.fixture
def task():
    torch.manual_seed(0)
    return Named(), torch.randn(6, 4), torch.randint(0, 3, (6,))


@pytest.mark.parametrize("name", [*dict.fromkeys(c.split()[0] for c in MEASURES), *CONTEXTS, "activation_bend"])
def test_the_order_and_the_names_are_the_same_everywhere(name):
    parameters = inspect.signature(getattr(curvature, name)).parameters
    plain = [n for n, p in parameters.items() if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    assert plain == (["model", "batch"] if name == "activation_bend" else ["model", "loss_fn", "batch"])
    assert all(p.kind is inspect.Parameter.KEYWORD_ONLY for n, p in parameters.items() if n not in plain)
    named = [n for n in parameters if n not in plain]
    assert named[: sum(n in ORDER for n in named)] == [n for n in ORDER if n in named]  # ours first, in one order
    assert parameters["mode"].default == "as_is" and "train" not in parameters
    assert parameters["seed"].default == 0 if "seed" in parameters else True


@pytest.mark.parametrize("case", MEASURES)
def test_pairs_dicts_and_names_of_losses_give_the_same_numbers(case, task):
    model, x, y = task
    found = [
        measure(case, model, F.cross_entropy, (x, y)).to_dict(),
        measure(case, model, "ce", {"x": x, "labels": y}).to_dict(),
        measure(case, model, nn.CrossEntropyLoss(), [x, y], mode="eval").to_dict(),
    ]
    for numbers in found:
        numbers.pop("seconds", None)  # of a plan: a time
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("name", CONTEXTS)
def test_contexts_take_the_same_batches(name, task):
    model, x, y = task
    seen = []
    for loss, batch in ((F.cross_entropy, (x, y)), ("ce", {"x": x, "labels": y})):
        with getattr(curvature, name)(model, loss, batch) as of:
            first = of.names[0]
            seen.append(of.block(first, first).dense() if name == "operators" else of.output(first))
    assert torch.equal(*seen)


def test_jacobians_that_are_printed_say_how_they_are_used(task):
    model, x, y = task
    text = str(curvature.node_jacobians(model, "ce", (x, y)))
    assert text.startswith("node_jacobians of Named") and "with curvature.node_jacobians(...) as found:" in text


@pytest.mark.parametrize("case", [*MEASURES, *CONTEXTS])
def test_the_old_order_is_refused_with_a_sentence(case, task):
    model, x, y = task
    with pytest.raises(TypeError, match=r"the order of arguments is \(model, loss_fn, batch\)"):
        enter(measure(case, model, (x, y), F.cross_entropy))


@pytest.mark.parametrize("case", [*MEASURES, "activation_bend"])
def test_results_are_one_screen_plain_data_and_html(case, task):
    model, x, y = task
    args = (model, (x, y)) if case == "activation_bend" else (model, "ce", (x, y))
    found = measure(case, *args)
    assert isinstance(found, Result) and isinstance(found.skipped, dict)
    text = str(found)
    assert len(text.splitlines()) <= 45 and "array(" not in text and "tensor(" not in text
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["skipped"] == found.skipped
    assert found._repr_html_().startswith("<pre")
    if case == "cost":
        with pytest.raises(TypeError, match="CostEstimate is not a table"):
            found.to_frame()
    else:
        assert len(found.to_frame()) == len(found.rows()) > 0


def test_the_frame_has_one_row_a_pair(task):
    model, x, y = task
    found = between_layers(model, "ce", (x, y), nodes=["layers.*"], probes=4)
    frame = found.to_frame()
    assert len(frame) == 36 and frame.columns[:3] == ["v", "w", "resonance"]
    row = frame.filter(v="layers.1", w="layers.3").row(0, named=True)
    at = found.at("layers.1", "layers.3")
    assert {k: row[k] for k in at} == at and row["spectral_norm"] == found.spectral_norm[1, 3]


def test_long_tables_are_cut_and_say_so(task):
    _, x, y = task
    deep = nn.Sequential(*[m for _ in range(40) for m in (nn.Linear(4, 4), nn.Tanh())], nn.Linear(4, 3))
    found = between_layers(deep, "ce", (x, y), nodes=[str(2 * i + 1) for i in range(40)], probes=4)
    assert len(str(found).splitlines()) <= 45 and "… and 28 more nodes" in str(found)
    traced = curvature.trace(deep, "ce", (x, y), probes=2)
    assert len(str(traced).splitlines()) == 31 and "… and 53 more" in str(traced)  # 82 tensors
    whole = curvature.decay(found)
    assert len(str(whole).splitlines()) <= 31 and len(whole.to_frame()) == 40


def test_frozen_parameters_and_vectors_are_listed(task):
    model, x, y = task
    model.layers[0].requires_grad_(False)
    traced = curvature.trace(model, "ce", (x, y), probes=2)
    assert traced.skipped == {"layers.0.weight": "frozen", "layers.0.bias": "frozen"}
    normed = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 3))
    found = between_layers(normed, "ce", (x, y), probes=2, space="parameter")
    assert found.skipped == {"1": "holds only vectors"}


def test_modes(task):
    _, x, y = task
    net = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Dropout(0.5), nn.Tanh(), nn.Linear(5, 3))
    net[1].running_var.fill_(4.0)
    with pytest.raises(ValueError, match="pass mode='eval'"):
        between_layers(net, "ce", (x, y), probes=4)
    trained, evaluated = (between_layers(net, "ce", (x, y), probes=4, nodes=["0"], mode=m) for m in ("train", "eval"))
    assert trained.resonance[0, 0] != pytest.approx(evaluated.resonance[0, 0], rel=0.1)
    again = between_layers(net.eval(), "ce", (x, y), probes=4, nodes=["0"])
    assert again.resonance == pytest.approx(evaluated.resonance)
    with pytest.raises(ValueError, match="mode= must be 'train', 'eval' or 'as_is'"):
        between_layers(net, "ce", (x, y), mode=True)


def test_the_bend_of_chosen_layers():
    torch.manual_seed(0)
    net = nn.ModuleDict({"a": nn.Tanh(), "b": nn.GELU(), "c": nn.SiLU()})
    net.forward = lambda x: net["b"](net["a"](x))
    x = torch.randn(50, 2)
    found = curvature.activation_bend(net, (x, x.sum(1)))
    assert set(found.by_layer) == {"a", "b"} and found.skipped == {"c": "not called in the forward pass"}
    assert "c (not called" in str(found)
    for only in ("a", ["a"], "[a]", lambda name: name == "a"):
        assert curvature.activation_bend(net, x, only=only).by_layer == {"a": found.by_layer["a"]}
    with pytest.raises(ValueError, match=r"no activation module was found for 'z\*'"):
        curvature.activation_bend(net, x, only="z*")
