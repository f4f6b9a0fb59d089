"""What is judged as a hidden unit is one: outputs, soft-caps, routers and attention weights are not."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv


def watched(model, batch, steps=8, loss=None, lr=0.0, **options):
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    loss = loss or (lambda output: output.square().mean())
    with nv.watch(model, optimizer=optimizer, every=1, **options) as watching:
        for _ in range(steps):
            value = loss(model(batch))
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
            watching.step(value)
    return watching


def graves(watching, *words):
    found = [f for f in watching.findings().all if f.severity in ("critical", "warning")]
    return [f for f in found if any(w in f.what.lower() for w in words)]


def shut(layer):
    """All outputs of a layer lie where a sigmoid is flat."""
    with torch.no_grad():
        layer.bias.fill_(-40.0)
    return layer


@pytest.mark.parametrize("end", [nn.Sigmoid(), torch.sigmoid, torch.tanh], ids=["module", "sigmoid", "tanh"])
def test_an_output_sigmoid_that_is_sure_of_itself_is_no_dead_unit(end):
    class Pitch(nn.Module):
        """As CREPE has it: a classifier of pitches whose output is one sigmoid a class."""

        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Linear(8, 32), nn.ReLU())
            self.head = shut(nn.Linear(32, 40))
            self.end = end

        def forward(self, x):
            return self.end(self.head(self.body(x)))

    torch.manual_seed(0)
    watching = watched(Pitch(), torch.randn(64, 8))
    (site,) = [s for s in watching.sites if s.kind == "activation" and s.role == "output link"]
    assert site.name in ("end", "sigmoid()", "tanh()")
    assert not graves(watching, "dead", "hardly any gate", "vary")
    density = [
        r.value for r in watching.measurements if (r.vital, r.site, r.metric) == ("gates", site.name, "density@0.01")
    ]
    assert density == [0.0] * 8, "it is measured all the same"


def test_the_same_sigmoid_in_the_middle_is():
    torch.manual_seed(0)
    watching = watched(nn.Sequential(shut(nn.Linear(8, 40)), nn.Sigmoid(), nn.Linear(40, 2)), torch.randn(64, 8))
    assert [s.role for s in watching.sites if s.kind == "activation"] == ["hidden activation"]
    assert graves(watching, "saturation")[0].severity == "critical"


def test_a_soft_cap_is_no_hidden_unit():
    class Capped(nn.Module):
        """As Gemma has it: 30·tanh(logits / 30), here far out on its flat part."""

        def __init__(self):
            super().__init__()
            self.body, self.head = nn.Sequential(nn.Linear(8, 32), nn.ReLU()), nn.Linear(32, 50)
            with torch.no_grad():
                self.head.bias.fill_(1e5)

        def forward(self, x):
            return 30.0 * torch.tanh(self.head(self.body(x)) / 30.0)

    torch.manual_seed(0)
    watching = watched(Capped(), torch.randn(64, 8), loss=lambda o: F.cross_entropy(o, torch.zeros(64).long()))
    roles = {s.name: s.role for s in watching.sites if s.kind == "activation"}
    assert roles == {"body.1": "hidden activation", "tanh()": "soft-cap"}
    assert not graves(watching, "dead", "hardly any gate")


def test_roles_are_in_the_metadata_of_a_run(tmp_path):
    watched(nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 2)), torch.randn(16, 8), run=tmp_path / "run")
    roles = {s["name"]: s["role"] for s in nv.open_run(tmp_path / "run").meta["sites"]}
    assert roles["1"] == "hidden activation" and roles["2"] == "readout" and roles["0"] == "hidden layer"


def test_the_readout_is_the_last_in_the_pass_not_in_the_list():
    class HeadFirst(nn.Module):
        def __init__(self):
            super().__init__()
            self.head, self.body = nn.Linear(16, 2), nn.Linear(8, 16)

        def forward(self, x):
            return self.head(torch.relu(self.body(x)))

    roles = {s.name: s.role for s in watched(HeadFirst(), torch.randn(16, 8), steps=1).sites}
    assert roles["head"] == "readout" and roles["body"] == "hidden layer"
