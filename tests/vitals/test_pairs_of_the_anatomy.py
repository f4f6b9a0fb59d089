"""The imbalance is read for pairs of layers of which one feeds the other, and for no others."""

import pytest
import torch
from torch import nn

import netvitals as nv
from netvitals.capture import observe
from netvitals.vitals import Imbalance


class Net(nn.Module):
    """Three layers and a way through them."""

    def __init__(self, way, width=6):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, width)
        self.norm, self.scale = nn.LayerNorm(width), nn.Parameter(torch.ones(width))
        self.way = way

    def forward(self, x):
        return self.way(self, x)


def pairs(model, x=None):
    seen = observe(model, None, torch.randn(5, 6) if x is None else x, vitals=[Imbalance()], mode="train")
    return {r.site for r in seen.measurements if r.vital == "imbalance"}, seen.skipped


@pytest.mark.parametrize(
    ("way", "expected"),
    [
        (lambda n, x: n.b(torch.relu(n.a(x))), {"a→b"}),
        (lambda n, x: n.b((h := n.a(x)) * torch.sigmoid(h)), {"a→b"}),
        (lambda n, x: (lambda h: n.b(h) + n.c(h))(torch.relu(n.a(x))), set()),  # a fork
        (lambda n, x: n.b(n.a(x) * 2 + 1), set()),
        (lambda n, x: n.b(n.norm(n.a(x))), set()),
        (lambda n, x: n.b(x + n.a(x)), set()),
        (lambda n, x: n.b(n.a(x) * n.scale), set()),
        (lambda n, x: n.c(torch.relu(n.b(torch.relu(n.a(x))))), {"a→b", "b→c"}),
        (lambda n, x: n.a(torch.relu(n.c(torch.relu(n.b(x))))), {"b→c", "c→a"}),  # not as they were registered
        (lambda n, x: n.b(torch.relu(n.a(torch.relu(n.a(x))))), set()),  # one weight, two uses
    ],
)
def test_pairs(way, expected):
    assert pairs(Net(way))[0] == expected


def test_what_is_refused_says_why():
    found, skipped = pairs(Net(lambda n, x: n.b(n.a(x) * 2 + 1)))
    assert found == set() and "lies between" in skipped["a→b (imbalance)"]
    model = Net(lambda n, x: n.c(torch.relu(n.b(torch.relu(n.a(x))))))
    model.b.weight = model.a.weight
    found, skipped = pairs(model)
    assert found == set() and any("used 2 times" in why for why in skipped.values())
    model = Net(lambda n, x: n.c(torch.relu(n.b(torch.relu(n.a(x))))))
    model.a.requires_grad_(False)
    found, skipped = pairs(model)
    assert found == {"b→c"} and "frozen" in skipped["a→b (imbalance)"]


def test_what_is_read_is_conserved_by_gradient_flow():
    torch.manual_seed(0)
    model = Net(lambda n, x: n.c(torch.relu(n.b(torch.relu(n.a(x)))))).double()
    x, y = torch.randn(40, 6).double(), torch.randn(40, 6).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with nv.watch(model, optimizer=optimizer, every=20, vitals=[Imbalance()]) as watching:
        for _ in range(400):
            loss = (model(x) - y).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watching.step(loss)
    for site in ("a→b", "b→c"):
        values = [r.value for r in watching.measurements if (r.site, r.metric) == (site, "imbalance")]
        assert len(values) >= 2 and max(values) - min(values) < 1e-4


def test_a_weight_norm_does_not_crash():
    model = nn.Sequential(
        nn.utils.parametrizations.weight_norm(nn.Linear(6, 6)), nn.ReLU(), nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 2)
    )
    found, skipped = pairs(model)
    assert found == {"2→4"} and any("its weight is computed from" in why for why in skipped.values())
