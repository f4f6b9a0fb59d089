"""Every place is found, with the name, the origin and the channels that it has."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from netvitals.capture import observe


def seen(model, x, echo, **options):
    return observe(model, None, x, vitals=[echo], **{"mode": "train", **options})


def sites(model, x, echo, kind=None):
    return {s.name: s for s in seen(model, x, echo).sites if kind in (None, s.kind)}


class Functional(nn.Module):
    """Calls ``f`` on the output of a layer."""

    def __init__(self, f):
        super().__init__()
        self.layer = nn.Linear(3, 4)
        self.f = f

    def forward(self, x):
        return self.f(self.layer(x))


CALLS = [
    (F.gelu, "gelu()"),
    (lambda x: F.gelu(x, approximate="tanh"), "gelu()"),
    (torch.relu, "relu()"),
    (F.relu, "relu()"),
    (lambda x: x.relu(), "relu()"),
    (lambda x: x.tanh(), "tanh()"),
    (torch.tanh, "tanh()"),
    (F.silu, "silu()"),
    (torch.sigmoid, "sigmoid()"),
    (F.softplus, "softplus()"),
    (F.mish, "mish()"),
    (F.elu, "elu()"),
    (F.selu, "selu()"),
    (lambda x: F.leaky_relu(x, 0.2), "leaky_relu()"),
    (F.hardswish, "hardswish()"),
    (lambda x: x.clamp(min=0), "relu()"),
    (torch.sin, "sin()"),
    (torch.erf, "erf()"),
    (torch.arctan, "atan()"),
    (F.relu6, "relu6()"),
    (lambda x: torch.relu_(x), "relu()"),
    (lambda x: F.relu(x, True), "relu()"),
    (lambda x: x.tanh_(), "tanh()"),
    (F.hardtanh, "hardtanh()"),
    (torch.special.expit, "sigmoid()"),
    (F.softsign, "softsign()"),
]


@pytest.mark.parametrize(("f", "name"), CALLS)
def test_functional_activations_are_seen_with_the_input_they_had(f, name, echo):
    model, x = Functional(f), torch.randn(5, 3)
    found = seen(model, x, echo)
    site = {s.name: s for s in found.sites}[name]
    assert site.kind == "activation" and site.follows == "linear" and site.module == ""
    z = model.layer(x).detach().requires_grad_(True)
    slope = torch.autograd.grad(f(z.clone()).sum(), z)[0]
    values = {r.metric: r.value for r in found.measurements if r.site == name}
    assert values["slope"] == pytest.approx(float(slope.mean()), abs=1e-6)
    assert values["a"] == pytest.approx(float(f(z.detach().clone()).mean()), abs=1e-6)


def test_the_whole_image_net(image_net, image_batch, echo):
    found = {s.name: (s.kind, s.op, s.follows, s.channel_dim) for s in seen(image_net, image_batch[0], echo).sites}
    block = lambda i, origin: {
        f"blocks.{i}.conv1": ("linear", "Conv2d", origin, 1),
        f"blocks.{i}.norm1": ("norm", "BatchNorm2d", "linear", 1),
        f"blocks.{i}.act": ("activation", "ReLU", "bn_direct", 1),
        f"blocks.{i}.conv2": ("linear", "Conv2d", "other", 1),
        f"blocks.{i}.norm2": ("norm", "BatchNorm2d", "linear", 1),
        f"blocks.{i}.relu()": ("activation", "relu", "post_add", 1),
        f"blocks.{i}": ("stream", "ImageBlock", "other", 1),
    }
    assert found == {
        "stem": ("linear", "Conv2d", "input", 1),
        **block(0, "linear"),
        **block(1, "other"),
        "head": ("linear", "Linear", "other", 1),
        "output": ("output", "ImageNet", "linear", 1),
    }


def test_transformer_layer_shows_its_functional_activation_also_in_eval_mode(echo):
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, activation=F.gelu)
    for mode in ("train", "eval"):
        found = seen(layer, torch.randn(3, 5, 8), echo, mode=mode)
        names = {s.name: s for s in found.sites}
        assert names["gelu()"].kind == "activation" and names["gelu()"].channel_dim == -1
        assert names["self_attn"].kind == "attention"
        assert names["norm1"].follows == "post_add" and names["linear1"].follows == "norm_direct"
        assert list(found.skipped) == ["self_attn"]
        assert "softmax" in found.skipped["self_attn"]


def test_the_fast_path_is_given_back(echo):
    was = torch.backends.mha.get_fastpath_enabled()
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    with pytest.raises((RuntimeError, AssertionError)):
        seen(layer, torch.randn(3, 5, 7), echo)
    assert torch.backends.mha.get_fastpath_enabled() is was


def test_one_module_called_twice_is_two_sites(echo):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.act = nn.Linear(4, 4), nn.GELU()

        def forward(self, x):
            x = F.silu(self.layer(self.act(self.layer(x))))
            return F.silu(self.layer(self.act(self.layer(x))))

    found = list(sites(Twice(), torch.randn(3, 4), echo))
    assert found == [
        *("layer", "act", "layer#2", "silu()"),
        *("layer#3", "act#2", "layer#4", "silu()#2", "output"),
    ]


def test_two_activations_in_a_row_are_one(echo):
    class Row(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.act = nn.Linear(4, 4), nn.GELU()

        def forward(self, x):
            return F.silu(self.act(self.layer(x)))

    found = sites(Row(), torch.randn(3, 4), echo, kind="activation")
    assert {name: site.op for name, site in found.items()} == {"silu()": "gelu → silu"}


def test_names_stay_the_same_from_look_to_look(image_net, image_batch, echo):
    assert seen(image_net, image_batch[0], echo).sites == seen(image_net, image_batch[0], echo).sites


@pytest.mark.parametrize(
    ("layer", "shape", "dim", "follows"),
    [
        (lambda: nn.Sequential(nn.Conv1d(3, 4, 1), nn.ReLU()), (2, 3, 7), 1, "linear"),
        (lambda: nn.Sequential(nn.Linear(3, 4), nn.ReLU()), (2, 7, 3), -1, "linear"),
        (lambda: nn.Sequential(nn.Linear(3, 4), nn.ReLU()), (7, 3), 1, "linear"),
        (lambda: nn.Sequential(nn.Linear(3, 4), nn.ReLU()), (2, 5, 5, 3), -1, "linear"),
        (lambda: nn.Sequential(nn.BatchNorm1d(3), nn.ReLU()), (2, 3, 7), 1, "bn_direct"),
        (lambda: nn.Sequential(nn.LayerNorm(3), nn.ReLU()), (2, 7, 3), -1, "norm_direct"),
        (
            lambda: nn.Sequential(nn.Conv2d(3, 4, 1), nn.GroupNorm(2, 4), nn.Dropout(0.0), nn.ReLU()),
            (2, 3, 5, 5),
            1,
            "norm_direct",
        ),
        (lambda: nn.Sequential(nn.ReLU(), nn.Linear(3, 3)), (2, 3, 5, 3), 1, "input"),
        (lambda: nn.Sequential(nn.Conv2d(3, 4, 1), nn.MaxPool2d(2), nn.ReLU()), (2, 3, 4, 4), 1, "other"),
        (lambda: nn.Sequential(nn.Linear(3, 8), nn.Unflatten(1, (2, 4)), nn.ReLU()), (2, 3), -1, "linear"),
    ],
)
def test_origin_and_channels_of_an_activation(layer, shape, dim, follows, echo):
    (site,) = sites(layer(), torch.randn(shape), echo, kind="activation").values()
    assert (site.channel_dim, site.follows) == (dim, follows)


@pytest.mark.parametrize(
    "add", [lambda x, y: x + y, torch.add, lambda x, y: x.add(y), lambda x, y: x.add_(y), lambda x, y: y.__radd__(x)]
)
def test_every_way_to_add_is_an_addition(add, echo):
    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x):
            return F.relu(add(self.one(x), self.two(x)))

    assert sites(Residual(), torch.randn(4, 3), echo)["relu()"].follows == "post_add"


def test_a_bias_or_a_number_is_no_addition(echo):
    class Biased(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.bias = nn.Linear(3, 3, bias=False), nn.Parameter(torch.zeros(3))

        def forward(self, x):
            return F.relu(self.layer(x) + self.bias + 1.0)

    assert sites(Biased(), torch.randn(4, 3), echo)["relu()"].follows == "linear"


def test_position_codes_are_no_activations(echo):
    class Coded(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x):
            return self.layer(x + torch.sin(torch.arange(4.0))).relu()

    assert list(sites(Coded(), torch.randn(2, 4), echo, kind="activation")) == ["relu()"]


def test_what_mixes_elements_is_listed_and_not_taken_for_an_activation(echo):
    class Gated(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.glu, self.lstm = nn.Linear(4, 8), nn.GLU(), nn.LSTM(4, 4, batch_first=True)

        def forward(self, x):
            x = self.lstm(self.glu(self.layer(x)))[0]
            x = x[:, None]
            return F.scaled_dot_product_attention(x, x, x) @ F.softmax(x, -1).transpose(2, 3)

    found = seen(Gated(), torch.randn(2, 3, 4), echo)
    assert set(found.skipped) == {"lstm", "softmax()", "scaled_dot_product_attention()"}
    assert [s.name for s in found.sites if s.kind == "product"] == ["glu.glu()"]
    assert all(found.skipped.values())
    assert not [s for s in found.sites if s.kind == "activation"]


def test_a_layer_called_as_a_function_is_listed(echo):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(7, 4)

        def forward(self, tokens):
            return F.linear(F.gelu(self.embed(tokens)), self.embed.weight)

    found = seen(Tied(), torch.randint(0, 7, (2, 3)), echo)
    assert [s.name for s in found.sites] == ["gelu()", "output"]
    assert list(found.skipped) == ["linear()"]


def test_a_submodule_called_output_keeps_its_name(echo):
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.output = nn.Linear(3, 3)

        def forward(self, x):
            return self.output(x)

    assert list(sites(Named(), torch.randn(2, 3), echo)) == ["output", "output()"]


def test_a_call_that_raises_and_is_caught_inside_does_not_confuse_names(echo):
    class Patient(nn.Module):
        def __init__(self):
            super().__init__()
            self.wrong, self.right = nn.Linear(9, 3), nn.Linear(3, 3)

        def forward(self, x):
            try:
                x = self.wrong(x)
            except RuntimeError:
                x = self.right(x)
            return F.relu(x)

    assert list(sites(Patient(), torch.randn(2, 3), echo)) == ["right", "relu()", "output"]


def test_an_addition_in_a_part_without_parameters_is_no_residual_stream(echo):
    class Turn(nn.Module):
        def forward(self, x):
            a, b = x.chunk(2, -1)
            return torch.cat([0.6 * a - 0.8 * b, 0.6 * b + 0.8 * a], -1)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.turn = nn.Linear(4, 4), Turn()

        def forward(self, x):
            return x + self.turn(self.layer(x))

    assert list(sites(nn.Sequential(Block(), nn.Tanh()), torch.randn(3, 4), echo, kind="stream")) == ["0"]
