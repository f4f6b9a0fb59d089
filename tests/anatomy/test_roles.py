"""Every site has a role by where its values come from and where they go, never by the order of registration."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from netvitals.anatomy import chart


class Net(nn.Module):
    """Three layers, registered in the reverse order of the pass."""

    def __init__(self, run):
        super().__init__()
        self.c, self.b, self.a = nn.Linear(6, 3), nn.Linear(6, 6), nn.Linear(4, 6)
        self.run = run

    def forward(self, x):
        return self.run(self, x)


def charted(run, x=None):
    return chart(Net(run), torch.randn(5, 4) if x is None else x)


def test_the_readout_is_the_last_layer_of_the_pass_though_it_was_registered_first():
    found = charted(lambda n, x: n.c(torch.relu(n.b(torch.tanh(n.a(x))))))
    assert {x.name: x.role for x in found.layers} == {"a": "hidden layer", "b": "hidden layer", "c": "readout"}
    assert [x.name for x in found.readouts] == ["c"]


@pytest.mark.parametrize("link", [torch.sigmoid, torch.tanh, lambda h: h.softmax(-1), F.softplus, torch.relu])
def test_what_bends_the_output_is_an_output_link_and_what_comes_before_is_hidden(link):
    found = charted(lambda n, x: link(n.c(torch.relu(n.a(x)))))
    last = found.softmaxes or found.activations[-1:]
    assert [s.role for s in last] == ["output link"]
    assert found.activations[0].role == "hidden activation" and found.readouts[0].name == "c"


def test_a_gate_before_the_output_is_no_link():
    found = charted(lambda n, x: torch.sigmoid(n.b(n.a(x))) * torch.tanh(n.a(x)))
    assert [r.role for r in found.activations] == ["hidden activation"] * 2
    assert [g.role for g in found.gates] == ["gate"]


def test_a_soft_cap_is_known_by_its_function_on_the_logits():
    cap = lambda h, c: c * torch.tanh(h / c)
    found = charted(lambda n, x: cap(n.c(cap(n.a(x), 5.0)), 30.0))
    assert [r.role for r in found.activations] == ["hidden activation", "soft-cap"]
    found = charted(lambda n, x: 0.5 * torch.tanh(n.c(n.a(x)) + 1))  # shifted: no cap
    assert [r.role for r in found.activations] == ["output link"]


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.head, self.position, self.token = nn.Linear(8, 11), nn.Embedding(20, 8), nn.Embedding(11, 8)
        self.kind = nn.Embedding(2, 8)
        self.register_buffer("places", torch.arange(20))

    def forward(self, ids):
        t = ids.shape[1]
        kinds = torch.zeros_like(ids)
        return self.head(self.token(ids) + self.position(self.places[:t]) + self.kind(kinds))


def test_ids_of_the_input_are_embedded_and_places_are_positions():
    found = chart(Words(), torch.randint(0, 11, (3, 7)))
    assert {x.name: x.role for x in found.layers} == {
        "token": "embedding",
        "position": "positional",
        "kind": "embedding",
        "head": "readout",
    }


def test_parameters_know_what_they_are_for():
    class Patches(nn.Module):
        def __init__(self):
            super().__init__()
            self.patch, self.norm, self.head = nn.Conv2d(3, 8, 4, 4), nn.LayerNorm(8), nn.Linear(8, 5)
            self.first, self.places = nn.Parameter(torch.zeros(1, 1, 8)), nn.Parameter(torch.randn(1, 17, 8))
            self.gamma, self.beta = nn.Parameter(torch.ones(8)), nn.Parameter(torch.ones(1))

        def forward(self, x):
            h = self.patch(x).flatten(2).transpose(1, 2)
            h = torch.cat([self.first.expand(len(x), -1, -1), h], 1) + self.places
            h = self.norm(h) * self.gamma
            return self.head((h * torch.sigmoid(self.beta * h))[:, 0])

    roles = {p.name: p.role for p in chart(Patches(), torch.randn(2, 3, 16, 16)).parameters}
    assert roles == {
        "patch.weight": "hidden layer",
        "patch.bias": "hidden layer",
        "norm.weight": "normaliser",
        "norm.bias": "normaliser",
        "head.weight": "readout",
        "head.bias": "readout",
        "first": "embedding",
        "places": "positional",
        "gamma": "hidden activation",  # scales what the Swish bends: one region
        "beta": "hidden activation",
    }


def test_a_backbone_without_a_head_has_no_readout_and_a_joined_output_has_two():
    def body(n, x):
        h = n.a(x)
        return h + n.b(torch.relu(h))

    assert not charted(body).readouts
    found = charted(lambda n, x: (n.c(torch.relu(n.a(x))), n.b(n.a(x))))
    assert sorted(x.name for x in found.readouts) == ["b", "c"]


def test_an_attention_soft_cap_router_and_weights_have_their_roles():
    transformers = pytest.importorskip("transformers")
    sizes = {
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "vocab_size": 40,
    }
    ids = {"input_ids": torch.randint(1, 40, (2, 6))}
    gemma = transformers.Gemma2ForCausalLM(
        transformers.Gemma2Config(**sizes, num_key_value_heads=2, head_dim=4, attn_implementation="eager")
    )
    found = chart(gemma, ids)
    assert [r.role for r in found.activations].count("soft-cap") == 3  # two blocks of scores, and the logits
    assert [s.role for s in found.softmaxes] == ["attention weight"] * 2
    assert len(found.norms) == 9 and {n.role for n in found.norms} == {"normaliser"}
    mixtral = transformers.MixtralForCausalLM(
        transformers.MixtralConfig(**sizes, num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2)
    )
    found = chart(mixtral, ids)
    assert [s.role for s in found.softmaxes] == ["router"] * 2
    assert [x.name for x in found.layers_with("router")] == [f"model.layers.{i}.mlp.gate" for i in range(2)]
    assert [g.role for g in found.gates] == ["gate", "router"] * 2
