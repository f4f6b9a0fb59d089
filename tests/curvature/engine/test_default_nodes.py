"""Which nodes are chosen when none are named, and choosing by name, glob and rule."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from netvitals.curvature import between_layers
from netvitals_lab import models


def next_token(out, y):
    return F.cross_entropy(out.reshape(-1, out.shape[-1]), y.reshape(-1))


TOKENS = (torch.randint(0, 256, (2, 8)), torch.randint(0, 256, (2, 8)))
IMAGES = (torch.randn(3, 1, 8, 8), torch.randint(0, 10, (3,)))
ROWS = (torch.randn(3, 64), torch.randint(0, 10, (3,)))


@pytest.mark.parametrize(
    ("spec", "batch", "nodes"),
    [
        ("gpt-micro,depth=2,width=16,heads=2,context=8", TOKENS, ("embed", "blocks.0", "blocks.1")),
        ("vit-mini", IMAGES, ("embed", "blocks.0", "blocks.1")),
        ("mixer-mini", IMAGES, ("embed", "blocks.0", "blocks.1")),
        ("resnet-mini", IMAGES, ("stem.2", "stages.0.0", "stages.1.0", "stages.2.0")),
        ("mlp:64-16x3-10", ROWS, ("blocks.0", "blocks.1", "blocks.2")),
    ],
)
def test_blocks_before_the_head(spec, batch, nodes):
    found = between_layers(models.build(spec, seed=0), next_token, batch, probes=4, mode="eval")
    assert found.nodes == nodes
    assert found.chosen.startswith(f"{len(nodes)} nodes by default") and nodes[-1] in found.chosen


def test_a_plain_sequence_has_one_node_per_weight_matrix_and_what_follows_it():
    net = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Tanh(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 3))
    batch = (torch.randn(5, 4), torch.randint(0, 3, (5,)))
    assert between_layers(net, F.cross_entropy, batch, probes=4).nodes == ("2", "4")
    assert between_layers(net, F.cross_entropy, batch, probes=4, space="parameter").nodes == ("0", "3", "5")
    wrapped = nn.Sequential(nn.Sequential(net))
    assert between_layers(wrapped, F.cross_entropy, batch, probes=4).nodes == ("0.0.2", "0.0.4")


class Matrix(nn.Module):
    """A linear layer of the user's own, as language models have."""

    def __init__(self, d):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(d, d) / d**0.5)

    def forward(self, x):
        return x @ self.weight


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.norm = nn.Embedding(20, 4), nn.LayerNorm(4)
        self.blocks = nn.ModuleList(nn.Sequential(Matrix(4), nn.Tanh()) for _ in range(3))

    def forward(self, ids):
        h = self.embed(ids)
        for block in self.blocks:
            h = h + block(h)
        return self.norm(h)


class Headed(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone, self.head = Backbone(), nn.Linear(4, 20, bias=False)

    def forward(self, ids):
        return self.head(self.backbone(ids))


def test_a_lone_backbone_shows_its_blocks():
    ids = torch.randint(0, 20, (3, 6))
    found = between_layers(Headed(), "ce", (ids, ids), probes=4)
    assert found.nodes == ("backbone.embed", "backbone.blocks.0.1", "backbone.blocks.1.1", "backbone.norm")
    assert between_layers(Headed(), "ce", (ids, ids), probes=4, nodes=["backbone"]).nodes == ("backbone",)


def test_many_blocks_are_thinned_evenly():
    deep = nn.Sequential(*[m for _ in range(30) for m in (nn.Linear(4, 4), nn.Tanh())], nn.Linear(4, 3))
    found = between_layers(deep, F.cross_entropy, (torch.randn(5, 4), torch.randint(0, 3, (5,))), probes=4)
    assert len(found.nodes) == 12 and found.nodes[0] == "1" and found.nodes[-1] == "59"
    assert "12 of 30 evenly spaced" in found.chosen
    assert len(found.skipped) == 18 and "name it in nodes=" in found.skipped["3"]


def test_names_globs_and_rules():
    net = models.build("resnet-mini", seed=0).eval()
    get = lambda nodes: between_layers(net, F.cross_entropy, IMAGES, nodes=nodes, probes=4).nodes
    assert get("stages.*") == ("stages.0", "stages.1", "stages.2")
    assert get(["stages.*.*", "stem.2"]) == ("stem.2", "stages.0.0", "stages.1.0", "stages.2.0")
    assert get("stages.**.convs.0") == ("stages.0.0.convs.0", "stages.1.0.convs.0", "stages.2.0.convs.0")
    assert get(lambda name, m: isinstance(m, nn.Conv2d) and name.startswith("stem")) == ("stem.0",)
    weights = between_layers(net, F.cross_entropy, IMAGES, nodes=["stem.0.weight", "head"], probes=4, space="parameter")
    assert weights.nodes == ("stem.0.weight", "head")


def test_one_call_of_a_module_called_twice(bench):
    batch = (torch.randn(4, 4), torch.randint(0, 2, (4,)))
    assert between_layers(bench.Tied(), F.cross_entropy, batch, nodes=["cell#2"], probes=4).nodes == ("cell#2",)
