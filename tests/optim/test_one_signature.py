"""What runs a model in ``optim`` takes (model, loss_fn, batch); its results are results."""

import inspect
import json

import pytest
import torch
from torch import nn

from netvitals import optim
from netvitals.capture.result import Result


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))


@pytest.mark.parametrize("name", ["find_gauges", "orbit_change"])
def test_order_and_names(name):
    parameters = list(inspect.signature(getattr(optim, name)).parameters.values())
    assert [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD] == ["model", "loss_fn", "batch"]
    assert "seed" in {p.name for p in parameters} and "Args:" in getattr(optim, name).__doc__


def test_batches_of_any_kind_give_the_same_gauges():
    model, x, y = net(), torch.randn(5, 6), torch.randint(0, 3, (5,))
    plain = optim.find_gauges(model, "ce", (x, y))
    for batch in (x, {"input": x, "labels": y}, [x, y]):
        assert str(optim.find_gauges(model, "ce", batch)) == str(plain)
    assert isinstance(plain, Result) and len(str(plain).splitlines()) <= 45
    stored = json.loads(json.dumps(plain.to_dict()))
    assert stored["skipped"] == plain.skipped
    assert [row["gauge"] for row in stored["gauges"]] == plain.to_frame()["gauge"].to_list() == list(plain.residuals)


def test_an_output_with_logits_is_read_and_its_last_layer_found():
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = net()

        def forward(self, x):
            return {"logits": self.body(x), "hidden": x}

    found = optim.find_gauges(Named(), "ce", torch.randn(5, 6))
    assert [g.name for g in found] == [
        "rescale body.0 → body.2",
        "logit shift body.2.bias",
        "logit shift body.2.weight",
    ]


def test_the_old_order_gets_the_sentence():
    with pytest.raises(TypeError, match=r"the order of arguments is \(model, loss_fn, batch\)"):
        optim.find_gauges(net(), torch.randn(5, 6), "ce")


def test_a_loss_of_ones_own_is_what_must_not_change():
    """The sum of squares sees a shift of the logits, cross-entropy does not, and neither sees a rescaling."""
    model, batch = net(), (torch.randn(5, 6), torch.zeros(5, 3))
    found = optim.find_gauges(model, lambda output, target: (output - target).square().sum(), batch)
    assert [g.name for g in found] == ["rescale 0 → 2"]
    with pytest.raises(ValueError, match="your own loss_fn"):
        optim.find_gauges(model, lambda output, target: output.sum())
    shift = optim.ce_shift_bias(model[2].bias)
    assert optim.orbit_change(model, "ce", batch, gauge=shift) < 1e-12
    assert optim.orbit_change(model, "mse", batch, gauge=shift) > 0.1
    assert optim.orbit_change(model, "mse", batch, gauge=found.gauges[0]) < 1e-12


def test_a_frozen_layer_is_named():
    model = net()
    model[0].weight.requires_grad_(False)
    found = optim.find_gauges(model)
    assert "0.weight is frozen" in found.skipped["rescale 0 → 2"] and not model[0].weight.requires_grad
