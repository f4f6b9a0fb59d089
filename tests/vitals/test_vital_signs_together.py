"""All vital signs: their names, and one look at real models with every one of them."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from netvitals import gates, vitals
from netvitals.capture import observe


def test_names_instances_and_the_nearest_of_an_unknown_name():
    assert [v.name for v in vitals.default()] == vitals.names(default=True)
    assert vitals.names() == vitals.names(default=True) + vitals.names(default=False)
    assert all(isinstance(v, vitals.Vital) for v in vitals.default())
    assert vitals.get("gates") is not vitals.get("gates")
    with pytest.raises(ValueError, match="no vital sign 'gate'; did you mean gates"):
        vitals.get("gate")
    with pytest.raises(ValueError, match="there are gates, preactivations"):
        vitals.get("xyzzy")
    for name in vitals.names(default=True):
        assert vitals.REGISTRY[name].__module__.startswith("netvitals.vitals.")


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(width), nn.MultiheadAttention(width, 2, batch_first=True)
        self.norm2, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        h = self.norm(x)
        x = x + self.attention(h, h, h, need_weights=False)[0]
        return x + self.down(F.gelu(self.up(self.norm2(x))))


def models():
    torch.manual_seed(0)
    mlp = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 5))
    cnn = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.SiLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)
    )
    former = nn.Sequential(nn.Linear(6, 16), Block(16), Block(16), nn.Linear(16, 5))
    return {
        "mlp": (mlp, torch.randn(12, 8), torch.randint(0, 5, (12,))),
        "cnn": (cnn, torch.randn(12, 3, 9, 9), torch.randint(0, 5, (12,))),
        "transformer": (former, torch.randn(4, 7, 6), torch.randint(0, 5, (4, 7))),
    }


@pytest.mark.parametrize("name", ["mlp", "cnn", "transformer"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_look_with_all_of_them(name, dtype, recwarn):
    net, x, y = models()[name]
    net, x = net.to(dtype), x.to(dtype)
    seen = observe(
        net, lambda o, t: F.cross_entropy(o.flatten(0, -2), t.flatten()), (x, y), vitals=vitals.default(), mode="train"
    )
    assert not [w for w in recwarn if "netvitals" in str(w.message)]
    written = {r.vital for r in seen.measurements}
    expected = set(vitals.names(default=True)) - {"experts", "optimizer"}
    expected -= {"stream", "attention"} if name != "transformer" else set()
    assert written == expected - ({"imbalance"} if name == "cnn" else set())
    bad = [(r.vital, r.site, r.metric) for r in seen.measurements if not math.isfinite(r.value)]
    # a drift that is zero everywhere has no spread to be compared with
    assert {metric for *_, metric in bad} <= {"drift_t"}


def test_measurements_of_one_step_are_those_of_the_same_step_seen_alone():
    net, x, y = models()["mlp"]
    everything = {
        (r.vital, r.site, r.metric): r.value
        for r in observe(net, F.cross_entropy, (x, y), vitals=vitals.default(), mode="train").measurements
    }
    for name in vitals.names(default=True):
        for r in observe(net, F.cross_entropy, (x, y), vitals=[vitals.get(name)], mode="train").measurements:
            assert everything[r.vital, r.site, r.metric] == pytest.approx(r.value, rel=1e-5, abs=1e-7, nan_ok=True)


def test_the_watched_gates_are_the_measured_gates():
    net, x, _ = models()["cnn"]
    report = gates.measure(net, x, mode="train")
    read = {
        (r.site, r.metric): r.value
        for r in observe(net, None, x, vitals=[vitals.get("gates")], mode="train").measurements
    }
    for theta in (0.01, 0.1):
        assert read["2", f"density@{theta:g}"] == pytest.approx(report.sites["2"].density(theta), abs=1e-6)
        assert read["model/bn_direct", f"density@{theta:g}:channel"] == pytest.approx(
            report.density(theta, "channel", follows="bn_direct"), abs=1e-6
        )


def test_importing_the_room_loads_no_heavy_library():
    import subprocess
    import sys

    code = (
        "import sys, netvitals.vitals; heavy = [m for m in ('scipy', 'sklearn', 'polars', 'plotly') "
        "if m in sys.modules]; print(heavy)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"
