"""Everything public in ``singular`` that runs a model takes (model, loss_fn, batch) and gives a result of one kind."""

import inspect
import json

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from netvitals import singular
from netvitals.capture.loss import likelihood_of
from netvitals.capture.result import Result
from netvitals.singular.checkpoint.attention import value_output
from netvitals.singular.checkpoint.dead_directions import measure
from netvitals.singular.checkpoint.layernorm import ln_kernel_test
from netvitals.singular.checkpoint.readout import spectrum_along
from netvitals.singular.checkpoint.stream import sigma_stream
from netvitals.singular.moments.schur import schur_profile
from netvitals.singular.orders.nature import along

KEYWORDS = ("mode", "only", "seed", "progress")


class Net(nn.Module):
    """A residual stream with a norm and a hidden layer; answers as a tensor, or as an output with logits. Where it
    ``attends`` examples read each other.
    """

    attends = False

    def __init__(self, named: bool = False):
        super().__init__()
        self.into, self.norm = nn.Linear(4, 6), nn.LayerNorm(6)
        self.v, self.out = nn.Linear(6, 6), nn.Linear(6, 6)
        self.hidden, self.head = nn.Linear(6, 5), nn.Linear(5, 3)
        self.named = named

    def forward(self, x):
        stream = self.into(x)
        v = self.v(self.norm(stream))
        stream = stream + self.out((v @ v.T).softmax(-1) @ v if self.attends else v)
        logits = self.head(torch.tanh(self.hidden(stream)))
        return {"logits": logits, "hidden": stream} if self.named else logits


def task(named: bool = False):
    torch.manual_seed(0)
    return Net(named), torch.randn(30, 4), torch.randint(0, 3, (30,))


def of_a_direction(model, batch):
    outputs, theta, v = along(model, batch, direction={"head.bias": torch.ones(3)})
    return singular.gauge_or_singular(outputs, theta, v, "categorical")


def history(model, loss_fn, batch):
    states = {0: model.state_dict()}
    return singular.coefficient_history(model, loss_fn, batch, checkpoints=states, chains=1, draws=3)


def spectra(model, loss_fn, batch):
    return singular.spectra_history(model, loss_fn, batch, checkpoints={0: model.state_dict()}, keep=2)


def attended(model, loss_fn, batch):
    model.attends = True
    return value_output(model, loss_fn, batch)


def along_a_candidate(model, loss_fn, batch):
    kept = singular.readout(model, loss_fn, batch, units=1, only="head", chains=0).candidates[-1]
    return spectrum_along(model, loss_fn, batch, candidate=kept, examples=4)


WITH_LOSS = {
    "kfac": singular.kfac,
    "readout": lambda *a: singular.readout(*a, units=1, chains=0),
    "measure": measure,
    "spectrum_along": along_a_candidate,
    "value_output": attended,
    "learning_coefficient": lambda *a: singular.learning_coefficient(*a, chains=1, draws=3),
    "coefficient_history": history,
    "coefficient_by_part": lambda *a: singular.coefficient_by_part(*a, parts={"head": "head.*"}, chains=1, draws=3),
    "rates": lambda *a: singular.rates(*a, ts=(1e-3, 2e-3, 4e-3)),
    "spectra_history": spectra,
    "pruning_plan": lambda *a: singular.pruning_plan(*a, only="*head"),
    "safe_directions": lambda *a: singular.safe_directions(*a, only="head.*"),
}
WITHOUT_LOSS = {
    "schur_profile": lambda *a: schur_profile(*a, references=1),
    "sigma_stream": lambda *a: sigma_stream(*a, nodes=["into", "norm"]),
    "ln_kernel_test": ln_kernel_test,
    "tangential_lora": lambda *a: singular.tangential_lora(*a, rank=1),
    "along": of_a_direction,
}


