"""What bends is a site or is listed: nothing pointwise and nonlinear is silently left out."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv


class Net(nn.Module):
    """Two layers, what becomes of them, and a layer."""

    def __init__(self, way):
        super().__init__()
        self.a, self.b, self.head, self.way = nn.Linear(6, 8), nn.Linear(6, 8), nn.LazyLinear(2), way

    def forward(self, x):
        return self.head(self.way(self.a(x), self.b(x)))


WAYS = {
    "minimum": lambda a, b: torch.minimum(a, b),
    "maximum": lambda a, b: torch.maximum(a, b),
    "atan2": lambda a, b: torch.atan2(a, b),
    "quotient": lambda a, b: a / (1 + b**2),
    "power": lambda a, b: a.abs() ** b.sigmoid(),
    "hypot": lambda a, b: torch.hypot(a, b),
    "choice by another": lambda a, b: torch.where(b > 0, a, 0.0),
    "mask of another": lambda a, b: a * (b > 0),
    "product": lambda a, b: a * b,
    "gate": lambda a, b: F.silu(a) * b,
    "softmax": lambda a, b: a.softmax(-1) + b,
    "largest of pairs": lambda a, b: (a + b).view(-1, 4, 2).amax(-1),
    "top two": lambda a, b: a * (a >= a.topk(2, -1).values[:, -1:]) + b,
    "sorted": lambda a, b: a.sort(-1).values + b,
    "cosine": lambda a, b: torch.cos(a + b),
    "clamp by another": lambda a, b: torch.clamp(a, min=b),
    "lerp": lambda a, b: torch.lerp(a, b, a.sigmoid()),
    "complex": lambda a, b: torch.complex(a, b).abs(),
}
LINEAR = {
    "sum": lambda a, b: a + 2 * b - 1,
    "scaled by a constant": lambda a, b: (a + b) * torch.arange(8.0),
    "parts": lambda a, b: torch.cat([a[:, :4], b[:, 4:]], -1),
    "mean": lambda a, b: (a + b).mean(0, keepdim=True).expand(5, -1),
}


def watched(way):
    torch.manual_seed(0)
    model, x = Net(way), torch.randn(5, 6)
    model(x)
    with nv.watch(model, every=1) as watching:
        for _ in range(3):
            model(x).square().mean().backward()
            watching.step()
    found = [s.name for s in watching.sites if s.kind in ("activation", "product")]
    silent = {"imbalance", "loss", *nv.vitals.names()}  # those that have nothing to look at in such a model
    return found, {
        place: why for place, why in watching.skipped.items() if place not in silent and "imbalance" not in place
    }


@pytest.mark.parametrize("way", WAYS)
def test_what_bends_is_seen_or_listed(way):
    found, skipped = watched(WAYS[way])
    assert found or skipped, f"{way} is missing without a word"
    assert all(len(reason) > 20 for reason in skipped.values())


@pytest.mark.parametrize("way", LINEAR)
def test_what_is_linear_is_neither(way):
    assert watched(LINEAR[way]) == ([], {})
