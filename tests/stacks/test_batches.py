"""Whatever a loader yields, and whatever a model is made of."""

import io
import subprocess
import sys
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv
from netvitals.capture import task_of


class TakesDict(nn.Module):
    """Gets the batch as it is, like a SentenceTransformer."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))

    def forward(self, batch, **kwargs):
        return self.net(batch["x"])


@dataclass
class Graph:
    nodes: torch.Tensor
    label: torch.Tensor


def rows(n=16):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(n, 6, generator=generator), torch.randint(0, 3, (n,), generator=generator)


def test_a_model_that_takes_the_dict_itself():
    x, y = rows()
    model = TakesDict()
    plain = nv.checkup(model.net, "ce", (x, y), curvature=False)
    whole = nv.checkup(model, "ce", {"x": x, "labels": y}, curvature=False)
    assert whole.loss == plain.loss
    assert {r.site for r in whole.measurements if r.vital == "gates"} == {"net.1", "model"}
    assert nv.checkup(model, "ce", ({"x": x}, y), curvature=False).loss == plain.loss


def test_keywords_stay_keywords():
    class TakesNames(nn.Module):
        def forward(self, x, mask=None):
            return x

    task = task_of(TakesNames(), "mse", {"x": torch.ones(2), "labels": torch.ones(2)})
    assert task.args == () and set(task.kwargs) == {"x"}


def test_a_batch_of_the_users_own_kind():
    x, y = rows()
    net = TakesDict().net
    plain = nv.checkup(net, "ce", (x, y), curvature=False)
    batch = Graph(nodes=x, label=y)
    by_loss_fn = nv.checkup(
        net, lambda out, b: F.cross_entropy(out, b.label), batch, forward=lambda m, b: m(b.nodes), curvature=False
    )
    by_forward = nv.checkup(net, None, batch, forward=lambda m, b: F.cross_entropy(m(b.nodes), b.label))
    assert plain.loss == by_loss_fn.loss == by_forward.loss
    numbers = lambda found: {(r.site, r.metric): r.value for r in found.measurements if r.vital == "gradients"}
    assert numbers(plain) == numbers(by_loss_fn) and numbers(plain).items() <= numbers(by_forward).items()
    assert "left out" in by_forward.curvature_note
    with pytest.raises(ValueError, match="leave out singular or forward"):
        nv.checkup(net, None, batch, forward=lambda m, b: F.cross_entropy(m(b.nodes), b.label), singular=True)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_a_torchscript_part_is_skipped():
    scripted = torch.jit.script(nn.Sequential(nn.Linear(8, 8), nn.Tanh()))
    model = nn.Sequential(nn.Linear(6, 8), scripted, nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = rows()
    with nv.watch(model, optimizer, every=1) as watching:
        for _ in range(4):
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
    assert "TorchScript" in watching.skipped["1"]
    assert len([r for r in watching.measurements if (r.vital, r.site, r.metric) == ("gates", "3", "density@0.01")]) == 4
    assert "1.0.weight" in {r.site for r in watching.measurements if r.metric == "update_ratio"}
    assert "TorchScript" in nv.checkup(model, "ce", (x, y), curvature=False).skipped["1"]


def test_a_model_saved_on_a_measured_step_loads_without_netvitals(tmp_path):
    parts = nn.ModuleDict({"a": nn.Linear(6, 8), "b": nn.Sequential(nn.ReLU(), nn.Linear(8, 3))})
    optimizer = torch.optim.SGD(parts.parameters(), lr=0.1)
    with nv.watch(parts, optimizer, every=1):
        parts["b"](parts["a"](torch.randn(2, 6))).sum().backward()
        optimizer.step()
        torch.save((parts, optimizer), tmp_path / "saved.pt")
        torch.save(parts.state_dict(), io.BytesIO())
    code = (
        "import sys; sys.modules['netvitals'] = None\n"
        f"import torch; m, o = torch.load({str(tmp_path / 'saved.pt')!r}, weights_only=False)\n"
        "m['b'](m['a'](torch.ones(2, 6))).sum().backward(); o.step()"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": "", "PATH": ""})
