"""Names, parameters, presets and sentences of the registry; recognising modules and functional calls."""

import copy
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from netvitals import activations as A

ISSUE_NAMES = [
    "relu",
    "leaky_relu:0.01",
    "prelu",
    "softplus:20",
    "gelu",
    "gelu_tanh",
    "silu",
    "mish",
    "tanh",
    "erf",
    "sin",
    "arctan",
    "sigmoid",
    "sigmoid:40",
    "hardswish",
    "elu",
    "identity",
    "relu2",
    "relu2:15",
    "gelu2",
    "gelu2:15",
    "silu2",
    "b_silu",
    "sugar_b_silu",
    "noisy_relu",
    "quantile_relu:0.75",
    "topk:gelu:0.75",
    "centered:softplus",
]
SPECS = sorted(
    {
        *A.names(),
        *ISSUE_NAMES,
        "silu2:15",
        "relu2:50",
        "zero_mean:relu",
        "topk:gelu2:15:0.9:sample",
        "topk:relu:0.5:before",
        "quantile_relu:0.5:continuous",
        "poly:0:1:0:-0.25",
        "sigmoid:40:0.5",
    }
)


@pytest.mark.parametrize("spec", SPECS)
def test_every_spec_builds_runs_copies_pickles_and_reads_well(spec):
    module = A.get(spec)
    x = torch.randn(6, 8)
    module(x).sum()
    module.eval()
    for twin in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert torch.equal(twin(x), module(x))
    assert repr(module).startswith(type(module).__name__) and "0x" not in repr(module)
    assert A.formula(spec)
    assert isinstance(module, A.MODULES)


@pytest.mark.parametrize("spec", SPECS)
def test_a_module_tells_its_spec_and_the_spec_builds_it_again(spec):
    text = A.spec_of(A.get(spec))
    assert text is not None
    assert A.canonical(text) == text
    x = torch.randn(5, 7)
    assert torch.equal(A.get(text).eval()(x), A.get(spec).eval()(x))


@pytest.mark.parametrize("spec", SPECS)
def test_half_precisions_keep_their_dtype(spec):
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        module = A.get(spec).to(dtype).train(spec != "rrelu")  # torch has no random RReLU in half on a CPU
        x = torch.randn(4, 8, dtype=dtype, requires_grad=True)
        y = module(x)
        assert y.dtype == dtype and y.shape == x.shape
        (grad,) = torch.autograd.grad(y.sum(), x, allow_unused=True)
        assert grad is None or (grad.dtype == dtype and torch.isfinite(grad).all())


@pytest.mark.parametrize("spec", SPECS)
def test_nothing_is_allocated_on_another_device(spec):
    module = A.get(spec).to("meta")
    assert module(torch.empty(4, 8, device="meta")).device.type == "meta"


@pytest.mark.parametrize(
    ("alias", "spec"),
    [
        ("Swish", "silu"),
        ("atan", "arctan"),
        ("LeakyReLU:0.1", "leaky_relu:0.1"),
        ("GELU", "gelu"),
        ("ReLU²", "relu2"),
        ("BSiLU", "b_silu"),
        ("TopKSparseGELU-75", "topk:gelu:0.75"),
        ("TopKSparseReLU-10", "topk:relu:0.1"),
        ("QuantileReLU-90", "quantile_relu:0.9"),
        ("relu2:15.0", "relu2:15"),
        ("topk:Swish:0.5", "topk:silu:0.5"),
    ],
)
def test_aliases_and_presets(alias, spec):
    assert A.canonical(alias) == spec
    assert repr(A.get(alias)) == repr(A.get(spec))


@pytest.mark.parametrize("share", [10, 25, 50, 75, 90])
def test_presets_of_the_training_code_have_the_measured_share(share):
    x = torch.randn(3, 5, 100)
    assert (A.get(f"TopKSparseGELU-{share}")(x) == 0).float().mean() == pytest.approx(share / 100)


