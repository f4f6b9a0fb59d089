"""Batches in every form a loader yields, losses by name, and what every result can do."""

from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from netvitals.capture.loss import LOSSES, likelihood_of, resolve_loss
from netvitals.capture.nested import check_finite
from netvitals.capture.result import Result, plain
from netvitals.capture.task import batches_of, task_of

X, Y = torch.randn(5, 3), torch.randn(5, 2)


class Two(nn.Module):
    """Takes two inputs, by position or by name, and labels as Hugging Face models do."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, a, b=None, labels=None):
        logits = self.layer(a if b is None else a + b)
        loss = None if labels is None else F.mse_loss(logits, labels)
        return SimpleNamespace(logits=logits, loss=loss)


def test_every_form_of_a_batch_gives_the_same_loss():
    model = Two()
    expected = F.mse_loss(model.layer(X + X), Y)
    forms = [
        ("mse", ((X, X), Y)),
        (F.mse_loss, (X, X, Y)),
        ("mse", [{"a": X, "b": X}, Y]),
        ("mse", {"a": X, "b": X, "labels": Y}),
        ("mse", {"a": X, "b": X, "target": Y}),
        (None, {"a": X, "b": X, "labels": Y}),
        (lambda out, y: (out.logits - y).square().mean(), {"a": X, "b": X, "y": Y}),
    ]
    for loss_fn, batch in forms:
        task = task_of(model, loss_fn, batch)
        assert task.examples == 5 and torch.allclose(task.loss(task.forward()), expected), batch


def test_an_input_alone_needs_no_target():
    assert task_of(nn.Linear(3, 2), None, X).forward().shape == (5, 2)
    assert task_of(nn.Linear(3, 2), None, [X]).forward().shape == (5, 2)


def test_losses_by_name_are_torchs():
    logits, classes = torch.randn(4, 6, 3), torch.randint(0, 3, (4, 6))
    assert torch.allclose(LOSSES["ce"](logits, classes), F.cross_entropy(logits.movedim(-1, 1), classes))
    assert torch.allclose(LOSSES["half-mse"](X, 2 * X), X.square().mean() / 2)
    assert resolve_loss(F.l1_loss) is F.l1_loss and resolve_loss(None) is None


def test_the_names_of_torchs_functional_losses_are_those_losses():
    a, b = torch.rand(4, 3), torch.rand(4, 3)
    for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy"):
        assert torch.equal(resolve_loss(name)(a, b), getattr(F, name)(a, b))
    assert (likelihood_of("cross_entropy"), likelihood_of("nll_loss"), likelihood_of("mse_loss")) == ("ce", "ce", "mse")


def test_the_name_cross_entropy_finds_the_dimension_of_the_classes():
    text, tokens = torch.randn(4, 6, 3), torch.randint(0, 3, (4, 6))
    picture, pixels = torch.randn(4, 3, 5, 6), torch.randint(0, 3, (4, 5, 6))
    loss = resolve_loss("cross_entropy")
    assert torch.allclose(loss(text, tokens), F.cross_entropy(text.movedim(-1, 1), tokens))
    assert torch.equal(loss(picture, pixels), F.cross_entropy(picture, pixels))
    assert torch.equal(loss(text[:, 0], tokens[:, 0]), F.cross_entropy(text[:, 0], tokens[:, 0]))
    with pytest.raises(ValueError, match="ambiguous"):
        loss(torch.randn(4, 3, 3), torch.randint(0, 3, (4, 3)))


@pytest.mark.parametrize(
    ("loss_fn", "batch", "words"),
    [
        ("mse", X, "pair"),
        ("mse", {"a": X}, "needs a target"),
        (X, F.mse_loss, "the order of arguments is"),
        (None, (X, Y), "contains no loss"),
        (lambda out, y: out, (X, Y), "one number"),
        ("cross", (X, Y), "did you mean cross_entropy"),
        ("unknown", (X, Y), "there are ce, mse"),
    ],
)
def test_what_cannot_be_taken_apart_gets_a_sentence(loss_fn, batch, words):
    def run():
        task = task_of(nn.Linear(3, 2), loss_fn, batch)
        return task.loss(task.forward())

    with pytest.raises((TypeError, ValueError), match=words):
        run()


def test_a_loader_is_not_a_batch():
    assert len(list(batches_of(X))) == len(list(batches_of((X, Y)))) == len(list(batches_of({"a": X}))) == 1
    assert len(list(batches_of(({"a": X}, Y)))) == 1 and len(list(batches_of([{"a": X}, {"a": X}]))) == 2
    assert len(list(batches_of([(X, Y), (X, Y)]))) == len(list(batches_of(iter([X, X])))) == 2


def test_not_finite_values_are_refused_wherever_they_hide():
    with pytest.raises(ValueError, match="the batch has 1 of 2 values"):
        check_finite({"a": [X, (torch.tensor([1.0, float("inf")]),)]}, "the batch")
    check_finite((X, torch.ones(2, dtype=torch.long)), "the batch")


@dataclass(frozen=True)
class Found(Result):
    value: torch.Tensor
    stderr: float
    skipped: dict = field(default_factory=dict)

    def rows(self):
        return [{"place": i, "value": float(v)} for i, v in enumerate(self.value)]

    def __str__(self):
        return "1 < 2"


def test_a_result_becomes_plain_data_a_frame_and_html():
    found = Found(torch.tensor([1.0, 2.0]), float("nan"), {"layer": "why"})
    assert found.to_dict() == {"value": [1.0, 2.0], "stderr": None, "skipped": {"layer": "why"}}
    assert found.to_frame()["value"].to_list() == [1.0, 2.0]
    assert "1 &lt; 2" in found._repr_html_()
    assert plain([np.int64(3), {1: found}]) == [3, {"1": found.to_dict()}]
