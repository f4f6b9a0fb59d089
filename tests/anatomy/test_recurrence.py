"""Weights that are used again, computed, checkpointed, scripted or compiled are met, or named with the reason."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, parametrize
from torch.utils.checkpoint import checkpoint

from netvitals.anatomy import chart


class Unrolled(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.inp, self.out = nn.Linear(5, 5), nn.Linear(3, 5), nn.Linear(5, 2)

    def forward(self, x):
        h = torch.zeros(len(x), 5)
        for t in range(x.shape[1]):
            h = torch.tanh(self.cell(h) + self.inp(x[:, t]))
        return self.out(h)


def test_an_unrolled_cell_is_one_weight_with_as_many_calls_as_steps():
    found = chart(Unrolled(), torch.randn(4, 6, 3))
    by_name = {r.name: r for r in found.recurrent}
    assert by_name["cell"].kind == "unrolled" and by_name["cell"].calls == 5  # the first step has no data in h
    assert by_name["inp"].kind == "shared" and by_name["inp"].calls == 6
    assert {x.calls for x in found.layers if x.name == "inp"} == {6}
    assert [x.call for x in found.layers if x.name == "inp"] == [1, 2, 3, 4, 5, 6]
    assert len(found.activations) == 6 and len({r.name for r in found.activations}) == 6


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_torchs_recurrent_modules_are_one_operation_whose_gates_are_named(kind):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn, self.head = getattr(nn, kind)(4, 5, num_layers=2, batch_first=True), nn.Linear(5, 2)

        def forward(self, x):
            return self.head(torch.relu(self.rnn(x)[0][:, -1]))

    found = chart(Net(), torch.randn(6, 3, 4))
    (rnn,) = found.recurrent
    assert (rnn.name, rnn.kind, rnn.calls) == ("rnn", kind, 1) and len(rnn.weights) == 8
    assert [r.text for r in found.activations] == ["relu"] and "recurrent operation" in found.skipped["rnn"]
    assert {p.role for p in found.parameters if p.name.startswith("rnn")} == {"recurrent"}
    assert [x.name for x in found.readouts] == ["head"] and not found.streams and found.batch_dim == 0


def test_siamese_branches_share_and_tied_tables_are_tied():
    class Siamese(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = nn.Linear(4, 6), nn.Linear(6, 1)

        def forward(self, a, b):
            return self.head((torch.relu(self.body(a)) - torch.relu(self.body(b))).abs())

    found = chart(Siamese(), (torch.randn(5, 4), torch.randn(5, 4)))
    assert [(r.name, r.kind, r.calls) for r in found.recurrent] == [("body", "shared", 2)]
    net = nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 4), nn.Linear(4, 7, bias=False))
    net[2].weight = net[0].weight
    found = chart(net, torch.randint(0, 7, (3, 5)))
    assert [(r.name, r.kind, r.calls) for r in found.recurrent] == [("0", "tied", 2)]
    assert [(x.name, x.weight, x.role) for x in found.layers] == [
        ("0", "0.weight", "embedding"),
        ("1", "1.weight", "hidden layer"),
        ("2", "0.weight", "readout"),
    ]


def test_frozen_layers_say_so():
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
    net[0].requires_grad_(False)
    assert [x.frozen for x in chart(net, torch.randn(3, 4)).layers] == [True, False]


class Doubled(nn.Module):
    def forward(self, w):
        return 2 * w


@pytest.mark.parametrize(
    "wrap",
    [
        parametrizations.weight_norm,
        parametrizations.spectral_norm,
        parametrizations.orthogonal,
        torch.nn.utils.weight_norm,
        torch.nn.utils.spectral_norm,
        lambda m: parametrize.register_parametrization(m, "weight", Doubled()) or m,
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_a_computed_weight_is_a_layer_that_says_what_it_is_made_of(wrap):
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))
    wrap(net[0])
    found = chart(net, torch.randn(5, 4))
    first, last = found.layers
    assert (first.name, first.weight, first.bias, first.role) == ("0", "0.weight", "0.bias", "hidden layer")
    own = {n for n, _ in net[0].named_parameters(prefix="0")} - {"0.bias"}
    assert set(first.reparametrised) == own and not last.reparametrised
    assert found.connections[0].readers == ("2",) and found.connections[0].clean
    assert [r.text for r in found.activations] == ["tanh"] and not found.skipped


class Checkpointed(nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        self.a, self.b, self.c, self.reentrant = nn.Linear(4, 6), nn.Linear(6, 6), nn.Linear(6, 2), reentrant

    def forward(self, x):
        h = self.a(x)
        return self.c(checkpoint(lambda h: h + torch.relu(self.b(torch.tanh(h))), h, use_reentrant=self.reentrant))


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointed_parts_are_met(reentrant):
    found = chart(Checkpointed(reentrant), torch.randn(5, 4))
    assert [r.text for r in found.activations] == ["tanh", "relu"]
    assert [(x.name, x.calls) for x in found.layers] == [("a", 1), ("b", 1), ("c", 1)]
    assert found.stream.writers == ("b",) and not found.skipped


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 6), nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(F.gelu(self.a(x)))


@pytest.mark.filterwarnings("ignore")
def test_scripted_and_traced_parts_are_met():
    for part in (torch.jit.script(Plain()), torch.jit.trace(Plain(), torch.randn(2, 4))):
        found = chart(nn.Sequential(nn.Linear(4, 4), part, nn.Linear(4, 2)), torch.randn(5, 4))
        assert [x.name for x in found.layers] == ["0", "1.a", "1.b", "2"]
        assert [r.text for r in found.activations] == ["gelu"]


def test_compiled_parts_are_seen_as_they_were_written():
    whole = torch.compile(Plain(), backend="eager")
    inner = nn.Sequential(nn.Linear(4, 4), Plain(), nn.Linear(4, 2))
    inner[1].compile(backend="eager")
    for net, layers in ((whole, ["a", "b"]), (inner, ["0", "1.a", "1.b", "2"])):
        found = chart(net, torch.randn(5, 4))
        assert [x.name for x in found.layers] == layers and [r.text for r in found.activations] == ["gelu"]
