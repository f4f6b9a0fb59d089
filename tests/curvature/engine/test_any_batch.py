"""Batches and outputs of every form, each against the Hessian that autograd finds for the same loss, in float64."""

from collections import OrderedDict
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from netvitals.curvature import between_layers, operators, trace


class Net(nn.Module):
    """Two inputs; what it returns and whether it computes its own loss is up to ``wrap``."""

    def __init__(self, wrap):
        super().__init__()
        self.a, self.b, self.head, self.wrap = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3), wrap

    def forward(self, x, shift=None, labels=None):
        h = torch.tanh(self.a(x) if shift is None else self.a(x) + shift)
        before = self.head(h + torch.tanh(self.b(h)))
        logits = before.clone()
        logits.before = before
        return self.wrap(logits, None if labels is None else F.cross_entropy(logits, labels))


@dataclass
class Output:
    loss: Any
    logits: Any


class ModelOutput(OrderedDict):
    """Like the outputs of transformers: a dict whose entries are attributes too."""

    __getattr__ = OrderedDict.__getitem__


torch.utils._pytree.register_pytree_node(
    ModelOutput,
    lambda d: (list(d.values()), list(d)),
    lambda values, keys: ModelOutput(zip(keys, values)),
)

X, SHIFT = torch.randn(2, 5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
Y = torch.tensor([0, 2, 1, 1, 0])
CASES = {
    "a pair": (lambda z, loss: z, F.cross_entropy, (X, Y), ()),
    "a name": (lambda z, loss: z, "ce", (X, Y), ()),
    "a list": (lambda z, loss: z, "ce", [X, Y], ()),
    "two inputs": (lambda z, loss: z, "ce", (X, SHIFT, Y), ("shift",)),
    "a tuple of inputs": (lambda z, loss: z, "ce", ((X, SHIFT), Y), ("shift",)),
    "a dict of inputs": (lambda z, loss: z, "ce", ({"x": X, "shift": SHIFT}, Y), ("shift",)),
    "a dict": (lambda z, loss: z, "ce", {"x": X, "shift": SHIFT, "targets": Y}, ("shift",)),
    "a dict of logits": (lambda z, loss: {"logits": z, "note": "text"}, "ce", (X, Y), ()),
    "a loss that reads a dict": (
        lambda z, loss: {"logits": z},
        lambda o, y: F.cross_entropy(o["logits"], y),
        (X, Y),
        (),
    ),
    "a model output": (lambda z, loss: ModelOutput(logits=z), nn.CrossEntropyLoss(), (X, Y), ()),
    "a dataclass": (lambda z, loss: Output(loss, z), "ce", (X, Y), ()),
    "its own loss in a dict": (lambda z, loss: {"loss": loss, "logits": z}, None, {"x": X, "labels": Y}, ()),
    "its own loss, two inputs": (
        lambda z, loss: ModelOutput(loss=loss, logits=z),
        None,
        {"x": X, "shift": SHIFT, "labels": Y},
        ("shift",),
    ),
    "its own loss in a dataclass": (lambda z, loss: Output(loss, z), None, {"x": X, "labels": Y}, ()),
    "its own loss, an output before the output": (
        lambda z, loss: SimpleNamespace(loss=loss, before=z.before, prediction=z),
        None,
        {"x": X, "labels": Y},
        (),
    ),
    "its own loss in an object": (
        lambda z, loss: SimpleNamespace(loss=loss, prediction=z, inner=z * 2),
        None,
        {"x": X, "labels": Y},
        (),
    ),
}


@pytest.fixture(params=CASES, ids=list(CASES))
def case(request):
    wrap, loss_fn, batch, extra = CASES[request.param]
    torch.manual_seed(1)
    model = Net(wrap).double()
    plain = Net(lambda z, loss: z).double()
    plain.load_state_dict(model.state_dict())
    return model, loss_fn, batch, plain, (X, SHIFT) if extra else (X,)


def loss_at(plain, inputs, eps=None):
    """The loss with perturbations added to the outputs of a and b."""
    handles = []
    if eps is not None:
        pairs = zip((plain.a, plain.b), eps.split(4))
        handles = [m.register_forward_hook(lambda m, i, out, e=e: out + e) for m, e in pairs]
    try:
        return F.cross_entropy(plain(*inputs), Y)
    finally:
        [h.remove() for h in handles]


def test_activation_space(case):
    model, loss_fn, batch, plain, inputs = case
    zero = torch.zeros(8, dtype=torch.float64)
    h = torch.autograd.functional.hessian(lambda e: loss_at(plain, inputs, e), zero)
    found = between_layers(model, loss_fn, batch, nodes=["a", "b"], method="exact")
    torch.testing.assert_close(found.blocks.hessian, h, rtol=1e-10, atol=1e-12)
    assert found.loss == pytest.approx(float(loss_at(plain, inputs).detach()), rel=1e-12)
    # the split is that of the loss given as a function: a network that ends at its logits
    expected = between_layers(plain, "ce", (*inputs, Y), nodes=["a", "b"], method="exact")
    torch.testing.assert_close(found.blocks.gauss_newton, expected.blocks.gauss_newton, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(found.blocks.tensor, expected.blocks.tensor, rtol=1e-10, atol=1e-12)
    assert float(expected.blocks.tensor.abs().max()) > 1e-3 < float(expected.blocks.gauss_newton.abs().max())
    swept = between_layers(model, loss_fn, batch, nodes=["a", "b"], probes=4)  # as many probes as coordinates: exact
    np.testing.assert_allclose(swept.resonance, found.resonance, rtol=1e-9)
    apart = between_layers(model, loss_fn, batch, nodes=["a", "b"], method="exact", reduction="per_sample")
    torch.testing.assert_close(apart.block("a", "b").H.mean(0), found.block("a", "b").H, rtol=1e-10, atol=1e-12)


def test_parameter_space(case):
    model, loss_fn, batch, plain, inputs = case
    names, shapes = zip(*[(n, p.shape) for n, p in plain.named_parameters()])

    def loss(*tensors):
        return F.cross_entropy(torch.func.functional_call(plain, dict(zip(names, tensors)), inputs), Y)

    rows = torch.autograd.functional.hessian(loss, tuple(p.detach() for p in plain.parameters()))
    sizes = [s.numel() for s in shapes]
    h = torch.cat([torch.cat([b.reshape(n, m) for b, m in zip(row, sizes)], 1) for row, n in zip(rows, sizes)])
    with operators(model, loss_fn, batch) as of:
        torch.testing.assert_close(of.whole().dense(), h, rtol=1e-10, atol=1e-12)
        parts = of.whole("GN").dense() + of.whole("T").dense()
        torch.testing.assert_close(parts, h, rtol=1e-10, atol=1e-12)
    found = trace(model, loss_fn, batch, probes=2, part="H")
    assert found.names == names and found.probes == 2


def test_a_loss_beside_the_logits_is_refused_with_a_sentence():
    class Penalised(Net):
        def forward(self, x, labels):
            out = super().forward(x, None, labels)
            return {"loss": out["loss"] + self.a(x).square().mean(), "logits": out["logits"]}

    model = Penalised(lambda z, loss: {"loss": loss, "logits": z}).double()
    with pytest.raises(ValueError, match="own loss does not depend on its outputs alone"):
        between_layers(model, None, {"x": X, "labels": Y}, nodes=["a", "b"], probes=4)


def test_what_is_missing_gets_a_sentence():
    plain = Net(lambda z, loss: z).double()
    with pytest.raises(TypeError, match="no loss_fn was given, and the model's output, a Tensor, contains no loss"):
        between_layers(plain, None, {"x": X}, probes=4)
    with pytest.raises(TypeError, match="needs a target, but this dict has only x, shift"):
        between_layers(plain, "ce", {"x": X, "shift": SHIFT}, probes=4)
    other = Net(lambda z, loss: {"loss": loss}).double()
    with pytest.raises(ValueError, match="own loss does not depend on its outputs alone"):
        between_layers(other, None, {"x": X, "labels": Y}, nodes=["a"], probes=4)


def test_an_own_loss_that_is_a_sum_is_noticed():
    summed = lambda z, loss: {"loss": F.cross_entropy(z, Y[: len(z)], reduction="sum"), "logits": z}
    with pytest.raises(ValueError, match="not a mean over examples"):
        between_layers(Net(summed).double(), None, {"x": X}, nodes=["a"], probes=4, reduction="mean_of_norms")
