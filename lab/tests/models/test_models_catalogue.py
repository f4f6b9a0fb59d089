"""Networks by name: the grammar, the sizes, and what a wrong name is told."""

import pytest
import torch

from netvitals_lab import models


def count(model):
    return sum(p.numel() for p in model.parameters())


INPUTS = {
    "mlp": (2, 64),
    "resnet18": (2, 3, 32, 32),
    "resnet50": (2, 3, 32, 32),
    "resnet18-large": (2, 3, 32, 32),
    "resnet-mini": (2, 1, 8, 8),
    "vgg11": (2, 3, 32, 32),
    "vgg-mini": (2, 1, 8, 8),
    "convnext-tiny": (2, 3, 32, 32),
    "convnext-mini": (2, 3, 8, 8),
    "mixer": (2, 3, 32, 32),
    "mixer-mini": (2, 1, 8, 8),
    "encoder": (2, 3, 32, 32),
    "vit-mini": (2, 1, 8, 8),
    "vit-b16": (2, 3, 224, 224),
    "gpt-micro": (2, 64),
    "gpt-nano": (2, 16),
    "denoiser": (2, 1, 9, 7),
    "denoiser-large": (2, 1, 9, 7),
    "toy-attention": (2, 8, 16),
    "position-mlp": (2, 8, 16),
}
FULL_SIZE = {
    "convnext-tiny": 28_589_128 - 990 * 769,  # the published count less 990 of its 1000 classes
    "resnet50": 23_520_842,
    "resnet18": 11_173_962,
    "resnet18-large": 11_181_642,
    "vit-b16": 86_567_656,
    "gpt-nano": 123_551_232,
    "mixer": 1_132_170,
    "encoder": 811_146,
    "toy-attention": 785,
    "position-mlp": 833,
}


@pytest.mark.parametrize("name", models.names())
def test_every_name_builds_and_runs(name):
    # meta tensors carry shapes only, so that the full-size networks cost nothing
    with torch.device("meta"):
        model = models.build(name).train()
        x = torch.zeros(INPUTS[name])
        y = model(x.long() if name.startswith("gpt") else x)
    if name.startswith("gpt"):
        assert y.shape == (*INPUTS[name], model.spec.vocab)
    elif name.startswith("denoiser"):
        assert y.shape == INPUTS[name]
    else:
        assert y.shape == (2, getattr(model.spec, "classes", getattr(model.spec, "outputs", None)))
    if name in FULL_SIZE:
        assert count(model) == FULL_SIZE[name]


@pytest.mark.parametrize(
    ("spec", "published"),
    [
        ("convnext-tiny,classes=1000", 28_589_128),
        ("resnet50,stem=large,classes=1000", 25_557_032),
        ("resnet18-large,classes=1000", 11_689_512),
        ("vit-b16", 86_567_656),
    ],
)
def test_networks_of_a_thousand_classes_have_the_published_number_of_parameters(spec, published):
    with torch.device("meta"):
        assert count(models.build(spec)) == published


def test_a_convnext_says_which_images_are_too_small():
    with torch.device("meta"), pytest.raises(ValueError, match="at least 32×32 pixels, got \\(16, 16\\)"):
        models.build("convnext-tiny")(torch.zeros(1, 3, 16, 16))
    with pytest.raises(ValueError, match="norm=layer or norm=none, got 'batch'"):
        models.build("convnext-mini,norm=batch")


def test_resnet18_has_the_activation_channels_of_the_paper():
    with torch.device("meta"):
        model = models.build("resnet18")
    seen = []
    for module in model.modules():
        if isinstance(module, torch.nn.ReLU):
            module.register_forward_hook(lambda m, a, out: seen.append(out.shape[1]))
    with torch.device("meta"):
        model(torch.zeros(2, 3, 32, 32))
    assert len(seen) == 17
    assert sum(seen) == 3904


def test_spec_string_and_dataclass_agree():
    by_name = models.build("mlp:64-128x3-10,act=gelu,norm=batch", seed=3)
    by_colon = models.build("mlp:64-128x3-10:act=gelu:norm=batch", seed=3)
    by_class = models.build(models.MLPSpec(act="gelu"), seed=3, norm="batch")
    assert by_name.spec == by_class.spec == by_colon.spec
    for a, b in zip(by_name.parameters(), by_class.parameters()):
        assert torch.equal(a, b)


def test_seed_fixes_the_weights_and_leaves_the_generator():
    before = torch.get_rng_state()
    a, b, c = (models.build("mlp", seed=s) for s in (1, 1, 2))
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(a.head.weight, b.head.weight)
    assert not torch.equal(a.head.weight, c.head.weight)


def test_sizes_come_from_the_data_unless_given():
    class Images:
        @property
        def sizes(self):
            return {"inputs": 784, "outputs": 7, "channels": 1, "side": 28, "classes": 7}

    assert models.parse("mlp,hidden=16x2", Images()).widths == (784, 16, 16)
    assert models.parse("mlp:64-16-10", Images()).inputs == 64
    assert models.parse("vgg-mini,classes=3", Images()).classes == 3
    assert models.parse("vgg-mini", Images()).side == 28


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("resnet81", "resnet18"),
        ("mlp:64-32-10,activation=gelu", "act"),
        ("mlp:64-10", "hidden"),
        ("mlp:64-a-10", "64-128x3-10"),
        ("vgg11:3-10", "options"),
        ("mlp:64-32-10,bias=maybe", "bool"),
        ("mlp:64-32-10,act=gelu,act=relu", "twice"),
        ("mlp:64-32-16-10,kind=residual", "one width"),
        ("mlp:64-32-10,kind=triangle", "diamond"),
        ("mlp:64-32-10,init=hee", "xavier"),
        ("mlp:64-32-10,init=bottleneck:9:0.1", "first R of 2"),
        ("mixer,side=30", "patch"),
        ("gpt-micro,heads=3", "heads"),
        (",act=gelu", "name"),
    ],
)
def test_a_wrong_spec_gets_a_sentence(spec, words):
    with pytest.raises(ValueError, match=words):
        models.build(spec)


def test_something_else_than_a_spec():
    with pytest.raises(TypeError, match="spec string"):
        models.build(12)
