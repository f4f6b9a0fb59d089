"""Static dead directions in a checkup."""

import torch
from torch import nn
from torch.nn import functional as F

import netvitals as nv
from netvitals.singular.checkpoint.dead_directions import measure
from netvitals_lab import models


def test_checkup_offers_dead_directions(tmp_path):
    model = models.build("gpt-micro,depth=2,width=32,heads=2,norm=layer", seed=0)
    x, y = torch.randint(0, 256, (2, 8, 32), generator=torch.Generator().manual_seed(0))
    loss = lambda out, target: F.cross_entropy(out.flatten(0, -2), target.flatten())
    found = nv.checkup(model, loss, (x, y), curvature=False, singular=True, vitals=["gates"])
    assert found.singular.stream.kept and all(t.passes for t in found.singular.kernels)
    vitals = {r.vital for r in found.measurements}
    assert {"norm_kernel", "stream_floor", "value_output", "schur"} <= vitals
    assert "has the kernel" in str(found) and "σ_" in str(found)
    page = found.to_html(tmp_path / "page.html")
    assert "Floor of the stream" in page.read_text()
    assert nv.checkup(model, loss, (x, y), curvature=False, vitals=["gates"]).singular is None


def test_what_does_not_apply_is_said():
    net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    found = measure(net, "ce", (torch.randn(40, 4), torch.zeros(40, dtype=torch.long)))
    assert set(found.skipped) == {"norm kernels", "stream", "attention"} and len(found.schur) == 1
    assert "not measured: stream" in str(found)


def test_the_profile_of_the_stream_begins_at_its_input():
    from netvitals.findings import table

    torch.manual_seed(0)
    model = models.build("vit-mini,depth=3", seed=0)
    x, y = torch.randn(32, 1, 8, 8), torch.randint(0, 10, (32,))
    found = nv.checkup(model, nn.CrossEntropyLoss(), (x, y), curvature=False, singular=True)
    profile = table(found).at("stream_floor", "sigma_r")
    assert [s.site for s in profile] == ["input", "blocks.0", "blocks.1", "blocks.2"]
    assert [s.values[0] for s in profile] == list(found.singular.stream.sigma)
