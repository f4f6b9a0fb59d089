"""Which layer feeds which, by dataflow: forks, branches, ties, memory that was used again, and attention."""

import pytest
import torch
from torch import nn

from netvitals.anatomy import chart


class Net(nn.Module):
    """Layers a, b, c (and more) in an order of registration that is not the order of the pass."""

    def __init__(self, run):
        super().__init__()
        self.c, self.b, self.a = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(4, 6)
        self.run = run

    def forward(self, x):
        return self.run(self, x)


def connections(run, x=None):
    found = chart(Net(run), torch.randn(5, 4) if x is None else x)
    return {c.writer: c for c in found.connections}


def test_a_chain_is_followed_in_the_order_of_the_pass():
    found = connections(lambda n, x: n.c(torch.relu(n.b(torch.tanh(n.a(x))))))
    assert found["a"].readers == ("b",) and found["a"].between == ("tanh",) and found["a"].clean
    assert found["b"].readers == ("c",) and found["b"].clean
    assert not found["c"].clean and found["c"].blocked == "its output leaves the model"


def test_a_fork_has_two_readers_and_is_clean():
    def run(n, x):
        h = torch.relu(n.a(x))
        return n.b(h) + n.c(h)

    found = connections(run)
    assert found["a"].readers == ("b", "c") and found["a"].clean


def test_a_branch_that_joins_is_named():
    def run(n, x):
        h = torch.relu(n.a(x))
        return n.c(h + torch.relu(n.b(h)))

    found = connections(run)
    assert found["a"].readers == ("b", "c") and found["a"].blocked == "c sees b as well"
    assert found["b"].readers == ("c",) and found["b"].blocked == "c sees a as well"


def test_scales_between_are_seen_though_memory_is_used_again():
    for _ in range(5):
        found = connections(lambda n, x: n.b(n.a(x) * 2 + 1))
        assert found["a"].readers == ("b",) and found["a"].between == ("mul", "add")


def test_in_place_activations_and_views_do_not_hide_the_way():
    def run(n, x):
        h = n.a(x)
        h.relu_()
        return n.b(h.view(5, 2, 3).flatten(1))

    found = connections(run)
    assert found["a"].readers == ("b",) and found["a"].clean and "relu_" in found["a"].between


def test_a_layer_that_runs_twice_counts_its_calls():
    net = Net(lambda n, x: n.b(torch.tanh(n.b(torch.tanh(n.a(x))))))
    layers = {x.name: x for x in chart(net, torch.randn(5, 4)).layers}
    assert layers["b"].calls == 2 and layers["a"].calls == 1


def test_tied_weights_are_one_weight_with_two_calls():
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
    net[2].weight = net[0].weight
    found = chart(net, torch.randn(3, 4))
    assert [x.weight for x in found.layers] == ["0.weight", "0.weight"] and {x.calls for x in found.layers} == {2}
    assert [x.bias for x in found.layers] == ["0.bias", "2.bias"]


def test_convolutions_embeddings_and_functional_layers_are_layers():
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.conv, self.w = nn.Embedding(7, 6), nn.Conv1d(6, 5, 3), nn.Parameter(torch.randn(2, 5))

        def forward(self, ids):
            h = torch.relu(self.conv(self.embed(ids).transpose(1, 2)))
            return nn.functional.linear(h.mean(-1), self.w)

    found = chart(Mixed(), torch.randint(0, 7, (3, 9)))
    assert [(x.name, x.bias) for x in found.layers] == [("embed", ""), ("conv", "conv.bias"), ("w", "")]
    assert [c.readers for c in found.connections] == [("conv",), ("w",), ()]


def test_attention_is_a_meeting_of_activations_and_conv1d_is_a_layer():
    transformers = pytest.importorskip("transformers")
    gpt = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=40, bos_token_id=0, eos_token_id=0)
    )
    found = chart(gpt, {"input_ids": torch.randint(0, 40, (2, 6))})
    layers = {x.name: x for x in found.layers}
    assert {f"transformer.h.0.{n}" for n in ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")} <= set(layers)
    assert layers["transformer.h.0.mlp.c_fc"].transposed
    by_writer = {c.writer: c for c in found.connections}
    assert by_writer["transformer.h.0.mlp.c_fc"].readers == ("transformer.h.0.mlp.c_proj",)
    assert by_writer["transformer.h.0.mlp.c_fc"].clean
    assert "another activation" in by_writer["transformer.h.0.attn.c_attn"].blocked


def test_dropout_between_is_no_other_branch():
    def run(n, x):
        return n.b(nn.functional.dropout(torch.relu(n.a(x)), 0.5, training=True))

    assert connections(run)["a"].clean


def test_an_input_that_joins_is_named_also_when_it_is_the_second():
    class Joined(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 6), nn.Linear(6, 2)

        def forward(self, x, z):
            return self.b(torch.relu(self.a(x)) + z)

    (first, _) = chart(Joined(), (torch.randn(3, 4), torch.randn(3, 6))).connections
    assert first.writer == "a" and first.readers == ("b",) and first.blocked == "b sees the model's input as well"


def test_the_dimension_of_the_outputs_is_known_for_every_shape_and_way_to_multiply():
    class Ways(nn.Module):
        def __init__(self, n, m):
            super().__init__()
            self.a, self.w, self.v, self.u = (
                nn.Linear(n, m),
                *(nn.Parameter(torch.randn(s)) for s in ((n, m), (m, n), (m, n))),
            )

        def forward(self, x):
            return self.a(x) + x @ self.w + torch.einsum("bn,mn->bm", x, self.v) + (self.u @ x.T).T

    expected = {"a": (0, False, -1), "w": (1, True, -1), "v": (0, False, -1), "u": (0, False, -2)}
    for n, m in ((4, 3), (4, 1), (3, 3), (1, 3)):
        found = chart(Ways(n, m), torch.randn(5, n)).layers
        rows = {layer.name: (layer.out_dim, layer.transposed, layer.channel_dim) for layer in found}
        if n == 1:  # torch turns such an einsum into an elementwise product
            rows["v"] = expected["v"]
        assert rows == expected, (n, m)
