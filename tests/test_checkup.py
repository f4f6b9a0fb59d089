"""One checkpoint, everything at once."""

import re
import sys
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv
from netvitals_lab import models


def small():
    return models.build("mlp:6-12x2-3,act=gelu"), (torch.randn(20, 6), torch.randint(0, 3, (20,)))


def state(model):
    return (
        {k: v.clone() for k, v in model.state_dict().items()},
        [p.grad for p in model.parameters()],
        [m.training for m in model.modules()],
        torch.get_rng_state(),
    )


def unchanged(one, two):
    return (
        all(torch.equal(one[0][k], two[0][k]) for k in one[0])
        and all(a is b for a, b in zip(one[1], two[1]))
        and one[2] == two[2]
        and torch.equal(one[3], two[3])
    )


def test_every_vital_sign_and_curvature_and_nothing_changed():
    model, batch = small()
    before = state(model)
    found = nv.checkup(model, F.cross_entropy, batch)
    assert unchanged(before, state(model))
    assert {r.vital for r in found.measurements} >= {
        "loss",
        "gates",
        "preactivations",
        "drift",
        "sparsity",
        "spikes",
        "imbalance",
        "rank",
        "gradients",
        "curvature",
    }
    assert found.loss == pytest.approx(F.cross_entropy(model(batch[0]), batch[1]).item(), rel=1e-6)
    assert [s.op for s in found.sites if s.kind == "activation"] == ["GELU", "GELU"]
    assert found.skipped == {}


def test_curvature_is_what_the_curvature_room_measures():
    model, batch = small()
    found = nv.checkup(model, F.cross_entropy, batch)
    direct = nv.curvature.between_layers(model, F.cross_entropy, batch, probes=10)
    assert found.curvature is not None and found.curvature.nodes == direct.nodes
    resonance = next(a.value for a in found.arrays if (a.vital, a.metric) == ("curvature", "resonance"))
    assert resonance == pytest.approx(direct.resonance, rel=1e-5)
    assert "gradient-equivalents" in found.curvature_note


def test_curvature_is_left_out_with_a_reason(monkeypatch):
    model, batch = small()
    found = nv.checkup(model, F.cross_entropy, batch, curvature=False)
    assert found.curvature is None and found.curvature_note == "not asked for"
    monkeypatch.setattr(sys.modules["netvitals.checkups"], "CURVATURE_TIMED", 10)
    found = nv.checkup(model, F.cross_entropy, batch, curvature_seconds=1e-9)
    assert found.curvature is None and "1e-09 s are allowed" in found.curvature_note
    found = nv.checkup(model, F.cross_entropy, batch, curvature_seconds=3600)
    assert found.curvature is not None and "keep to" not in found.curvature_note

    def rough(*_, **__):
        raise RuntimeError("no second derivative")

    monkeypatch.undo()
    monkeypatch.setattr(nv.curvature, "between_layers", rough)
    found = nv.checkup(model, F.cross_entropy, batch)
    assert found.curvature is None
    assert found.curvature_note == "could not be measured: RuntimeError: no second derivative"
    assert found.measurements


def test_curvature_of_a_large_model_keeps_to_its_time_and_says_what_was_left_out(monkeypatch):
    model, batch = small()
    monkeypatch.setattr(sys.modules["netvitals.checkups"], "CURVATURE_TIMED", 10)
    real, examples = nv.curvature.cost, []

    def slow(model, loss_fn, some, **options):  # a second for each example
        examples.append(len(some["x"] if isinstance(some, dict) else some[0]))
        return replace(real(model, loss_fn, some, **options), seconds=float(examples[-1]))

    monkeypatch.setattr(nv.curvature, "cost", slow)
    found = nv.checkup(model, F.cross_entropy, batch, curvature_seconds=2.0)
    have = len(batch[0])
    assert examples == [have, 2] and found.curvature.examples == 2
    assert f"2 of {have} examples, to keep to 2 s" in found.curvature_note
    found = nv.checkup(model, F.cross_entropy, batch, curvature_seconds=0.5)
    assert found.curvature.examples == 1 and "5 of 10 probes" in found.curvature_note
    by_dict = nv.checkup(model, F.cross_entropy, {"x": batch[0], "labels": batch[1]}, curvature_seconds=2.0)
    assert by_dict.curvature is not None and by_dict.curvature.examples == 2


def test_findings_and_words():
    model, batch = small()
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(0.0)
    found = nv.checkup(model, F.cross_entropy, batch, curvature=False)
    text = str(found)
    assert text.startswith("Checkup of MLP: loss 1.09861") and "curvature: not asked for" in text
    assert str(found.findings()) in text


