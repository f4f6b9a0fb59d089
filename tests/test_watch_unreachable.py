"""A watch that nobody can close locks nothing, and an armed model can be saved, copied and pickled without a trace."""

from __future__ import annotations

import contextlib
import copy
import gc
import io
import pickle
import subprocess
import sys
import textwrap
import warnings

import pytest
import torch
from torch import nn

import netvitals as nv


def net():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


def hooks(model):
    return [h for m in model.modules() for h in (*m._forward_hooks, *m._forward_pre_hooks)]


def raises(model, **options):
    vitals = nv.watch(model, every=1, **options)
    vitals.step(1.0)
    raise KeyError("mine")


def test_a_function_that_raises_leaves_no_hooks_and_no_lock(tmp_path):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it never called the model
        with contextlib.suppress(KeyError):
            raises(model, optimizer=optimizer, run=tmp_path / "r")
    gc.collect()
    assert hooks(model) == []
    assert nv.open_run(tmp_path / "r").status in ("never closed", "failed")
    assert nv.open_run(tmp_path / "r").frame(vital="loss").height == 1
    with pytest.warns(RuntimeWarning, match="was not closed; it has been closed, and the new watch replaces it"):
        second = nv.watch(model)
    second.close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nv.watch(model).close()  # said once


@pytest.mark.parametrize("inside", [False, True])
def test_a_watch_that_only_a_traceback_holds_is_taken_over(inside):
    model = net()

    class Trainer:
        def fit(self):
            self.vitals = nv.watch(model, every=1)
            raise KeyError("mine")

    with pytest.raises(KeyError) as kept:  # as sys.last_traceback keeps it in a notebook
        Trainer().fit() if inside else raises(model, vitals=["gates"])
    assert hooks(model)
    with pytest.warns(RuntimeWarning, match="the new watch replaces it"):
        second = nv.watch(model, every=1)
    assert len(hooks(model)) > 0 and kept is not None
    second.close()
    assert hooks(model) == []


def holder():
    model = net()
    vitals = nv.watch(model, every=1)
    yield model
    vitals.close()


def test_a_watch_that_somebody_holds_is_not_taken_over():
    model = net()
    vitals = nv.watch(model, every=1)
    box = {"deep": [vitals]}
    del vitals
    with pytest.raises(ValueError, match="already watched"):
        nv.watch(model)
    box["deep"][0].close()
    suspended = holder()
    model = next(suspended)
    with pytest.raises(ValueError, match="already watched"):
        nv.watch(model)
    suspended.close()


def test_hooks_die_with_the_watch_also_those_of_optimizers_and_gradients():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for given in (None, optimizer):
        vitals = nv.watch(model, every=1, optimizer=given)
        assert hooks(model)
        del vitals
        gc.collect()
        assert hooks(model) == []
        assert not optimizer._optimizer_step_pre_hooks and not optimizer._optimizer_step_post_hooks
        from torch.optim import optimizer as module

        assert not module._global_optimizer_pre_hooks and not module._global_optimizer_post_hooks
        assert not any(p._post_accumulate_grad_hooks for p in model.parameters())


SAVES = {
    "pickle": lambda model: pickle.dumps(model),
    "torch.save": lambda model: _saved(model),
    "state_dict": lambda model: _saved(model.state_dict()),
    "deepcopy": lambda model: pickle.dumps(copy.deepcopy(model)),
}


def _saved(what):
    buffer = io.BytesIO()
    torch.save(what, buffer)
    return buffer.getvalue()


@pytest.mark.parametrize("how", SAVES)
@pytest.mark.parametrize("given", [False, True])
def test_an_armed_model_is_saved_without_a_trace_of_netvitals(how, given):
    model = net()
    optimizer = torch.optim.Adam(model.parameters())
    with nv.watch(model, every=1, optimizer=optimizer if given else None):
        assert hooks(model)
        assert b"netvitals" not in SAVES[how](model)
        assert b"netvitals" not in pickle.dumps(optimizer)


def test_an_armed_model_is_loaded_where_there_is_no_netvitals(tmp_path):
    model = net()
    x = torch.randn(2, 4)
    with nv.watch(model, every=1):
        torch.save(model, tmp_path / "model.pt")
        expected = copy.deepcopy(model)(x)
    torch.save((x, expected), tmp_path / "expected.pt")
    program = """
        import sys
        class Absent:
            def find_spec(self, name, *_):
                if name.split(".")[0] == "netvitals":
                    raise ImportError("there is no netvitals here")
        sys.meta_path.insert(0, Absent())
        import torch
        model = torch.load(sys.argv[1] + "/model.pt", weights_only=False)
        x, expected = torch.load(sys.argv[1] + "/expected.pt")
        assert torch.equal(model(x), expected)
        model(x).sum().backward()
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
