"""What was once said wrongly is not said again: false alarms, lies of green tiles, laws beyond their reach."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import netvitals as nv
from netvitals.capture import ArrayMeasurement, Measurement
from netvitals.findings import diagnose, explain


class Source:
    """Measurements in memory."""

    def __init__(self, meta=None):
        self.measurements, self.arrays, self.meta = [], [], meta or {}

    def series(self, vital, metric, sites, value, steps=range(0, 200, 2)):
        for step in steps:
            at = step / max(steps[-1], 1)
            number = value(at) if callable(value) else value
            self.measurements += [Measurement(step, vital, s, metric, float(number)) for s in sites]
        return self

    def array(self, vital, metric, site, values):
        self.arrays.append(ArrayMeasurement(198, vital, site, metric, np.asarray(values, dtype=np.float32)))
        return self


def site(name, op="GELU", kind="activation", role="hidden activation"):
    return {"name": name, "kind": kind, "op": op, "module": name, "role": role}


def rules(source):
    return {f.rule: f for f in diagnose(source).all}


def guessing(source, cost):
    for metric, value in (("chance", cost), ("misfit", 0.0), ("rows", 400.0), ("classes", 60.0)):
        source.series("outputs", metric, ("output",), value)
    return source


def test_a_language_run_that_is_flat_at_half_of_its_first_loss_is_on_no_plateau():
    rng = np.random.default_rng(0)
    source = Source().series("loss", "loss", ("model",), lambda t: 2.613 + 2.432 * np.exp(-9 * t) + 0.02 * rng.normal())
    assert "plateau" not in rules(source)
    assert "plateau" not in rules(guessing(source, 4.1))


def test_a_binary_classifier_at_its_bayes_loss_is_on_no_plateau():
    rng = np.random.default_rng(0)
    source = Source().series("loss", "loss", ("model",), lambda t: 0.58 + 0.11 * np.exp(-20 * t) + 0.04 * rng.normal())
    assert "plateau" not in rules(source)


def test_a_fine_tune_that_begins_below_the_cost_of_guessing_is_on_no_plateau_and_its_rate_is_not_too_low():
    rng = np.random.default_rng(0)
    source = Source().series("loss", "loss", ("model",), lambda t: 2.2 + 0.03 * rng.normal())
    source.series("gradients", "update_ratio", ("a.weight", "b.weight"), 6e-5)
    found = rules(guessing(source, 3.3))
    assert not {"plateau", "learning rate too low", "at chance", "update ratio"} & set(found), found


def test_drift_is_not_told_from_one_reading_nor_where_its_own_t_says_that_it_is_noise():
    once = Source().series("drift", "drift_z", ("a.weight", "b.weight"), -0.3, steps=range(1))
    assert "negative drift" not in rules(once)
    unsure = Source().series("drift", "drift_z", ("a.weight", "b.weight"), -0.3)
    unsure.series("drift", "drift_t", ("a.weight", "b.weight"), -0.35)
    assert "negative drift" not in rules(unsure)
    sure = Source().series("drift", "drift_z", ("a.weight", "b.weight"), -0.3)
    sure.series("drift", "drift_t", ("a.weight", "b.weight"), -12.0)
    assert rules(sure)["negative drift"].severity == "note"


def test_a_spike_of_sixteen_is_none_and_the_text_names_the_threshold_it_is_beyond():
    quiet = Source({"sites": [site("a")]}).series("spikes", "max_over_mean", ("a",), 16.0)
    assert "spikes" not in rules(quiet)
    (found,) = [rules(Source({"sites": [site("a")]}).series("spikes", "max_over_mean", ("a",), 130.0))["spikes"]]
    assert "130 times the mean (healthy: below 35)" in found.what and "above 100" in explain("spikes", found)


def test_adamw_is_not_advised_to_who_has_it():
    source = Source({"optimizer": [{"name": "AdamW", "lr": 1e-3}]})
    for name, size in (("a.weight", 1e-9), ("b.weight", 1.0)):
        source.series("gradients", "grad_norm", (name,), size).series("gradients", "grad_rms", (name,), size)
    found = rules(source)["vanishing gradients"]
    assert "AdamW" not in found.advice and "AdamW" in found.why
    source.meta["optimizer"] = [{"name": "SGD", "lr": 0.1}]
    assert "hardly change" in rules(source)["vanishing gradients"].why


def test_a_network_of_gelus_is_not_told_of_relus():
    source = Source({"sites": [site("a")]}).series("gates", "density@0.01", ("a",), lambda t: 0.9 - 0.5 * t)
    found = rules(source)["gate density falls"]
    assert "ReLU" not in found.why + found.what + found.advice


def test_a_law_of_chains_is_not_told_of_a_network_with_norms():
    sunk = lambda meta: (
        Source(meta)
        .series("preactivations", "preact_drift", ("a",), lambda t: -0.6 * t)
        .series("drift", "euler", ("output",), 0.4)
    )
    chain = rules(sunk({"sites": [site("a", "relu")]}))["negative drift"]
    assert "will persist" in chain.why
    gpt = rules(sunk({"sites": [site("a", "relu"), site("n", "LayerNorm", "norm", "")]}))["negative drift"]
    assert "will persist" not in gpt.why and "not known" in gpt.why


# ------------------------------------------------------------------ green means checked


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3))


def test_a_run_whose_loss_is_not_a_number_shows_no_green():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(32, 8), torch.randint(3, (32,))
    with nv.watch(model, optimizer, every=1) as watching:
        for step in range(30):
            if step == 3:
                with torch.no_grad():
                    model[0].weight[0, 0] = float("nan")
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watching.step(loss)
    status = watching.findings().status
    green = {v for v, s in status.items() if s.state == "good"}
    assert green <= {"training", "inputs"}, status  # the loop and the data are as they should be
    assert status["loss"].state == "not finite" and "step 3" in status["loss"].why
    assert status["drift"].state in ("stale", "not finite")


def test_a_checkup_is_green_only_where_a_rule_could_be_asked():
    found = nv.checkup(
        net(), nn.functional.cross_entropy, (torch.randn(32, 8), torch.randint(3, (32,))), curvature=False
    )
    asked = {c.rule for c in found.findings().checked if c.series}
    for vital, status in found.findings().status.items():
        if status.state == "good":
            assert set(status.why.split(", ")) <= asked, (vital, status)
    assert "plateau" not in found.findings().status["loss"].why.split(", ")  # nothing can be said of its course


def test_a_vital_sign_that_was_last_read_long_ago_is_stale():
    source = Source({"sites": [site("a")]}).series("sparsity", "hard", ("a",), 0.4, steps=range(0, 20, 2))
    source.series("loss", "loss", ("model",), lambda t: 1 / (1 + t), steps=range(400))
    status = diagnose(source).status["sparsity"]
    assert status.state == "stale" and "step 18" in status.why


STATUS = {
    "critical": ("sparsity", "dead_units", 0.9, 200),
    "warning": ("sparsity", "dead_units", lambda t: 0.5 * t, 200),
    "note": ("sparsity", "dead_units", 0.2, 200),
    "good": ("sparsity", "dead_units", 0.01, 200),
    "not asked": ("mine", "number", 1.0, 200),  # no rule reads it
    "stale": ("sparsity", "dead_units", 0.01, 20),
    "not finite": ("sparsity", "dead_units", lambda t: np.nan if t > 0.5 else 0.01, 200),
}


@pytest.mark.parametrize("state", STATUS)
def test_a_vital_sign_stands_in_one_of_seven_states(state):
    from netvitals.findings import STATES

    vital, metric, value, last = STATUS[state]
    harm = state in ("critical", "warning")  # without harm a statistic is a note
    course = (lambda t: 1.0 + 0.01 * (t % 2)) if harm else (lambda t: 1 / (1 + t))
    source = Source({"sites": [site("a", "ReLU")]}).series("loss", "loss", ("model",), course)
    status = diagnose(source.series(vital, metric, ("a",), value, steps=range(0, last, 2))).status[vital]
    assert status.state == state and status.why and set(STATES) == set(STATUS), status


def test_the_gains_of_norms_that_rest_in_a_fine_tune_are_not_told_to_move_faster():
    source = Source().series("loss", "loss", ("model",), lambda t: 1.2 - 0.1 * t)
    for name, ratio in (("a.weight", 2e-4), ("b.weight", 1e-4), ("norm1.weight", 1e-8), ("norm2.weight", 1e-8)):
        source.series("gradients", "update_ratio", (name,), ratio)
        if "norm" not in name:
            source.series("gradients", "grad_rms", (name,), 1e-3)
    assert not {"update ratio", "learning rate too low"} & set(rules(source))
    source.series("gradients", "update_ratio", ("c.weight",), 1e-8).series("gradients", "grad_rms", ("c.weight",), 1e-9)
    assert rules(source)["update ratio"].sites == ("c.weight",)  # a matrix that rests among others is told


# ------------------------------------------------------------------ met on real pretrained networks


class Pooled(nn.Module):
    """A body, a head, and a pooler that runs and that nobody asks."""

    def __init__(self, cut=False):
        super().__init__()
        self.body, self.pooler, self.head, self.cut = nn.Linear(8, 16), nn.Linear(16, 16), nn.Linear(16, 3), cut

    def forward(self, x):
        h = torch.relu(self.body(x))
        self.pooler(h)
        return self.head(h.detach() if self.cut else h)


@pytest.mark.parametrize(("cut", "severity"), [(False, "note"), (True, "critical")])
def test_a_branch_that_nobody_uses_is_no_cut_through_the_network(cut, severity):
    torch.manual_seed(0)
    model = Pooled(cut)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(32, 8), torch.randint(3, (32,))
    with nv.watch(model, optimizer, every=1) as watching:
        for _ in range(6):
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watching.step(loss)
    (found,) = [f for f in watching.findings().all if f.rule == "cut off from the loss"]
    assert found.severity == severity, found.what


def test_the_weights_of_a_trained_network_may_have_any_size():
    source = Source({"shapes": {"a.weight": [4, 4]}}).series("gradients", "weight_norm", ("a.weight",), 400.0)
    rng = np.random.default_rng(0)
    source.series("loss", "loss", ("model",), lambda t: 0.2 + 0.01 * rng.normal())
    assert "initialisation too large" not in rules(source)
    assert "initialisation too large" not in rules(guessing(source, 4.0))


@pytest.mark.parametrize(("largest", "called"), [(1.7, True), (5.5, True), (12.0, False)])
def test_a_trained_body_below_a_new_head_may_have_any_size(largest, called):
    """The loss begins at chance, for the head is new; entries far beyond their spread say that the body is not."""
    source = Source({"shapes": {"a.weight": [4, 4]}}).series("gradients", "weight_norm", ("a.weight",), 40.0)
    source.series("drift", "weight_std", ("a.weight",), 10.0)
    source.series("drift", "max", ("a.weight",), 10.0 * largest).series("drift", "min", ("a.weight",), -10.0)
    rng = np.random.default_rng(0)
    source.series("loss", "loss", ("model",), lambda t: 4.0 * np.exp(-t) + 0.01 * rng.normal())
    assert ("initialisation too large" in rules(guessing(source, 4.0))) is called


class Adapted(nn.Module):
    """A frozen layer with an adapter beside it whose second factor begins at zero (LoRA), or not."""

    def __init__(self, zero):
        super().__init__()
        self.base = nn.Linear(8, 8).requires_grad_(False)
        self.down, self.up = nn.Linear(8, 2, bias=False), nn.Linear(2, 8, bias=False)
        if zero:
            nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return torch.tanh(self.base(x) + self.up(self.down(x)))


def adapted(zero, rate):
    """Whether the rate is called too high."""
    torch.manual_seed(0)
    model = nn.Sequential(Adapted(zero), Adapted(zero), nn.Linear(8, 3).requires_grad_(False))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=rate)
    x, y = torch.randn(64, 8), torch.randint(3, (64,))
    with nv.watch(model, optimizer, every=1) as watching:
        for _ in range(20):
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watching.step(loss)
    return "learning rate too high" in {f.rule for f in watching.findings().all}


@pytest.mark.parametrize(("zero", "rate", "called"), [(True, 2e-3, False), (False, 2e-3, False), (True, 0.5, True)])
def test_an_adapter_that_begins_at_zero_is_not_taken_for_too_high_a_rate(zero, rate, called):
    """Its first step is all there is of it, whatever the rate; a rate that is too high is still seen at the others."""
    assert adapted(zero, rate) is called
