"""The functions of weight drift on the models a reader brings, made anew."""

import pytest
import torch
from torch import nn

import reader_models
from netvitals import drift


@pytest.mark.parametrize("name", reader_models.NAMES)
def test_signs_over_initialisations(name):
    _, loss_fn, batch = reader_models.make(name)
    calls = []
    found = drift.signs(
        lambda: reader_models.make(name, int(torch.initial_seed()))[0],
        loss_fn,
        batch,
        inits=3,
        progress=lambda done, planned: calls.append((done, planned)),
    )
    assert calls == [(1, 3), (2, 3), (3, 3)] and found.samples == 8
    assert found.activations and all(s["g_pos"].n == 3 for s in found.activations.values())
    assert len(str(found).splitlines()) <= 45 and found.plot().svg() and len(found.to_frame()) == len(found.rows())


@pytest.mark.parametrize("name", reader_models.NAMES)
def test_the_random_data_control(name):
    _, loss_fn, batch = reader_models.make(name)
    before = torch.get_rng_state()
    make = lambda: reader_models.make(name, int(torch.initial_seed()))[0]
    found = drift.random_data_control(make, loss_fn, batch, inits=2, steps=2)
    assert torch.equal(before, torch.get_rng_state())
    assert found.weights and found.inputs and found.plot().svg()
    assert len(str(found).splitlines()) <= 45 and len(found.to_frame()) == len(found.weights) + len(found.inputs)


def perceptron(activation):
    layers = [nn.Linear(16, 64, bias=False), activation()]
    for _ in range(2):
        layers += [nn.Linear(64, 64, bias=False), activation()]
    net = nn.Sequential(*layers, nn.Linear(64, 4, bias=False))
    for m in net:
        if isinstance(m, nn.Linear):
            nn.init.kaiming_normal_(m.weight)
    return net


BATCH = (torch.randn(64, 16, generator=torch.Generator().manual_seed(0)), torch.arange(64) % 4)


def control(activation, **options):
    made = lambda params: torch.optim.SGD(params, lr=0.02, momentum=0.9)
    return drift.random_data_control(
        lambda: perceptron(activation), "cross_entropy", BATCH, inits=5, steps=40, optimizer=made, **options
    )


def test_relu_drifts_on_noise_and_tanh_does_not():
    relu, tanh = control(nn.ReLU), control(nn.Tanh)
    assert relu.without_data and "is there without data" in str(relu)
    assert relu.weights["4.weight"].direction == relu.inputs["5"].direction == -1
    assert relu.weights["0.weight"].direction == 0  # its inputs are centred
    assert not tanh.without_data and {p.direction for p in tanh.weights.values()} == {0}


def test_only_and_the_seed():
    both = [control(nn.ReLU, only="5") for _ in range(2)]
    assert list(both[0].inputs) == ["5"] and both[0] == both[1] != control(nn.ReLU, only="5", seed=9)


def test_noise_has_the_kind_of_the_batch_and_nothing_of_it():
    from netvitals.drift.random_data import _noise

    x = 3 + 2 * torch.randn(4000, 3)
    made = _noise(
        {"x": x, "y": torch.tensor([2, 5, 7] * 100), "mask": torch.ones(3, dtype=torch.bool)}, torch.Generator()
    )
    assert made["x"].mean() == pytest.approx(float(x.mean()), abs=0.1)
    assert made["x"].std() == pytest.approx(float(x.std()), rel=0.05)
    assert set(made["y"].tolist()) == {2, 5, 7} and made["mask"].all() and made["x"].dtype == x.dtype
    assert abs(torch.corrcoef(torch.stack([made["x"].flatten(), x.flatten()]))[0, 1]) < 0.05


def test_bad_input_gets_a_sentence():
    with pytest.raises(ValueError, match="steps= is the number of training steps"):
        drift.random_data_control(lambda: perceptron(nn.ReLU), "cross_entropy", BATCH, steps=0)
    with pytest.raises(ValueError, match="smaller learning rate"):
        drift.random_data_control(
            lambda: perceptron(nn.ReLU), "mse", (BATCH[0], torch.zeros(64, 4)), steps=30,
            optimizer=lambda p: torch.optim.SGD(p, lr=1e6),
        )  # fmt: skip
