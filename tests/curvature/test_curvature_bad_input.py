"""Bad input gets a sentence with the node's name and what to do; the model is as it was, also after an error."""

import copy
import gc

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from netvitals.curvature import between_layers, trace


def net(*extra):
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), *extra, nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 3))


def batch(n=6):
    return torch.randn(n, 4), torch.randint(0, 3, (n,))


def state(model):
    return (
        [(k, v.clone()) for k, v in model.state_dict().items()],
        [m.training for m in model.modules()],
        [p.requires_grad for p in model.parameters()],
        [p.grad for p in model.parameters()],
        [getattr(m, "inplace", None) for m in model.modules()],
        [len(m._forward_hooks) for m in model.modules()],
        torch.get_rng_state(),
    )


def assert_same(a, b):
    assert all(x[0] == y[0] and torch.equal(x[1], y[1]) for x, y in zip(a[0], b[0]))
    assert a[1] == b[1] and a[2] == b[2] and a[4] == b[4] and a[5] == b[5]
    assert all(x is y for x, y in zip(a[3], b[3]))
    assert torch.equal(a[6], b[6])


@pytest.mark.parametrize("space", ["activation", "parameter"])
def test_the_model_is_left_as_it_was(space):
    model = net(nn.BatchNorm1d(5), nn.ReLU(inplace=True))
    model[0].weight.requires_grad_(False)
    for p in model.parameters():
        p.grad = torch.ones_like(p) if p.requires_grad else None
    data, before = batch(), state(model)
    backends = (torch.backends.mha.get_fastpath_enabled(), torch.backends.cuda.flash_sdp_enabled())
    between_layers(model, F.cross_entropy, data, probes=4, space=space)
    trace(model, F.cross_entropy, data, probes=2)
    assert_same(before, state(model))
    assert backends == (torch.backends.mha.get_fastpath_enabled(), torch.backends.cuda.flash_sdp_enabled())


@pytest.mark.parametrize(
    ("loss", "error", "sentence"),
    [
        (lambda o, y: 1 / 0, ZeroDivisionError, "division by zero"),
        (lambda o, y: o.sum() * float("nan"), ValueError, "the loss of this batch is nan"),
        (lambda o, y: o, TypeError, r"must return one number as a tensor, got a tensor of shape \(6, 3\)"),
        (lambda o, y: (o.argmax(1) == y).float().mean(), ValueError, "no gradient with respect to the model's output"),
        (lambda o, y: (o.argmax(1) == y).sum(), ValueError, "torch.int64, expected a floating-point number"),
    ],
)
def test_the_model_is_left_as_it_was_when_the_loss_fails(loss, error, sentence):
    model = net(nn.BatchNorm1d(5))
    data, before = batch(), state(model)
    with pytest.raises(error, match=sentence):
        between_layers(model, loss, data, probes=4)
    assert_same(before, state(model))


def test_a_loss_without_second_derivative():
    with pytest.raises(ValueError, match="no second derivative in the model's output"):
        between_layers(net(), lambda o, y: (o[:, 0] - 1).abs().mean(), batch(), probes=4)


def test_an_operation_without_second_derivative_is_named():
    with pytest.raises(ValueError, match=r"hardsigmoid.* has no second derivative"):
        between_layers(net(nn.Hardsigmoid()), F.cross_entropy, batch(), nodes=["1"], probes=4)


def test_in_place_modules_just_work():
    a = net(nn.ReLU(inplace=True)).double()
    b = copy.deepcopy(a)
    b[2].inplace = False
    data = (torch.randn(6, 4).double(), torch.randint(0, 3, (6,)))
    nodes = ["1", "2", "4"]
    one, two = (between_layers(m, F.cross_entropy, data, nodes=nodes, method="exact") for m in (a, b))
    np.testing.assert_allclose(one.resonance, two.resonance, rtol=1e-12)


def test_an_in_place_operation_in_the_forward_is_explained():
    class Overwrites(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 3)

        def forward(self, x):
            h = torch.exp(self.a(x))
            g = self.b(h)
            h.mul_(2)
            return g + h[:, :3]

    with pytest.raises(ValueError, match="overwritten in place"):
        between_layers(Overwrites(), F.cross_entropy, batch(), nodes=["a"], probes=4)


def test_dropout_left_on_is_named_and_eval_helps():
    model = net(nn.Dropout(0.3))
    with pytest.raises(ValueError, match=r"dropout is active in '2' \(p = 0.3\)"):
        between_layers(model, F.cross_entropy, batch(), probes=4)
    between_layers(model, F.cross_entropy, batch(), probes=4, mode="eval")
    assert model.training


def test_functional_noise_is_noticed():
    class Noisy(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 30), nn.Linear(30, 3)

        def forward(self, x):
            return self.b(F.dropout(self.a(x), 0.5))

    with pytest.raises(ValueError, match="two forward passes of the same batch differ"):
        between_layers(Noisy(), F.cross_entropy, batch(), nodes=["a"], probes=4)


class Odd(nn.Module):
    """A used node, an unused one, one that returns integers, one never called."""

    def __init__(self):
        super().__init__()
        self.used, self.spare, self.never = (nn.Linear(4, 4) for _ in range(3))
        self.head, self.pick = nn.Linear(4, 3), nn.Identity()

    def forward(self, x):
        h = torch.tanh(self.used(x))
        self.spare(h)
        self.pick(h.argmax(1))
        return self.head(h)


