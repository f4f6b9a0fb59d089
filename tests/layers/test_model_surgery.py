"""Surgery in place: what is exchanged, what is kept, what is shared, what cannot be reached."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from netvitals import activations as A
from netvitals import layers as L


def net():
    return nn.Sequential(
        nn.Linear(6, 8),
        nn.GELU(),
        nn.Sequential(nn.Linear(8, 8), nn.GELU(approximate="tanh")),
        nn.Linear(8, 8),
        nn.LeakyReLU(0.2),
        nn.Linear(8, 1),
        nn.Sigmoid(),
    )


def test_only_the_named_activation_is_exchanged():
    model = net()
    done = L.replace_activation(model, "gelu", "silu")
    assert [r.name for r in done] == ["1"] and isinstance(model[1], nn.SiLU) and isinstance(model[2][1], nn.GELU)
    assert isinstance(done[0].old, nn.GELU) and done[0].new is model[1] and not done.skipped


@pytest.mark.parametrize(
    ("frm", "names"),
    [
        (None, ["1", "4", "6", "2.1"]),
        (nn.GELU, ["1", "2.1"]),
        (("gelu", "leaky_relu"), ["1", "4"]),
        ("leaky_relu", ["4"]),
        ("leaky_relu:0.2", ["4"]),
        ("leaky_relu:0.1", []),
        ("tanh", []),
    ],
)
def test_ways_to_say_what_to_exchange(frm, names):
    assert sorted(r.name for r in L.replace_activation(net(), frm, "relu2:15")) == sorted(names)


def test_ways_to_say_what_to_put_there():
    for to in ("relu2:15", A.get("relu2:15"), lambda old: A.get("relu2:15")):
        model = net()
        done = L.replace_activation(model, nn.GELU, to)
        assert [A.spec_of(r.new) for r in done] == ["relu2:15"] * 2
        assert done[0].new is not done[1].new  # one instance per call site
    model = net()
    L.replace_activation(model, "gelu", nn.Tanh)
    L.replace_activation(model, "gelu_tanh", F.relu)
    L.replace_activation(model, "leaky_relu", lambda old: A.TopK(old, 0.5))
    assert isinstance(model[1], nn.Tanh) and isinstance(model[2][1], nn.ReLU)
    assert model[4].inner.negative_slope == 0.2


def test_filters_by_pattern_and_by_function():
    assert [r.name for r in L.replace_activation(net(), None, "relu", only="2.*")] == ["2.1"]
    assert [r.name for r in L.replace_activation(net(), None, "relu", only=lambda name, m: name == "6")] == ["6"]


def test_state_device_dtype_mode_and_everything_else_is_kept():
    model = net().double().eval()
    model[0].weight.requires_grad_(False)
    before = copy.deepcopy(model.state_dict())
    L.replace_activation(model, None, "prelu")
    assert all(torch.equal(model.state_dict()[k], v) for k, v in before.items())
    assert model[1].weight.dtype == torch.float64 and not model[1].training and not model[0].weight.requires_grad
    meta = net().to("meta")
    L.replace_activation(meta, "gelu", "prelu")
    assert meta[1].weight.device.type == "meta" and meta[1].training


def test_a_shared_activation_stays_shared():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            act = nn.GELU()
            self.first, self.second, self.body = act, act, nn.Sequential(nn.Linear(2, 2), act)

    model = Twice()
    (done,) = L.replace_activation(model, "gelu", "relu")
    assert model.first is model.second is model.body[1] and isinstance(model.first, nn.ReLU)
    assert {done.name, *done.also} == {"first", "second", "body.1"}


def test_composite_activations_are_exchanged_whole():
    model = nn.Sequential(A.get("gelu2"), A.get("topk:gelu:0.5"))
    assert not L.replace_activation(model, "gelu", "relu")
    assert isinstance(model[0].inner, nn.GELU)
    assert [r.name for r in L.replace_activation(model, ("gelu2", "topk:gelu:0.5"), "relu")] == ["0", "1"]


class Functional(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down, self.act = nn.Linear(4, 4), nn.Linear(4, 4), nn.GELU()

    def forward(self, x):
        h = F.gelu(self.up(x)).tanh()
        return self.down(self.act(h)) + torch.relu(h)


def test_functional_activations_are_reported_with_their_line():
    model = nn.Sequential(Functional(), nn.GELU())
    assert {(name, called) for name, called, _ in L.functional_activations(model)} == {
        ("0", "relu"),
        ("0", "tanh"),
        ("0", "gelu"),
    }
    done = L.replace_activation(model, "gelu", "relu")
    assert sorted(r.name for r in done) == ["0.act", "1"]
    (missed,) = done.skipped.items()
    assert missed[0] == "0" and "gelu is called as a function in forward, line" in missed[1]
    assert "not reached: 0" in str(done)


@pytest.mark.parametrize("activation", ["gelu", nn.GELU(), F.gelu])
def test_torch_transformer_layers_are_reached_and_not_run_through_the_fused_path(activation):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, activation, batch_first=True)
    model = nn.TransformerEncoder(layer, 2).eval()
    done = L.replace_activation(model, "gelu", "silu")
    assert [r.name for r in done] == ["layers.0.activation", "layers.1.activation"]
    x = torch.randn(3, 5, 8)
    slow = model(x).detach()  # with gradients torch takes the open path
    with torch.no_grad():
        assert torch.allclose(model(x), slow, atol=1e-6)
        padding = torch.zeros(3, 5, dtype=torch.bool)
        padding[:, 4:] = True
        model(x, src_key_padding_mask=padding)
    first = model.layers[0]
    assert isinstance(first.activation, nn.SiLU) and first.activation_relu_or_gelu == 0
    assert len(L.replace_activation(model, "silu", "relu")) == 2 and first.activation_relu_or_gelu == 1


class Swish(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(x)


def test_relufy_takes_relu_like_activations_strangers_included_and_leaves_gates():
    model = nn.Sequential(nn.Linear(3, 3), Swish(), nn.Mish(), nn.ReLU(), nn.Sigmoid(), nn.Tanh(), nn.Identity())
    done = L.relufy(model)
    assert [r.name for r in done] == ["1", "2"] and isinstance(model[1], nn.ReLU) and isinstance(model[2], nn.ReLU)
    assert [(name, reason.split()[0]) for name, reason in done.skipped.items()] == [("4", "sigmoid"), ("5", "tanh")]
    assert isinstance(model[6], nn.Identity)
    assert L.relufy(model) == []


def test_relufied_network_is_sparse():
    model = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 4))
    x = torch.randn(32, 16)
    assert (model[:2](x) == 0).float().mean() == 0
    L.relufy(model)
    assert 0.3 < (model[:2](x) == 0).float().mean() < 0.7


def test_wrong_names_are_refused_before_anything_changes():
    model = net()
    before = repr(model)
    with pytest.raises(ValueError, match="no activation 'gellu'; nearest: gelu"):
        L.replace_activation(model, "gellu", "relu")
    with pytest.raises(ValueError, match="no activation 'rellu'"):
        L.replace_activation(model, "gelu", "rellu")
    with pytest.raises(TypeError, match=r"must return a module .* got int"):
        L.replace_activation(model, "gelu", lambda old: 3)
    with pytest.raises(ValueError, match="the model itself is the activation"):
        L.replace_activation(nn.GELU(), "gelu", "relu")
    with pytest.raises(ValueError, match="no norm 'bach'; the nearest names are batch"):
        L.replace_norm(model, "bach", "layer")
    with pytest.raises(ValueError, match="no norm 'quantil'"):
        L.replace_norm(model, "batch", "quantil:0.5")
    with pytest.raises(ValueError, match="topk:SPARSITY"):
        L.replace_linear(model, "sparse")
    assert repr(model) == before


def conv_net():
    return nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4, eps=1e-4, momentum=0.3), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4)
    )


def test_norms_carry_their_state_over():
    model = conv_net()
    for _ in range(5):
        model(torch.randn(8, 2, 9, 9))
    with torch.no_grad():
        model[1].weight.uniform_(0.5, 2)
    model[4].bias.requires_grad_(False)
    model.eval()
    before = copy.deepcopy(model.state_dict())
    x = torch.randn(4, 2, 9, 9)
    expected = model(x)
    done = L.replace_norm(model, "batch", "quantile:0.75")
    assert [r.name for r in done] == ["1", "4"] and all(not r.lost for r in done)
    assert model.state_dict().keys() == before.keys()
    assert all(torch.equal(model.state_dict()[k], v) for k, v in before.items())
    assert (model[1].eps, model[1].momentum, model[1].training) == (1e-4, 0.3, False)
    assert not model[4].bias.requires_grad
    assert torch.allclose(model(x), expected)  # evaluation reads the same running statistics
    (lost, _) = L.replace_norm(model, L.QuantileBatchNorm2d, "group")
    assert "running_mean" in lost.lost and lost.kept == ("weight", "bias")


def test_norm_exchange_keeps_channels_layout_and_device():
    model = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.LayerNorm(16), nn.RMSNorm(16), nn.LayerNorm((4, 16)))
    done = L.replace_norm(model.double(), None, "quantile:0.5")
    assert [type(m).__name__ for m in model[1:4]] == ["QuantileBatchNorm1d", "QuantileLayerNorm", "QuantileLayerNorm"]
    assert model[1].weight.dtype == torch.float64
    assert [r.name for r in done] == ["1", "2", "3"] and list(done.skipped) == ["4"]
    made = L.replace_norm(model, L.QuantileBatchNorm1d, lambda old: nn.BatchNorm1d(old.num_features))
    assert isinstance(model[1], nn.BatchNorm1d) and "running_mean" in made[0].kept


def test_linear_layers_are_wrapped_with_their_weights():
    model = nn.Sequential(nn.Linear(6, 20), nn.ReLU(), nn.Linear(20, 20))
    weights = model[0].weight
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    done = L.replace_linear(model, "topk:0.75")
    assert [r.name for r in done] == ["0", "2"] and model[0].inner.weight is weights
    y = model[0](torch.randn(5, 6))
    assert ((y != 0).sum(dim=-1) == 5).all()
    model(torch.randn(5, 6)).sum().backward()
    optimizer.step()  # the optimiser still holds the same parameters
    assert not L.replace_linear(model, "topk:0.5")  # what is wrapped is not wrapped again
    made = L.replace_linear(nn.Sequential(nn.Conv2d(1, 2, 3)), lambda old: nn.utils.parametrizations.weight_norm(old))
    assert len(made) == 1