def test_the_page_is_written(tmp_path):
    model, batch = small()
    path = nv.checkup(model, F.cross_entropy, batch).to_html(tmp_path / "checkup.html")
    page = path.read_text(encoding="utf-8")
    assert page.lstrip().lower().startswith("<!doctype html") and "gates" in page
    assert not re.search(r"(src|href)=.https?:", page)


def test_a_model_with_batch_norm_and_dropout_is_left_as_it_was():
    model = models.build("resnet-mini,width=4,channels=3,classes=4,dropout=0.2")
    model.stem.eval()
    batch = torch.randn(6, 3, 8, 8), torch.randint(0, 4, (6,))
    F.cross_entropy(model(batch[0]), batch[1]).backward()
    before = state(model)
    found = nv.checkup(model, F.cross_entropy, batch)
    assert unchanged(before, state(model))
    assert {s.follows for s in found.sites if s.kind == "activation"} >= {"bn_direct", "post_add"}


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x):
        return self.layer(x)


def nan_at(i):
    batch = list(small()[1])
    batch[0][i, 0] = float("nan")
    return tuple(batch)


@pytest.mark.parametrize(
    ("model", "batch", "error", "sentence"),
    [
        (small()[0], nan_at(3), ValueError, "the input of the batch has 1 of 120 values that are NaN or infinite"),
        (
            models.build("mlp:6-8x2-3,norm=batch"),
            (torch.randn(1, 6), torch.tensor([0])),
            ValueError,
            "cannot compute statistics of a batch of one example",
        ),
        (Plain(), small()[1], ValueError, "no activation was found in Plain"),
        (
            small()[0],
            torch.randn(4, 6),
            TypeError,
            r"the batch must be a pair \(x, y\) or a dict with a target, got a Tensor",
        ),
        (small()[0], (torch.randn(0, 6), torch.zeros(0, dtype=torch.long)), ValueError, "the batch is empty"),
        ("model", small()[1], TypeError, "checkup needs a torch.nn.Module, got a str"),
    ],
)
def test_bad_input_gets_a_sentence_and_changes_nothing(model, batch, error, sentence):
    before = state(model) if isinstance(model, nn.Module) else None
    with pytest.raises(error, match=sentence):
        nv.checkup(model, F.cross_entropy, batch)
    assert before is None or unchanged(before, state(model))


def test_a_loss_that_is_no_number_and_a_model_that_is_broken():
    model, batch = small()
    with pytest.raises(ValueError, match="there is no loss 'cee'; did you mean ce"):
        nv.checkup(model, "cee", batch)
    with pytest.raises(TypeError, match=r"the order of arguments is \(model, loss_fn, batch\)"):
        nv.checkup(model, batch, F.cross_entropy)
    with torch.no_grad():
        next(model.parameters()).fill_(float("nan"))
    with pytest.raises(ValueError, match="the loss on this batch is nan"):
        nv.checkup(model, F.cross_entropy, batch)


def test_a_model_whose_activations_cannot_be_seen_still_gets_the_rest_and_the_reason():
    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            self.reader, self.head = nn.LSTM(4, 8, batch_first=True), nn.Linear(8, 3)

        def forward(self, x):
            return self.head(self.reader(x)[0][:, -1])

    found = nv.checkup(Reader(), nn.functional.cross_entropy, (torch.randn(8, 5, 4), torch.randint(3, (8,))))
    assert {"gradients", "drift"} <= {r.vital for r in found.measurements}
    assert str(found).count("fused recurrent kernel") == 1


def test_the_loss_by_name_and_a_batch_as_a_dict_give_the_same_measurements():
    model, (x, y) = small()
    given = nv.checkup(model, F.cross_entropy, (x, y), vitals=["gates"], curvature=False)
    named = nv.checkup(model, "ce", {"x": x, "labels": y}, vitals=["gates"], curvature=False)
    assert given.measurements == named.measurements and given.loss == named.loss


def test_the_mode_decides_whose_statistics_are_used():
    model = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3)).eval()
    batch = torch.randn(40, 4) * 5 + 3, torch.randint(0, 3, (40,))
    density = {
        mode: next(
            r.value
            for r in nv.checkup(model, "ce", batch, mode=mode, vitals=["gates"], curvature=False).measurements
            if (r.site, r.metric) == ("2", "density@0.01")
        )
        for mode in ("train", "eval", "as_is")
    }
    default = nv.checkup(model, "ce", batch, vitals=["gates"], curvature=False)
    assert density["eval"] == density["as_is"] != density["train"]
    assert density["train"] in [r.value for r in default.measurements]
