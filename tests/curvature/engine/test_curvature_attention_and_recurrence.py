"""Modules with fused kernels: they work as they are, and the user's settings come back."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from netvitals.curvature import between_layers


def test_transformer_encoder_layer_in_eval_mode_as_it_is(bench):
    layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True, activation="gelu").double().eval()
    model = nn.Sequential(layer, nn.Flatten(), nn.Linear(12, 2)).double().eval()
    data = (torch.randn(3, 3, 4).double(), torch.randn(3, 2).double())
    found = between_layers(model, F.mse_loss, data, nodes=["0.linear1", "0.norm1", "0"], method="exact")
    reference, _ = bench.perturbed_hessian(model, F.mse_loss, data, list(found.nodes))
    assert bench.relative(found.blocks.hessian, reference) <= 1e-10
    assert found.graph.parents["0.linear1"] == ("0.norm1",)
    assert set(found.graph.parents["0"]) == {"0.norm1", "0.linear1"}


def test_multihead_attention_returns_a_tuple_and_can_be_a_node():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.attn, self.head = nn.MultiheadAttention(4, 2, batch_first=True), nn.Linear(4, 2)

        def forward(self, x):
            return self.head(self.attn(x, x, x, need_weights=False)[0].mean(1))

    found = between_layers(
        Net().eval(), F.mse_loss, (torch.randn(3, 5, 4), torch.randn(3, 2)), nodes=["attn"], probes=20
    )
    assert found.sizes == (20,) and found.resonance[0, 0] > 0


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers(kind):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.inp, self.rnn, self.head = nn.Linear(3, 3), kind(3, 4, batch_first=True), nn.Linear(4, 2)

        def forward(self, x):
            return self.head(self.rnn(self.inp(x))[0][:, -1])

    data = (torch.randn(2, 4, 3), torch.randn(2, 2))
    found = between_layers(Net(), F.mse_loss, data, nodes=["inp", "rnn"], method="exact")
    assert np.isfinite(found.resonance).all() and found.gn_gap[0, 0] > 1e-6


def test_attention_parts_found_as_a_graph(bench):
    data = (torch.randn(4, 3, 4), torch.randn(4, 2))
    found = between_layers(bench.Attention(), F.mse_loss, data, nodes=["q", "k", "v"], probes=4)
    assert found.graph.parents["out"] == ("q", "k", "v")
    assert any("bmm" in m or "matmul" in m for m in found.graph.merges["out"])


def test_residual_diamond_and_shared_graphs(bench):
    data = (torch.randn(4, 4), torch.randn(4, 3))
    nodes = ["stem", "left", "right", "far", "merge"]
    diamond = between_layers(bench.Diamond(), F.mse_loss, data, nodes=nodes, probes=4).graph
    assert diamond.parents == {
        "stem": (),
        "left": ("stem",),
        "right": ("stem",),
        "far": ("right",),
        "merge": ("left", "far"),
        "out": ("merge",),
    }
    assert diamond.merges["merge"] == ("cat",)
    assert diamond.topology.distance("left", "right") == 2
    residual = between_layers(
        bench.Residual(), F.cross_entropy, (torch.randn(4, 5), torch.randint(0, 3, (4,))), nodes=["a", "b"], probes=4
    ).graph
    assert residual.parents["out"] == ("a", "b") and "add" in residual.merges["out"]
    data = (torch.randn(4, 4), torch.randint(0, 2, (4,)))
    tied = between_layers(bench.Tied(), F.cross_entropy, data, nodes=["cell"], probes=4).graph
    assert tied.names == ("cell", "cell#2", "cell#3") and tied.shared == {"cell": ("cell", "cell#2", "cell#3")}
    assert "cell#2 ← cell" in str(tied)
