"""Gauges are found by themselves, proved numerically, and what is left to AdamW is said."""

import copy

import pytest
import torch
from torch import nn

from netvitals import optim
from netvitals_lab import models


def names(found):
    return [g.name for g in found]


def test_relu_chain_with_biases_and_head():
    model = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 16), nn.LeakyReLU(), nn.Linear(16, 10))
    found = optim.find_gauges(model)
    assert names(found) == ["rescale 0 → 2", "rescale 2 → 4", "logit shift 4.bias", "logit shift 4.weight"]
    assert [g.modes for g in found] == [16, 16, 1, 16]  # every unit scales by itself, and the gauges share weights
    assert all(r < 1e-12 for r in found.residuals.values())


def test_smooth_activations_have_no_rescaling():
    model = nn.Sequential(nn.Linear(12, 16), nn.GELU(), nn.Linear(16, 10))
    found = optim.find_gauges(model)
    assert names(found) == ["logit shift 2.bias", "logit shift 2.weight"]
    assert "gelu" in found.skipped["0 → 2"]


def test_mean_squared_error_has_no_logit_shift():
    model = nn.Sequential(nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 10))
    assert len(optim.find_gauges(model, "mse")) == 0
    assert "AdamW here" in str(optim.find_gauges(model, "mse"))


def test_convolutions_and_batch_norm():
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 10),
    )
    shifts = ["logit shift 7.bias", "logit shift 7.weight"]
    assert names(optim.find_gauges(model)) == ["rescale 3 → 7", "norm scale 1", *shifts]
    flat = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(1), nn.Linear(8 * 30 * 30, 4))
    assert optim.find_gauges(flat).gauges[0].modes == 8  # a channel owns the columns of all its pixels
    no_chain = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(1), nn.Linear(8 * 30 * 30, 4))
    assert "norm scale 1" not in names(optim.find_gauges(no_chain))  # columns and channels do not match


def test_layernorm_scale_with_several_readers():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.a, self.b, self.head = nn.LayerNorm(6), nn.Linear(6, 5), nn.Linear(6, 5), nn.Linear(5, 3)

        def forward(self, x):
            h = self.norm(x)
            return self.head(torch.tanh(self.a(h)) * torch.sigmoid(self.b(h)))

    found = optim.find_gauges(Block(), "ce", torch.randn(4, 6))
    scale = next(g for g in found if g.name == "norm scale norm")
    assert len(scale.blocks[1].params) == 2 and scale.modes == 6


def test_a_supposed_orbit_that_changes_the_loss_is_not_used():
    class Leaky(nn.Module):
        """The norm's output is read by a layer and by an addition, so its scale is not free."""

        def __init__(self):
            super().__init__()
            self.norm, self.a = nn.LayerNorm(6), nn.Linear(6, 6)

        def forward(self, x):
            h = self.norm(x)
            return h + self.a(h)

    found = optim.find_gauges(Leaky(), "mse", torch.randn(4, 6))
    assert "norm scale norm" not in names(found) and "leaves the model" in found.skipped["norm scale norm"]


def test_gpt_with_tied_embedding():
    model = models.build("gpt-micro", depth=2)
    found = optim.find_gauges(model, "ce", torch.randint(0, 200, (2, 12)))
    assert any("mlp.up" in n for n in names(found)) and any("norm scale" in n for n in names(found))
    assert any("tied" in why for why in found.skipped.values())


def test_found_gauges_train():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 10))
    found = optim.find_gauges(model)
    optimiser = optim.BalancedAdam(model.parameters(), found.gauges, lr=5e-3)
    x, y = torch.randn(128, 12), torch.randint(0, 10, (128,))
    losses = []
    for _ in range(200):
        optimiser.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]


def test_looking_changes_nothing():
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(), nn.Linear(6, 3))
    before, rng = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    optim.find_gauges(model)
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    assert torch.equal(rng, torch.get_rng_state()) and not any(m._forward_hooks for m in model.modules())


def test_an_input_that_cannot_be_guessed():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(3, 2)

        def forward(self, x):
            return self.a(x[:, None, 0])

    with pytest.raises(ValueError, match="pass batch"):
        optim.find_gauges(Odd())
    with pytest.raises(ValueError, match="there are ce, mse"):
        optim.find_gauges(nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2)), "hinge")


def test_chains_end_at_tanh_and_go_on_behind_it():
    model = nn.Sequential(
        nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3)
    )
    found = optim.find_gauges(model)
    assert names(found)[:2] == ["rescale 0 → 2", "rescale 4 → 6"] and "tanh" in found.skipped["2 → 4"]


def test_dropout_of_a_training_model_does_not_hide_a_chain():
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(), nn.Linear(8, 3))
    assert "rescale 0 → 3" in names(optim.find_gauges(model)) and model.training
    encoder = nn.Sequential(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), nn.Linear(8, 3))
    assert "rescale 0.linear1 → 0.linear2" in names(optim.find_gauges(encoder, "ce", torch.randn(2, 4, 8)))


def test_frozen_tied_and_computed_weights_are_left_with_a_reason():
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    model[0].weight.requires_grad_(False)
    found = optim.find_gauges(model)
    assert "frozen" in found.skipped["rescale 0 → 2"] and not model[0].weight.requires_grad
    optim.BalancedAdam([p for p in model.parameters() if p.requires_grad], found.gauges)
    normed = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(6, 8)), nn.ReLU(), nn.Linear(8, 3))
    assert "computed" in optim.find_gauges(normed).skipped["0"]
    layer = nn.Linear(6, 6)
    twice = nn.Sequential(layer, nn.ReLU(), layer, nn.ReLU(), nn.Linear(6, 3))
    assert "2 times" in optim.find_gauges(twice).skipped["0"]


@pytest.mark.parametrize(
    ("model", "batch", "words"),
    [
        (nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1)), None, "single output"),
        (nn.LSTM(6, 4), torch.randn(2, 3, 6), "returns a tuple"),
        (nn.Sequential(nn.Linear(6, 3)), torch.full((2, 6), float("nan")), "NaN or infinity"),
        (nn.ReLU(), None, "no parameters"),
    ],
)
def test_outputs_in_which_no_change_could_be_seen(model, batch, words):
    with pytest.raises(ValueError, match=words):
        optim.find_gauges(model, "ce", batch)


def test_losses_of_torch_are_known():
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    assert names(optim.find_gauges(model, nn.CrossEntropyLoss())) == names(optim.find_gauges(model))
    assert names(optim.find_gauges(model, nn.MSELoss())) == ["rescale 0 → 2"]


def test_an_orbit_along_which_the_loss_hardly_changes_is_none():
    """A floor of 1e-5 under the units: homogeneous but for that."""

    class Floor(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("floor", torch.tensor(1e-5))

        def forward(self, x):
            return torch.maximum(x, self.floor)

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), Floor(), nn.Linear(8, 3))
    found = optim.find_gauges(model, "mse", torch.randn(20, 6))
    assert not len(found) and "the loss changes by" in found.skipped["rescale 0 → 2"], str(found)