@pytest.mark.parametrize(
    ("node", "sentence"),
    [
        ("spare", "node 'spare' does not influence"),
        ("pick", "node 'pick' returns Tensor of int64, which cannot be differentiated"),
        ("never", "node 'never' is not called in the forward pass"),
        ("usde", "no module matches 'usde'; did you mean used"),
    ],
)
def test_unsuitable_nodes_are_named(node, sentence):
    with pytest.raises(ValueError, match=sentence):
        between_layers(Odd(), F.cross_entropy, batch(), nodes=[node], probes=4)


def test_default_nodes_leave_out_what_cannot_be_measured():
    found = between_layers(Odd(), F.cross_entropy, batch(), probes=4)
    assert found.nodes == ("used",)
    assert found.skipped == {
        "pick": "returns Tensor of int64, which cannot be differentiated",
        "spare": "does not influence the loss",
    }
    assert "skipped: pick (returns Tensor of int64" in str(found)


def test_a_frozen_node_in_parameter_space():
    model = net()
    model[2].requires_grad_(False)
    with pytest.raises(ValueError, match="module '2' has no trainable parameter"):
        between_layers(model, F.cross_entropy, batch(), nodes=["0", "2"], probes=4, space="parameter")


def test_a_batch_larger_than_memory():
    model = net()
    data, before = batch(5000), state(model)
    with pytest.raises(MemoryError, match=r"batch of 5000 needs at least .* pass about \d+ examples"):
        between_layers(model, F.cross_entropy, data, probes=4, memory=100_000)
    assert_same(before, state(model))


def test_exact_blocks_larger_than_memory():
    wide = nn.Sequential(nn.Linear(4, 600), nn.Tanh(), nn.Linear(600, 3))
    with pytest.raises(MemoryError, match="method='stochastic'"):
        between_layers(wide, F.cross_entropy, batch(), nodes=["1"], method="exact", memory=2_000_000)


@pytest.mark.filterwarnings("ignore")
def test_nothing_is_left_behind_in_memory():
    model, data = net(), batch()

    def measure():
        between_layers(model, F.cross_entropy, data, probes=4)
        between_layers(model, F.cross_entropy, data, probes=4, space="parameter")
        trace(model, F.cross_entropy, data, probes=2)

    def tensors():
        gc.collect()
        return sum(issubclass(type(o), torch.Tensor) for o in gc.get_objects())

    measure()
    before = tensors()
    for _ in range(3):
        measure()
    assert tensors() <= before


@pytest.mark.parametrize(
    ("wrong", "error", "sentence"),
    [
        ({"method": "guess"}, ValueError, "method= must be one of 'stochastic', 'exact', got 'guess'"),
        ({"reduction": "sum"}, ValueError, "reduction= must be .* got 'sum'"),
        ({"space": "weights"}, ValueError, "space= must be .* got 'weights'"),
        ({"probes": 1}, ValueError, "probes= must be an integer of at least 2, got 1"),
        ({"nodes": []}, ValueError, "is empty"),
        ({"nodes": lambda n, m: False}, ValueError, "selected none"),
        ({"space": "parameter", "reduction": "joint"}, ValueError, "all examples share the parameters"),
    ],
)
def test_wrong_options(wrong, error, sentence):
    with pytest.raises(error, match=sentence):
        between_layers(net(), F.cross_entropy, batch(), **wrong)


@pytest.mark.parametrize(
    ("args", "error", "sentence"),
    [
        (("net", F.cross_entropy, (torch.zeros(1, 4), torch.zeros(1))), TypeError, "must be a torch.nn.Module"),
        ((net(), "msee", (torch.zeros(1, 4), torch.zeros(1))), ValueError, "there is no loss 'msee'; did you mean mse"),
        (
            (net(), (torch.zeros(1, 4), torch.zeros(1)), F.cross_entropy),
            TypeError,
            "order of arguments is .model, loss_fn, batch",
        ),
        ((net(), F.cross_entropy, torch.zeros(3, 4)), TypeError, "must be a pair"),
        ((net(), F.cross_entropy, (torch.zeros(0, 4), torch.zeros(0, dtype=torch.long))), ValueError, "batch is empty"),
        ((net(), F.cross_entropy, (3, 4)), ValueError, "no input tensor"),
    ],
)
def test_wrong_arguments(args, error, sentence):
    with pytest.raises(error, match=sentence):
        between_layers(*args)


def test_a_summed_loss_is_refused_where_examples_are_kept_apart():
    summed = nn.CrossEntropyLoss(reduction="sum")
    with pytest.raises(ValueError, match="not a mean over examples"):
        between_layers(net(), summed, batch(), probes=4, reduction="per_sample")
    between_layers(net(), summed, batch(), probes=4)


def test_blocks_of_a_stochastic_result_do_not_exist():
    found = between_layers(net(), F.cross_entropy, batch(), probes=4)
    with pytest.raises(ValueError, match="Use method='exact'"):
        found.block("1", "3")
    with pytest.raises(KeyError, match="no node 'x'"):
        found.at("x", "1")


def test_works_inside_no_grad_and_on_compiled_wrappers_originals():
    with torch.no_grad():
        found = between_layers(net(), F.cross_entropy, batch(), probes=4)
    assert found.nodes == ("1", "3")


def test_dict_and_tuple_inputs():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.head = nn.Linear(4, 4), nn.Linear(4, 3)

        def forward(self, x, scale):
            return {"logits": self.head(torch.tanh(self.a(x)) * scale), "note": "text"}

    x, y = batch()
    loss = lambda out, y: F.cross_entropy(out["logits"], y)
    one = between_layers(Two(), loss, ({"x": x, "scale": torch.tensor(2.0)}, y), nodes=["a"], probes=4)
    torch.manual_seed(0)
    two = between_layers(Two(), loss, ((x, torch.tensor(2.0)), y), nodes=["a"], probes=4)
    assert one.resonance.shape == two.resonance.shape == (1, 1)
