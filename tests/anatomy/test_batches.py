"""Any batch that a loader yields, and the batch dimension found by running two sizes of it."""

from collections import OrderedDict
from dataclasses import dataclass
from typing import NamedTuple

import pytest
import torch
from torch import nn

from netvitals.anatomy import chart


class Positions(nn.Module):
    """Tokens and places; ``first`` says which dimension is the batch."""

    def __init__(self, first=True, dropout=0.0):
        super().__init__()
        self.token, self.place, self.head = nn.Embedding(9, 8), nn.Embedding(12, 8), nn.Linear(8, 5)
        self.block = nn.TransformerEncoderLayer(8, 2, 16, dropout=dropout, batch_first=first)
        self.first = first

    def forward(self, ids):
        t = ids.shape[1 if self.first else 0]
        places = self.place(torch.arange(t))
        h = self.token(ids) + (places if self.first else places[:, None])
        return self.head(self.block(h))


def dims(found, module):
    return {found.values[op.outputs[0]].batch_dim for op in found.operations if op.module == module}


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("first", [True, False])
def test_the_batch_dimension_is_found_also_when_the_sequence_comes_first_and_positions_have_none(first, train):
    net = Positions(first, dropout=0.2).train(train)
    found = chart(net, torch.randint(0, 9, (4, 6)))
    assert found.batch_dim == (0 if first else 1) and "batch dimension" not in found.skipped
    assert dims(found, "place") == {None} and dims(found, "token") == {0 if first else 1}
    logits = found.values[found.outputs[0]]
    assert logits.batch_dim == (0 if first else 1) and logits.shape == (4, 6, 5)
    assert found.values[next(p for p in found.layers if p.name == "head").output].batch_dim == 0  # flattened rows


def test_a_square_batch_is_no_riddle():
    """As many examples as tokens and channels: sizes that are equal say nothing, growing does."""
    found = chart(Positions(), torch.randint(0, 9, (8, 8)))
    assert found.batch_dim == 0 and dims(found, "place") == {None}


def test_attention_without_places_still_tells_the_batch_from_the_sequence():
    net = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0)  # (sequence, batch, channels)
    assert chart(net, torch.randn(5, 3, 8)).batch_dim == 1


def test_a_chart_takes_at_most_four_passes_and_counts_them():
    for net, batch in (
        (Positions(), torch.randint(0, 9, (4, 6))),
        (Positions(False, 0.2), torch.randint(0, 9, (4, 6))),
        (nn.GRU(4, 5), torch.randn(7, 3, 4)),
        (nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)), torch.randn(6, 4)),
    ):
        calls = []
        call = lambda model, data, calls=calls: (calls.append(1), model(data))[1]
        found = chart(net, batch, forward=call)
        assert len(calls) == found.passes <= 4, (type(net).__name__, len(calls))


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 3), nn.Linear(5, 3)

    def forward(self, left, right):
        return {"sum": self.a(left) + self.b(right), "parts": (self.a(left),)}


class Pair(NamedTuple):
    left: torch.Tensor
    right: torch.Tensor


@pytest.mark.parametrize(
    "wrap",
    [
        lambda a, b: (a, b),
        lambda a, b: [a, b],
        lambda a, b: {"left": a, "right": b},
        lambda a, b: OrderedDict(left=a, right=b),
        Pair,
        lambda a, b: (a, b, torch.zeros(6)),  # a target
        lambda a, b: {"left": a, "right": b, "labels": torch.zeros(6)},
        lambda a, b: ({"left": a, "right": b}, torch.zeros(6)),
    ],
)
def test_several_inputs_come_as_tuples_dicts_and_with_targets(wrap):
    found = chart(Two(), wrap(torch.randn(6, 4), torch.randn(6, 5)))
    assert [x.name for x in found.layers] == ["a", "b", "a"] and found.batch_dim == 0
    assert [found.values[v].batch_dim for v in found.outputs] == [0, 0]


def test_one_input_with_its_target_is_what_most_loaders_yield():
    found = chart(nn.Sequential(nn.Linear(4, 3), nn.ReLU()), (torch.randn(6, 4), torch.zeros(6)))
    assert [x.name for x in found.layers] == ["0"]


@dataclass(frozen=True)
class Graph:
    nodes: torch.Tensor
    edges: torch.Tensor


def test_a_batch_of_any_kind_goes_through_a_forward_of_the_user():
    class Convolution(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 6), nn.Linear(6, 2)

        def forward(self, nodes, edges):
            return self.b(edges @ torch.relu(edges @ self.a(nodes)))

    batch = Graph(torch.randn(5, 4), torch.rand(5, 5))
    found = chart(Convolution(), batch, forward=lambda net, g: net(g.nodes, g.edges))
    assert [r.text for r in found.activations] == ["relu"] and [x.role for x in found.layers] == [
        "hidden layer",
        "readout",
    ]
    assert (
        found.batch_dim is None and "independent" in found.skipped["batch dimension"]
    ) or "refused" in found.skipped["batch dimension"]
    with pytest.raises(ValueError, match="forward="):
        chart(Convolution(), object())


def test_logits_of_pairs_grow_in_two_dimensions():
    class Pairs(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 6), nn.Linear(5, 6)

        def forward(self, left, right):
            return self.a(left) @ self.b(right).T

    found = chart(Pairs(), (torch.randn(3, 4), torch.randn(3, 5)))
    assert found.batch_dim == 0 and found.values[found.outputs[0]].batch_dim == 0


def test_a_state_beside_the_input_has_its_batch_where_it_is():
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.GRU(4, 5, batch_first=True)

        def forward(self, x, state):
            return self.rnn(x, state)[0]

    found = chart(Recurrent(), (torch.randn(6, 3, 4), torch.randn(1, 6, 5)))
    assert [found.values[v].batch_dim for v in found.inputs] == [0, 1]


def test_model_outputs_and_losses_inside_the_model_are_read():
    transformers = pytest.importorskip("transformers")
    gpt = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=40, bos_token_id=0, eos_token_id=0)
    )
    ids = torch.randint(0, 40, (3, 6))
    found = chart(gpt, {"input_ids": ids, "labels": ids, "attention_mask": torch.ones_like(ids)})
    assert found.batch_dim == 0 and [x.name for x in found.readouts] == ["lm_head"]
    assert found.softmaxes[-1].role == "output link"  # of the loss
