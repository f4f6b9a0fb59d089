"""The functions of gate density on the models a reader brings."""

import pytest
import torch

import reader_models
from netvitals import curvature, gates


@pytest.mark.parametrize("name", reader_models.NAMES)
def test_gates_need_no_loss(name):
    model, loss_fn, batch = reader_models.make(name)
    state = {k: v.clone() for k, v in model.state_dict().items()}
    found = gates.measure(model, batch)
    given = gates.measure(model, loss_fn, batch)
    assert found.sites and str(found) == str(given)
    ratio = gates.measure(model, loss_fn, batch, backend="ratio")
    assert set(ratio.sites) == set(found.sites)
    assert all(torch.equal(v, state[k]) for k, v in model.state_dict().items())


def test_a_call_without_a_batch_is_refused():
    model, loss_fn, _ = reader_models.make("mlp")
    for given in ((), (None,), (loss_fn,), (torch.nn.MSELoss(),)):
        with pytest.raises(TypeError, match="no batch was given"):
            gates.measure(model, *given)


def test_torchs_names_are_taken_by_the_measurements():
    model, loss_fn, batch = reader_models.make("mlp")
    assert gates.measure(model, loss_fn, batch, backend="ratio").sites
    assert curvature.trace(model, loss_fn, batch, probes=2).rows()
