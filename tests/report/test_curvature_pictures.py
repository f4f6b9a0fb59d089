"""The pictures of curvature between layers: data, JSON, DOT, SVG."""

import json
import xml.etree.ElementTree as ET

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from netvitals.curvature import between_layers
from netvitals.report import curvature_pictures as picture


@pytest.fixture(scope="module")
def deep():
    torch.manual_seed(0)
    layers = [m for _ in range(6) for m in (nn.Linear(16, 16), nn.Tanh())]
    net = nn.Sequential(*layers, nn.Linear(16, 3)).double()
    batch = (torch.randn(8, 16, dtype=torch.float64), torch.randint(0, 3, (8,)))
    return between_layers(net, F.cross_entropy, batch, method="exact")


def test_pictures(deep):
    data = json.loads(picture.to_json(deep, "resonance"))
    assert [n["name"] for n in data["nodes"]] == list(deep.nodes) and len(data["links"]) == 15
    assert {"source": "1", "target": "3"} in data["edges"]
    link = data["links"][0]
    assert link["resonance"] == deep.at("1", "3")["resonance"] and link["resonance_stderr"] == 0
    assert data["nodes"][0]["own"] == deep.resonance[0, 0] and data["nodes"][0]["size"] == 16
    dot = picture.to_dot(deep)
    assert dot.startswith("digraph") and '"1" -> "3"' in dot and "style=dashed" in dot
    heat = picture.heatmap(deep, "gn_gap")
    assert heat["labels"] == list(deep.nodes) and heat["z"] == deep.gn_gap.tolist() and heat["title"] == "gn gap"
    with pytest.raises(ValueError, match=r"weight= must be .* got 'size'"):
        picture.heatmap(deep, "size")


def test_drawings_are_whole_svg(deep):
    for svg in (picture.heatmap_svg(deep), picture.graph_svg(deep.graph, {("1", "3"): 2.0})):
        assert ET.fromstring(svg).tag.endswith("svg")
    assert picture.heatmap_svg(deep).count("<rect x=") == 36
    drawn = picture.graph_svg(deep.graph, {("1", "3"): 2.0})
    assert drawn.count("<circle") == 7 and drawn.count("<path") == 6  # six nodes and the output
    assert drawn.count('stroke-width="6.0"') == 1 and drawn.count('stroke-width="1.0"') == 5


def test_a_skip_is_an_arc():
    class Skip(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3)

        def forward(self, x):
            h = torch.tanh(self.a(x))
            return self.head(h + torch.tanh(self.b(h)))

    found = between_layers(Skip(), "ce", (torch.randn(5, 4), torch.randint(0, 3, (5,))), nodes=["a", "b"], probes=4)
    drawn = picture.graph_svg(found.graph)
    assert drawn.count("<path") == 3  # a → b, b → out, and a → out around it
    assert "NaN" not in picture.heatmap_svg(found) and picture.heatmap_svg(found, "gn_gap").count("<rect x=") == 4