def test_an_unknown_name_lists_the_nearest():
    with pytest.raises(ValueError, match=r"no activation 'gleu'; nearest: .*gelu"):
        A.get("gleu")
    with pytest.raises(ValueError, match="known: arctan"):
        A.get("zzzzzzzz")


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("relu:3", r"too many parameters; expected relu$"),
        ("softplus:x", "'x' in the activation 'softplus:x' is not a"),
        ("topk:0.5", "must be written as topk:SPEC:SPARSITY"),
        ("topk:gelu:1.5", "fraction between 0 and 1"),
        ("centered", "needs its name"),
        ("relu2:-1", "clip= must be positive"),
        ("quantile_relu:2", "fraction between 0 and 1"),
        ("sigmoid:0", "stiffness k of"),
    ],
)
def test_bad_parameters_get_a_sentence(spec, sentence):
    with pytest.raises(ValueError, match=sentence):
        A.get(spec)


def test_modules_classes_and_callables_are_accepted():
    module = nn.GELU()
    assert A.get(module) is module
    assert isinstance(A.get(nn.Tanh), nn.Tanh)
    assert isinstance(A.get(F.gelu), nn.GELU) and isinstance(A.get(torch.tanh), nn.Tanh)
    assert A.get(torch.cos)(torch.zeros(1)).item() == 1
    with pytest.raises(TypeError, match="got int"):
        A.get(3)


def test_functional_activations_are_recognised():
    x = torch.randn(4)
    for function, name in A.FUNCTIONAL.items():
        assert name in A.names()
        assert A.functional_spec(function, (x,)) is not None
    assert A.functional_spec(F.gelu, (x,), {"approximate": "tanh"}) == "gelu_tanh"
    assert A.functional_spec(F.leaky_relu, (x, 0.2)) == "leaky_relu:0.2"
    assert A.functional_spec(F.leaky_relu, (x,), {"negative_slope": 0.2}) == "leaky_relu:0.2"
    assert A.functional_spec(F.softplus, (x, 20)) == "softplus:20"
    assert A.functional_spec(torch.Tensor.relu, (x,)) == "relu"
    assert A.functional_spec(torch.matmul, (x, x)) is None
    assert torch.sin not in A.FUNCTIONAL  # positions, not gates


def test_functional_names_compute_what_they_say():
    x = torch.linspace(-3, 3, 31)
    for function, name in A.FUNCTIONAL.items():
        if name in ("prelu", "rrelu") or function.__name__.endswith("_"):
            continue
        assert torch.allclose(function(x.clone()), A.get(name).eval()(x), atol=1e-6), name


def test_elementwise_or_not():
    for spec in SPECS:
        assert A.is_elementwise(A.get(spec)) is not spec.startswith(("topk", "quantile")), spec

    class Own(nn.Module):
        def forward(self, x):
            return x * torch.sigmoid(x)

    assert not A.is_elementwise(Own()) and A.is_elementwise(Own(), probe=True)
    assert A.is_elementwise(A.get(lambda x: torch.sin(3 * x)))
    for stranger in (nn.Softmax(-1), nn.Flatten(), nn.Identity(), nn.Dropout(), nn.LayerNorm(4), nn.Linear(4, 4)):
        assert not A.is_elementwise(stranger, probe=True), stranger
    assert not A.is_activation(nn.Identity()) and A.is_activation(A.get("identity"))


def test_probing_a_stranger_leaves_the_random_state():
    class Jitter(nn.Module):
        def forward(self, x):
            return torch.relu(x) + torch.rand_like(x)

    state = torch.get_rng_state()
    assert not A.is_elementwise(Jitter(), probe=True)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("leaky_relu:nan", "'nan' in the activation 'leaky_relu:nan' must be a finite number"),
        ("softplus:inf", "must be a finite number"),
        ("topk:gelu:nan", "must be a finite number"),
        ("softplus:0", "must be positive, got 0"),
        ("softplus:-1", "must be positive, got -1"),
    ],
)
def test_numbers_that_make_no_function_are_refused(spec, sentence):
    with pytest.raises(ValueError, match=sentence):
        A.get(spec)
