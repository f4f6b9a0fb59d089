"""Reasons name what a user has written, and what many places share is said once."""

import warnings

import torch
from torch import nn

import netvitals as nv


def train(model, x, **options):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        with nv.watch(model, optimizer, every=1, **options) as watching:
            for _ in range(2):
                loss = model(x).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                watching.step(loss)
    return watching, [str(w.message) for w in heard if "netvitals" in str(w.message)]


def test_a_pair_of_layers_names_the_module_between_them():
    model = nn.Sequential(nn.Linear(4, 8), nn.Softmax(dim=1), nn.AlphaDropout(0.5), nn.ReLU(), nn.Linear(8, 2))
    watching, _ = train(model, torch.randn(8, 4))
    assert watching.skipped["0→4 (imbalance)"] == "AlphaDropout 2 lies between"


class Masked(nn.Module):
    """Masks of True and False between its layers."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x):
        padding = ~(x > -5)
        return self.layer(x).relu().masked_fill(padding, 0.0) * (~(x > 9)).float()


def test_masks_are_no_activations_and_are_not_listed():
    model = nn.Sequential(*[Masked() for _ in range(30)], nn.Linear(6, 2))
    watching, told = train(model, torch.randn(8, 6))
    assert told == []
    assert {s.name for s in watching.sites if s.kind == "activation"} == {f"{i}.relu()" for i in range(30)}
    assert not [place for place in watching.skipped if "bitwise_not" in place or "masked_fill" in place]


class Fails(nv.Vital):
    name, title, meaning = "fails", "Fails", "Always."

    def activation(self, recorder, view):
        raise TypeError("bool is not float")


def test_a_vital_sign_that_fails_at_many_places_warns_once_and_lists_all():
    model = nn.Sequential(*[part for _ in range(20) for part in (nn.Linear(6, 6), nn.ReLU())])
    watching, told = train(model, torch.randn(8, 6), vitals=[Fails()])
    assert len(told) == 1 and "'fails' failed at '1'" in told[0]
    assert {f"fails: {2 * i + 1}" for i in range(20)} <= set(watching.skipped)
