"""The likelihood behind a loss, batches without a loss, outputs of any kind, and which places were asked for."""

import functools

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from netvitals.capture.loss import LOSSES, likelihood_of
from netvitals.capture.nested import output_tensor
from netvitals.capture.result import Result, Several, one_screen
from netvitals.capture.selection import picked
from netvitals.capture.task import in_double, inputs_of


@pytest.mark.parametrize(
    ("loss_fn", "kind"),
    [
        ("ce", "ce"),
        ("nll", "ce"),
        ("mse", "mse"),
        ("half-mse", "mse"),
        (LOSSES["ce"], "ce"),
        (LOSSES["half-mse"], "mse"),
        (F.cross_entropy, "ce"),
        (F.nll_loss, "ce"),
        (F.mse_loss, "mse"),
        (nn.CrossEntropyLoss(label_smoothing=0.1), "ce"),
        (nn.NLLLoss(), "ce"),
        (nn.MSELoss(), "mse"),
        (functools.partial(F.cross_entropy, ignore_index=-1), "ce"),
        (functools.partial(F.mse_loss, reduction="sum"), "mse"),
    ],
)
def test_losses_whose_likelihood_is_known(loss_fn, kind):
    assert likelihood_of(loss_fn) == kind
    other = torch.tensor([0.5]) if kind == "ce" else torch.tensor([1])
    assert likelihood_of(loss_fn, other) == kind, "a loss that is known is not judged by its target"


@pytest.mark.parametrize("loss_fn", ["l1", "bce", nn.L1Loss(), F.huber_loss, lambda output, target: output.sum()])
def test_a_loss_without_such_a_likelihood_gets_a_sentence(loss_fn):
    with pytest.raises(ValueError, match="pass loss_fn as 'ce' or 'mse', or torch's cross_entropy or mse_loss"):
        likelihood_of(loss_fn, torch.tensor([1]))


@pytest.mark.parametrize("wrong", [torch.ones(2), (torch.ones(2), torch.ones(2)), {"x": 1}])
def test_a_batch_in_its_place_gets_the_order(wrong):
    with pytest.raises(TypeError, match="the order of arguments is"):
        likelihood_of(wrong)


class Conditional(nn.Module):
    """Cannot be called without ``labels``, which is an input here."""

    def forward(self, x, labels):
        return x + labels


def test_a_target_is_set_aside_unless_the_model_demands_it():
    batch = {"input": torch.ones(3, 2), "label": torch.zeros(3)}
    task = inputs_of(nn.Linear(2, 1), batch)
    assert list(task.kwargs) == ["input"] and torch.equal(task.targets[0], torch.zeros(3)) and len(batch) == 2
    task = inputs_of(Conditional(), {"x": torch.ones(2), "labels": torch.ones(2)})
    assert set(task.kwargs) == {"x", "labels"} and task.targets == () and float(task.forward().sum()) == 4


def test_a_task_in_double_leaves_the_model_alone():
    model = nn.Linear(2, 1)
    task = in_double(inputs_of(model, ((torch.ones(3, 2),), torch.arange(3))))
    assert task.forward().dtype == torch.float64 and model.weight.dtype == torch.float32
    assert task.targets[0].dtype == torch.int64 and task.model is not model


def test_one_tensor_out_of_an_output():
    x, model = torch.ones(2), nn.Identity()
    for output in (x, (x,), {"y": x}, {"hidden": x + 1, "logits": x}, [[x]]):
        assert output_tensor(output, model) is x
    with pytest.raises(ValueError, match=r"Identity returns a tuple with 2 tensors.*\.logits"):
        output_tensor((x, x), model)
    with pytest.raises(ValueError, match="a str with 0 tensors"):
        output_tensor("words", model)


def test_choices_keep_the_order_of_what_there_is():
    names = ["a.0", "a.1", "b"]
    assert picked(names, None) == names and picked(names, lambda n: n != "b") == ["a.0", "a.1"]
    assert picked(names, ["b", "a.*"]) == names and picked(iter(names), "a.1") == ["a.1"]
    with pytest.raises(ValueError, match=r"there is no head 'c'; there are 'a.0', 'a.1', 'b'"):
        picked(names, ["b", "c"], "head")
    with pytest.raises(TypeError, match="got a int"):
        picked(names, [1])


def test_a_screen_is_cut_and_says_how_much():
    lines = one_screen(str(i) for i in range(100)).splitlines()
    assert len(lines) == 40 and lines[38:] == ["38", "… and 61 more"]
    assert one_screen(["a\nb", "c"], most=3) == "a\nb\nc"


def test_several_results_are_a_table():
    class One(Result):
        def __init__(self, name, value):
            self.name, self.value = name, value

        def to_dict(self):
            return {"name": self.name, "value": self.value, "vector": [1, 2]}

        def __str__(self):
            return f"{self.name} is {self.value}"

    found = Several((One("a", 1.0), One("b", 2.0)), {"c": "never ran"})
    assert len(found) == 2 and found[1].name == "b" and [r.value for r in found] == [1.0, 2.0]
    assert found.to_frame().columns == ["name", "value"] and found.to_frame()["value"].to_list() == [1.0, 2.0]
    assert str(found) == "a is 1.0\nb is 2.0\nskipped: c: never ran" and found.to_dict()["skipped"] == {
        "c": "never ran"
    }
