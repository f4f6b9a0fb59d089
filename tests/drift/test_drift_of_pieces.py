"""Numbers of parameters in pieces, added up over ranks, are those of the whole tensors."""

import numpy as np
import pytest
import torch
from torch import nn

from netvitals.capture import ParameterView, Recorder
from netvitals.capture.shards import Piece, is_put_away, is_wrapped, local, named, pieces_of, plain_name
from netvitals.drift import weight_drift
from netvitals.drift.pieces import LOST, drift_of_sums
from netvitals.vitals import Drift, Gradients

WHOLE = {
    "layer.weight": torch.randn(6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64),
    "norm.weight": torch.full((4,), 1.5, dtype=torch.float64),
    "one": torch.tensor([2.0], dtype=torch.float64),
}
MODULES = {"": nn.Module(), "layer": nn.Linear(4, 6), "norm": nn.LayerNorm(4)}
MOVED = {n: t + torch.arange(t.numel(), dtype=t.dtype).reshape(t.shape) * 0.1 - 0.2 for n, t in WHOLE.items()}
GRADS = {n: t * 0.3 - 0.1 for n, t in WHOLE.items()}
PARTS = {
    "layer.weight": [slice(0, 4), slice(4, 6)],
    "norm.weight": [slice(None), slice(None)],
    "one": [slice(0, 1), slice(1, 1)],
}
HOLDERS = {"layer.weight": 1, "norm.weight": 2, "one": 1}  # the norm is the same on both ranks


def view(rank):
    cut = lambda tensors: {n: t[PARTS[n][rank]] for n, t in tensors.items()}
    pieces = {n: Piece(tuple(t.shape), HOLDERS[n]) for n, t in WHOLE.items()}
    return ParameterView(cut(MOVED), cut(WHOLE), cut(GRADS), cut(WHOLE), MODULES, None, pieces)


def added_up(make):
    recorders = []
    for rank in range(2):
        recorder = Recorder(0)
        vital = make()
        recorder.vital = vital.name
        vital.parameters(recorder, view(rank))
        recorder.leave_device()
        recorders.append(recorder)
    first, second = recorders
    first.take(first.message(0) + second.message(1))
    return {(r.site, r.metric): r.value for r in first.measurements()[0]}, first.skipped


def test_drift_is_that_of_the_whole_tensor():
    found, skipped = added_up(Drift)
    assert f"drift: {LOST}" in skipped
    for name, before in WHOLE.items():
        exact = weight_drift(MOVED[name], before)
        for metric in (
            "weight_mean",
            "weight_std",
            "min",
            "max",
            "norm",
            "neg_fraction",
            "pos_fraction",
            "drift_z",
            "drift_t",
        ):
            value = getattr(exact, metric)
            assert found[name, metric] == pytest.approx(value, rel=1e-9, nan_ok=True), (name, metric)
        assert found[name, "grad_mean_abs"] == pytest.approx(GRADS[name].abs().mean().item(), rel=1e-12)
        assert found[name, "grad_norm"] == pytest.approx(GRADS[name].norm().item(), rel=1e-12)
        assert (name, LOST) not in found


def test_means_by_role_leave_single_numbers_out():
    found, _ = added_up(Drift)
    whole = weight_drift(MOVED["layer.weight"], WHOLE["layer.weight"])
    assert found["model/weight", "drift_z"] == pytest.approx(whole.drift_z)
    assert found["model/norm_gain", "weight_mean"] == pytest.approx(MOVED["norm.weight"].mean().item())
    assert ("model/other", "drift_z") not in found


def test_gradients_and_updates_are_those_of_the_whole_model():
    found, _ = added_up(Gradients)
    length = lambda tensors: np.sqrt(sum(float((t**2).sum()) for t in tensors))
    step = length(MOVED[n] - WHOLE[n] for n in WHOLE)
    assert found["model", "grad_norm"] == pytest.approx(length(GRADS.values()), rel=1e-12)
    assert found["model", "update_ratio"] == pytest.approx(step / length(WHOLE.values()), rel=1e-12)
    assert found["layer.weight", "grad_rms"] == pytest.approx(GRADS["layer.weight"].square().mean().sqrt().item())
    assert ("norm.weight", "grad_rms") not in found


def test_a_tensor_that_leaves_equal_entries_together_has_no_z_and_one_that_stays_has_zero():
    z, t = drift_of_sums(*(np.array(v) for v in ([4.0, 0.0], [4.0, 0.0], [0.0, 0.0], [0.0, 0.0], [4.0, 4.0])))
    assert np.isnan(z[0]) and z[1] == 0 and t[0] == np.inf


def test_names_of_wrappers_are_taken_off():
    assert plain_name("_fsdp_wrapped_module.a._fsdp_wrapped_module.b") == "a.b"
    assert plain_name("a._fsdp_wrapped_module") == "a" and plain_name("a") == "a"
    assert is_wrapped("a._flat_param") and not is_wrapped("a.b")


def test_a_plain_tensor_is_held_whole():
    t = torch.ones(3)
    assert local(t) is t and not is_put_away(t) and pieces_of(nn.Linear(2, 2), 4) == {}
    freed = torch.ones(3)
    freed.untyped_storage().resize_(0)
    assert is_put_away(freed)
    assert named({}, {"_fsdp_wrapped_module.w": t}) == {"w": t}
