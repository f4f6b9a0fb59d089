"""Troubles planted in real models are found by the real instrument, at the place where they were planted."""

from __future__ import annotations

from collections import OrderedDict

import pytest
import torch
from torch import nn

import netvitals as nv
from netvitals.checks import CHECKS
from netvitals.findings import RULES, diagnose
from netvitals.findings.loss import BREAKS


def net(act: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        OrderedDict(
            fc1=nn.Linear(16, 32),
            act1=act(),
            fc2=nn.Linear(32, 32),
            act2=act(),
            fc3=nn.Linear(32, 32),
            act3=act(),
            head=nn.Linear(32, 4),
        )
    )


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(128, 16, generator=generator), torch.randint(4, (128,), generator=generator)


def examined(model: nn.Module):
    return nv.checkup(model, nn.functional.cross_entropy, batch(), curvature=False).findings()


def test_a_fresh_network_is_not_alarming():
    assert examined(net(nn.GELU)).alarming == ()


@pytest.mark.parametrize("act", [nn.ReLU, nn.GELU, nn.Sigmoid])
def test_a_layer_that_was_killed_is_found_whatever_its_activation(act):
    model = net(act)
    with torch.no_grad():
        model.fc2.bias.fill_(-60.0)
    (dead,) = [f for f in examined(model).all if f.rule in ("dead units", "saturation") and f.severity == "critical"]
    assert dead.site == "act2" and "100 % of " in dead.what
    assert dead.evidence[0].site == "act2" and dead.evidence[0].value in (0.0, 1.0)  # gates open, or units dead


def test_a_layer_without_variance_is_found():
    model = net()
    with torch.no_grad():
        model.fc2.weight.mul_(1e-5)
    still = [f for f in examined(model).all if "hardly vary" in f.what]
    assert "act2" in still[0].sites


def test_a_spike_is_found_with_its_layer_and_channel():
    model = net()
    with torch.no_grad():
        model.fc2.weight[17] *= 3000
        model.fc2.bias[17] += 500
    (found,) = [f for f in examined(model).all if f.rule == "spikes"]
    assert "largest activation of act2" in found.what and "channel 17" in found.what


def test_one_look_does_not_claim_to_have_seen_a_course():
    checked = {c.rule: c.series for c in examined(net()).checked}
    assert checked["plateau"] == checked["gate forecast"] == checked["imbalance growth"] == 0
    assert checked["dead units"] and checked["spikes"] and checked["vanishing gradients"]


def test_a_loss_that_breaks_is_traced_to_its_layer():
    model = net()
    x, y = batch()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with nv.watch(model, optimizer=optimizer, every=1) as vitals:
        for step in range(6):
            if step == 4:
                with torch.no_grad():
                    model.fc2.weight.fill_(float("inf"))
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            vitals.step(loss)
    found = vitals.findings()[0]
    assert found.severity == "critical" and found.rule == "loss not finite"
    assert "from step 4 on" in found.what and "act2" in found.what


def test_steps_that_are_too_long_are_found():
    model = net()
    x, y = batch()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.5)
    with nv.watch(model, optimizer=optimizer, every=1) as vitals:
        for _ in range(4):
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            vitals.step(loss)
    assert any(f.rule == "learning rate too high" and f.severity == "warning" for f in vitals.findings())


def test_the_metrics_that_rules_ask_for_are_the_ones_that_vital_signs_write(tmp_path):
    model = net()
    x, y = batch()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with nv.watch(model, optimizer=optimizer, every=1, run=tmp_path / "r") as vitals:
        for _ in range(24):
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            vitals.step(loss)
    run = nv.open_run(tmp_path / "r")
    written = {(v, m) for v, _, m in run.series}
    asked = (
        {need for r in RULES if not r.optional for need in r.needs if need[0] not in ("stream", "loss")}
        | set(BREAKS)
        | {("spikes", m) for m in ("max_abs", "max_over_median", "p999", "channel")}
        | {("drift", m) for m in ("euler", "weight_mean", "weight_std")}
    )
    assert {(v, m) for v, m in asked if not m.endswith("@")} <= written
    assert ("gates", "density@0.01") in written
    assert {(a.vital, a.metric) for a in run.arrays(last=True)} >= {
        ("gates", "density@0.01"),
        ("preactivations", "mu"),
        ("preactivations", "sigma"),
    }
    found = diagnose(run)
    assert str(run.findings()) == str(found)  # a run without stored findings is judged when it is asked
    absent = {
        "overfitting",
        "stream growth",
        "anisotropy",
        "edge of stability",
        "loss spike",
        "rank collapse",
    }  # too short
    assert {c.rule for c in found.checked if not c.series} <= absent | set(CHECKS) and not any(
        c.trouble for c in found.checked
    )


def test_nan_is_told_as_nan_and_not_as_dead_units_or_zeros():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = batch()
    with nv.watch(model, optimizer=optimizer, every=1) as vitals:
        for step in range(6):
            if step == 3:
                with torch.no_grad():
                    model.fc1.weight[0, 0] = float("nan")
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            vitals.step(loss)
    found = vitals.findings()
    assert "loss not finite" in {f.rule for f in found}
    assert not {f.rule for f in found.all} & {"dead units", "sparsity cliff", "gate density falls", "negative drift"}, (
        found
    )


def test_what_was_not_seen_is_said_and_an_empty_watch_is_not_called_healthy():
    reader = nn.LSTM(4, 8, batch_first=True)
    with nv.watch(reader, every=1) as vitals:
        assert "Nothing could be checked" in str(vitals.findings())
        assert "Nothing alarming" not in str(vitals.findings())
        loss = reader(torch.randn(3, 5, 4))[0].square().mean()
        loss.backward()
        vitals.step(loss)
    assert "Not measured: " in str(vitals.findings()) and "fused recurrent kernel" in str(vitals.findings())