PARTS = (along, ln_kernel_test, measure, schur_profile, sigma_stream, spectrum_along, value_output)
KNOWN = {n: getattr(singular, n) for n in singular.__all__} | {f.__name__: f for f in PARTS}


def test_every_function_that_takes_a_model_is_known_here():
    takes_one = {n for n, f in KNOWN.items() if inspect.isfunction(f) and "model" in inspect.signature(f).parameters}
    assert takes_one == set(WITH_LOSS) | set(WITHOUT_LOSS)


def test_the_front_has_twenty_names_and_one_entry():
    assert len(singular.__all__) == 20 and set(dir(singular)) == set(singular.__all__)
    model, x, y = task()
    found = singular.readout(model, "ce", (x, y), units=1, chains=0, static=True)
    assert [k.norm for k in found.static.kernels] == ["norm"] and found.static.schur
    assert str(found.static.kernels[0]) in str(found)
    assert singular.readout(model, "ce", (x, y), units=1, chains=0).static is None
    with pytest.raises(AttributeError, match="it has classify_spectrum"):
        singular.schur_profile  # noqa: B018


@pytest.mark.parametrize("name", [*WITH_LOSS, *WITHOUT_LOSS])
def test_order_and_names(name):
    parameters = list(inspect.signature(KNOWN[name]).parameters.values())
    first = ["model", "loss_fn", "batch"] if name in WITH_LOSS else ["model", "batch"]
    assert [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD] == first
    given = [p.name for p in parameters if p.name in KEYWORDS]
    assert given == [k for k in KEYWORDS if k in given], "the common keywords come in one order"
    assert not {"train", "manner", "samples", "names", "loader", "loss"} & {p.name for p in parameters}
    assert "Args:" in (KNOWN[name].__doc__ or "")


def readable(found):
    assert isinstance(found, Result) and len(str(found).splitlines()) <= 45
    assert "skipped" in json.loads(json.dumps(found.to_dict()))
    return found


@pytest.mark.parametrize("name", [*WITH_LOSS, *WITHOUT_LOSS])
def test_batches_of_any_kind_give_the_same(name):
    """A pair, a dict with labels, and a model whose output holds logits among others."""
    model, x, y = task()
    named = task(named=True)[0]
    call = (lambda m, b: WITH_LOSS[name](m, "ce", b)) if name in WITH_LOSS else WITHOUT_LOSS[name]
    plain = readable(call(model, (x, y)))
    for other in (call(model, {"x": x, "labels": y}), call(named, (x, y)), call(named, {"x": x, "labels": y})):
        # a model that also hands out a hidden state says so where it is asked why a layer has no link
        assert str(readable(other)).replace("its output leaves the model; ", "") == str(plain)


@pytest.mark.parametrize("name", list(WITH_LOSS))
def test_losses_by_name_and_by_torch_are_one(name):
    model, x, y = task()
    assert str(WITH_LOSS[name](model, nn.CrossEntropyLoss(), (x, y))) == str(WITH_LOSS[name](model, "ce", (x, y)))


@pytest.mark.parametrize("name", list(WITH_LOSS))
def test_the_old_order_gets_the_sentence(name):
    model, x, y = task()
    with pytest.raises(TypeError, match=r"the order of arguments is \(model, loss_fn, batch\)"):
        WITH_LOSS[name](model, (x, y), "ce")


@pytest.mark.parametrize("name", [n for n in WITH_LOSS if "coefficient" not in n])
def test_a_loss_that_is_no_likelihood_gets_a_sentence(name):
    model, x, y = task()
    with pytest.raises(ValueError, match="pass loss_fn as 'ce' or 'mse'"):
        WITH_LOSS[name](model, lambda output, target: output.mean(), (x, y))


class TwoInputs(nn.Module):
    """A model as libraries of language models have them: keywords, a mask, and its own loss."""

    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(7, 4), nn.Linear(4, 7)

    def forward(self, input_ids, attention_mask, labels=None):
        logits = self.head(self.table(input_ids) * attention_mask[..., None])
        loss = None if labels is None else nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        return {"loss": loss, "logits": logits}


def test_a_loader_of_dicts_is_read_once_and_whole():
    torch.manual_seed(0)
    model, ids = TwoInputs().double(), torch.randint(0, 7, (12, 5))
    whole = {"input_ids": ids, "attention_mask": torch.ones(12, 5, dtype=torch.float64), "labels": ids.roll(1, 1)}
    loader = DataLoader([{k: v[i] for k, v in whole.items()} for i in range(12)], batch_size=4)
    options = {"chains": 2, "draws": 4, "only": "head.*", "step_size": 1e-3}
    one, read = (singular.learning_coefficient(model, "ce", b, **options) for b in (whole, loader))
    own = singular.learning_coefficient(model, None, loader, **options)
    assert one.n == read.n == own.n == 12 and one.parameters == 35
    logits = model(**{k: v for k, v in whole.items() if k != "labels"})["logits"]
    exact = nn.functional.cross_entropy(logits.flatten(0, 1), whole["labels"].flatten()).item()
    assert one.baseline == pytest.approx(exact, rel=1e-12)
    assert read.mean == pytest.approx(one.mean, rel=1e-9) and own.mean == pytest.approx(one.mean, rel=1e-9)
    minibatch = singular.learning_coefficient(model, "ce", loader, batch_size=4, **options)
    assert minibatch.trace.shape == (2, 4) and torch.isfinite(torch.tensor(minibatch.mean))


def test_batches_that_do_not_fit_together_get_a_sentence():
    model = nn.Linear(3, 1)
    with pytest.raises(ValueError, match="cannot be concatenated"):
        singular.learning_coefficient(model, "mse", [(torch.ones(2, 3), torch.ones(2, 1)), (torch.ones(2, 4),) * 2])
    with pytest.raises(ValueError, match="same number of examples"):
        singular.learning_coefficient(model, "mse", (torch.ones(5, 3), torch.ones(4, 1)))


def test_an_output_of_several_tensors_gets_a_sentence():
    class Pair(nn.Linear):
        def forward(self, x):
            return super().forward(x), x

    with pytest.raises(ValueError, match="Pair returns a tuple with 2 tensors, but this measurement needs one"):
        singular.kfac(Pair(4, 3), "mse", torch.randn(2, 4))


def test_only_takes_patterns_and_refuses_what_is_not_there():
    model, x, y = task()
    assert list(singular.kfac(model, "ce", (x, y), only=["h*"]).layers) == ["hidden", "head"]
    moved = singular.readout(model, "ce", (x, y), only="hidden", units=1).candidates
    assert moved and all("hidden.weight" in c.direction for c in moved)
    for call in (
        lambda: singular.kfac(model, "ce", x, only="body"),
        lambda: schur_profile(model, x, only="body"),
        lambda: singular.tangential_lora(model, x, only=["head", "body"]),
        lambda: singular.learning_coefficient(model, "ce", (x, y), only="body"),
        lambda: singular.readout(model, "ce", (x, y), only="body"),
    ):
        with pytest.raises(ValueError, match=r"there is no .* 'body'"):
            call()


def test_progress_of_a_readout_counts_its_directions():
    model, x, y = task()
    seen = []
    found = singular.readout(model, "ce", (x, y), units=1, progress=lambda done, planned: seen.append((done, planned)))
    assert seen == [(i + 1, len(found.candidates)) for i in range(len(found.candidates))]


@pytest.mark.parametrize(("target", "kind"), [(torch.tensor([1, 2]), "ce"), (torch.tensor([0.5]), "mse")])
def test_without_a_loss_the_target_says_the_likelihood(target, kind):
    assert likelihood_of(None, target) == kind
    with pytest.raises(ValueError, match="no loss_fn and no target"):
        likelihood_of(None)
