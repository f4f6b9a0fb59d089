"""Every rule speaks when its trouble is there, keeps silent when it is not, and names the measurements it rests on."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from netvitals.capture import ArrayMeasurement, Measurement
from netvitals.findings import RULES, diagnose, table

STEPS = range(0, 1000, 10)
ACT = ("a.act", "b.act", "c.act")
WEIGHTS = ("a.weight", "b.weight", "c.weight")
META = {"sites": [{"name": s, "kind": "activation", "op": "ReLU", "module": s} for s in ACT]}


class Source:
    """Readings, arrays and metadata in memory, as a checkup carries them."""

    def __init__(self, meta: dict | None = None) -> None:
        self.measurements: list[Measurement] = []
        self.arrays: list[ArrayMeasurement] = []
        self.meta = META if meta is None else meta

    def series(self, vital: str, metric: str, sites=ACT, value: Callable[[float], float] | float = 0.0) -> Source:
        """``value`` as a function of progress through the run, from 0 to 1."""
        for step in STEPS:
            at = step / (len(STEPS) * 10)
            self.measurements += [
                Measurement(step, vital, s, metric, float(value(at) if callable(value) else value)) for s in sites
            ]
        return self

    def array(self, vital: str, metric: str, values, sites=ACT) -> Source:
        self.arrays += [
            ArrayMeasurement(STEPS[-1], vital, s, metric, np.asarray(values, dtype=np.float32)) for s in sites
        ]
        return self

    def rules(self, name: str) -> list:
        found = diagnose(self)
        assert not [c for c in found.checked if c.trouble], [c.trouble for c in found.checked if c.trouble]
        return [f for f in found.all if f.rule == name]


def _gates(shares) -> Source:
    return Source().series("gates", "density@0.01", value=0.5).array("gates", "density@0.01", shares)


def test_dead_units_are_counted_by_their_gates():
    shares = np.concatenate([np.zeros(30), np.full(70, 0.5)])
    (found,) = _gates(shares).rules("dead units")
    assert found.severity == "note"  # as many are dead in healthy networks from the start
    assert "30 %" in found.what
    assert found.sites == ACT
    assert found.evidence[0].value == pytest.approx(0.3)
    assert found.evidence[0].vital == "gates"


@pytest.mark.parametrize(("share", "severity"), [(0.04, None), (0.06, "note"), (0.4, "note"), (0.8, "critical")])
def test_how_grave_dead_units_are(share, severity):
    shares = np.where(np.arange(100) < 100 * share, 0.0, 0.5)
    found = _gates(shares).rules("dead units")
    assert [f.severity for f in found] == ([severity] if severity else [])


def test_dying_units_are_told_apart_from_dead_ones():
    shares = np.concatenate([np.full(20, 0.01), np.full(80, 0.5)])
    (found,) = _gates(shares).rules("dead units")
    assert found.what.startswith("Rarely active units")
    assert found.severity == "note"


def test_dead_units_are_known_without_arrays_too():
    (found,) = Source().series("sparsity", "dead_units", value=lambda t: 0.5 * t).rules("dead units")
    assert found.severity == "warning"
    assert found.evidence[0].metric == "dead_units"


@pytest.mark.parametrize(("end", "severity"), [(0.45, None), (0.42, "note"), (0.2, "note"), (0.05, "note")])
def test_falling_gate_density(end, severity):
    found = Source().series("gates", "density@0.01", value=lambda t: 0.5 + (end - 0.5) * t).rules("gate density falls")
    assert [f.severity for f in found] == ([severity] if severity else [])
    if found:
        assert found[0].evidence[0].before == pytest.approx(0.5, abs=0.03)
        assert found[0].evidence[0].value == pytest.approx(end, abs=0.03)


def test_gates_that_were_shut_from_the_start():
    (found,) = Source().series("gates", "density@0.01", value=0.04).rules("gate density falls")
    assert found.severity == "note" and found.what.startswith("Few units are active")


def _shrinking(mu: float, sigma: float, *, law_holds: bool = True, op: str = "ReLU") -> Source:
    from scipy.stats import norm

    density = norm.cdf(mu / sigma) if law_holds else 0.9
    source = Source({"sites": [{"name": "a.act", "kind": "activation", "op": op, "module": "a.act"}]})
    source.series("preactivations", "sigma", ("a.act",), lambda t: 3 * sigma - 2 * sigma * t)
    source.series("gates", "density@0.01", ("a.act",), density)
    return source.array("preactivations", "mu", np.full(64, mu), ("a.act",)).array(
        "preactivations", "sigma", np.full(64, sigma), ("a.act",)
    )


def test_gate_density_is_forecast_to_fall_below_the_threshold_and_to_rise_above_it():
    from scipy.stats import norm

    (fall,) = _shrinking(-0.1, 0.3).rules("gate forecast")
    assert "Fewer units will be active" in fall.what and fall.severity == "note"
    assert fall.evidence[0].before == pytest.approx(norm.cdf(-1 / 3), abs=1e-6)
    assert fall.evidence[0].value == pytest.approx(norm.cdf(-2 / 3), abs=1e-6)
    (rise,) = _shrinking(0.1, 0.3).rules("gate forecast")
    assert "More units will be active" in rise.what and rise.severity == "info"


def test_no_forecast_where_the_law_does_not_explain_the_present_or_the_activation_is_unknown():
    assert not _shrinking(-0.1, 0.3, law_holds=False).rules("gate forecast")
    assert not _shrinking(-0.1, 0.3, op="MyOwnThing").rules("gate forecast")


def test_the_caller_can_say_which_activation_a_site_has():
    source = _shrinking(-0.1, 0.3, op="MyOwnThing")
    found = diagnose(source, activations={"a.act": "relu"})
    assert any(f.rule == "gate forecast" for f in found)


@pytest.mark.parametrize(("end", "severity"), [(0.5, None), (0.2, "note"), (0.02, "warning"), (1e-4, "critical")])
def test_variance_collapse(end, severity):
    found = Source().series("preactivations", "sigma", value=lambda t: end**t).rules("variance collapse")
    assert [f.severity for f in found] == ([severity] if severity else [])


@pytest.mark.parametrize(("share", "severity"), [(0.5, None), (0.72, "note"), (0.86, "note"), (0.95, "note")])
def test_the_sparsity_cliff(share, severity):
    found = Source().series("sparsity", "hard", value=share).rules("sparsity cliff")
    assert [f.severity for f in found] == ([severity] if severity else [])


@pytest.mark.parametrize(
    ("loss", "severity", "words"),
    [
        (lambda t: 2.0 - 1.5 * t, "info", "although the loss still falls"),  # went on falling beyond 70 %
        (lambda t: 2.0 - 3.0 * t if t < 0.4 else 0.8 + t - 0.4, "note", "too sparse"),  # rose from there on
        (lambda t: 2.0 - 1.5 * min(t, 0.6), "note", "too sparse"),  # shows nothing: the constant
    ],
)
def test_the_runs_own_level_replaces_the_constant(loss, severity, words):
    """Sparsity goes from 50 to 82 % in one line."""
    source = Source().series("sparsity", "hard", value=lambda t: 0.5 + 0.32 * t)
    source.measurements += [Measurement(s, "loss", "model", "loss", loss(s / STEPS[-1])) for s in range(STEPS[-1] + 1)]
    (found,) = source.rules("sparsity cliff")
    assert (found.severity, words in found.what) == (severity, True), found


def test_sparsity_on_its_way_to_the_cliff_is_worth_knowing():
    (found,) = Source().series("sparsity", "hard", value=lambda t: 0.5 + 0.17 * t).rules("sparsity cliff")
    assert found.severity == "info"


def test_spikes_name_layer_channel_and_where_to_clip():
    source = Source()
    for metric, value in (("max_over_mean", 250.0), ("max_abs", 40.0), ("p999", 2.5), ("channel", 17.0)):
        source.series("spikes", metric, ("b.act",), value)
    source.series("spikes", "max_over_mean", ("a.act",), 20.0)
    (found,) = source.rules("spikes")
    assert found.sites == ("b.act",) and found.severity == "note"
    assert "channel 17" in found.what and "250 times" in found.what
    assert "2.5" in found.advice
    assert {e.metric for e in found.evidence} == {"max_over_mean", "max_abs", "p999", "channel"}


def test_massive_activations_are_a_note():
    source = Source()
    for metric, value in (("max_over_mean", 90.0), ("max_abs", 400.0), ("max_over_median", 2000.0)):
        source.series("spikes", metric, ("b.act",), value)
    assert [f.severity for f in source.rules("spikes")] == ["note"]


@pytest.mark.parametrize(("push", "says"), [(0.4, "will persist"), (-0.4, "stop or reverse"), (None, "not measured")])
def test_negative_drift_and_whether_it_goes_on(push, says):
    source = Source().series("preactivations", "preact_drift", value=lambda t: -0.5 * t)
    if push is not None:
        source.series("drift", "euler", ("output",), push)
    (found,) = source.rules("negative drift")
    assert says in found.why
    assert ("euler" in {e.metric for e in found.evidence}) == (push is not None)


def test_an_offset_that_was_there_from_the_start_is_no_drift():
    assert not Source().series("preactivations", "preact_drift", value=-0.5).rules("negative drift")


def test_drift_of_weights_leaves_out_gains_and_the_readout():
    source = Source().series("drift", "drift_z", ("fc1.weight", "norm.weight", "fc2.weight", "head.weight"), -0.3)
    source.series("drift", "weight_mean", ("norm.weight",), 1.0).series("drift", "weight_std", ("norm.weight",), 0.01)
    (found,) = source.rules("negative drift")
    assert found.sites == ("fc1.weight", "fc2.weight")


@pytest.mark.parametrize(("end", "severity"), [(0.2, None), (0.6, "note"), (-0.99, "note")])
def test_growing_imbalance(end, severity):
    found = Source().series("imbalance", "relative", ("a→b",), lambda t: end * t).rules("imbalance growth")
    assert [f.severity for f in found] == ([severity] if severity else [])
    if severity == "warning":
        assert "a now holds 9" in found[0].what  # negative: the first of the pair is the heavier


def test_vanishing_gradients_are_seen_against_the_rest_of_the_model():
    source = Source().series("gradients", "grad_norm", ("a.weight",), 1e-7)
    source.series("gradients", "grad_norm", ("b.weight",), 1.0)
    (found,) = source.rules("vanishing gradients")
    assert found.sites == ("a.weight",) and found.severity == "warning"


def test_no_gradient_at_all_is_critical():
    source = Source().series("gradients", "grad_norm", ("a.weight",), 0.0)
    source.series("gradients", "grad_norm", ("b.weight",), 1.0)
    (found,) = source.rules("vanishing gradients")
    assert found.severity == "critical" and "exactly zero" in found.what


def test_exploding_gradients_name_the_layer():
    source = Source().series("gradients", "grad_norm", ("model",), lambda t: 10 ** (3 * t))
    source.series("gradients", "grad_norm", ("a.weight",), 0.1).series("gradients", "grad_norm", ("b.weight",), 50.0)
    (found,) = source.rules("exploding gradients")
    assert found.severity == "warning" and found.site == "b.weight"


def test_a_burst_is_seen_and_a_falling_gradient_is_not_one():
    burst = Source().series("gradients", "grad_norm", ("model",), lambda t: 100.0 if abs(t - 0.5) < 1e-9 else 1.0)
    (found,) = burst.rules("exploding gradients")
    assert found.severity == "note" and "step 500" in found.what
    falling = Source().series("gradients", "grad_norm", ("model",), lambda t: 10.0 * 1e-4**t)
    assert not falling.rules("exploding gradients")


@pytest.mark.parametrize(("ratio", "severity"), [(1e-3, None), (0.3, "warning"), (1e-7, "note")])
def test_update_ratio(ratio, severity):
    source = Source().series("gradients", "update_ratio", WEIGHTS[:1], ratio)
    found = source.series("gradients", "update_ratio", WEIGHTS[1:], 1e-3).rules("update ratio")
    assert [f.severity for f in found] == ([severity] if severity else [])


def test_short_updates_of_all_tensors_are_a_fine_tune_not_a_trouble_of_some():
    assert not Source().series("gradients", "update_ratio", WEIGHTS, 1e-6).rules("update ratio")


def test_biases_and_a_schedule_that_ends_are_no_trouble_for_the_update_ratio():
    source = Source().series("gradients", "update_ratio", WEIGHTS, lambda t: 1e-3 * 1e-5**t)
    assert not source.series("gradients", "update_ratio", ("a.bias",), 5.0).rules("update ratio")


def _loss(value: Callable[[float], float], noise: float = 0.0) -> Source:
    rng = np.random.default_rng(0)
    return Source().series("loss", "loss", ("model",), lambda t: value(t) + noise * rng.standard_normal())


def test_a_loss_that_is_not_a_number_is_critical_and_its_origin_is_looked_for():
    source = _loss(lambda t: float("nan") if t > 0.5 else 1.0)
    source.series("spikes", "max_abs", ("b.act",), lambda t: float("inf") if t > 0.45 else 1.0)
    (found,) = source.rules("loss not finite")
    assert found.severity == "critical"
    assert "step 510" in found.what and "b.act" in found.what


def test_a_high_plateau_is_a_warning_and_a_low_one_is_not():
    (found,) = _loss(lambda t: 2.3 - 0.001 * t, noise=0.02).rules("plateau")
    assert found.severity == "note" and found.since == 0  # what guessing costs is not known here
    known = _loss(lambda t: 2.3 - 0.001 * t, noise=0.02)
    for metric, value in (("chance", 2.3), ("misfit", 0.0), ("rows", 64.0), ("classes", 10.0)):
        known.series("outputs", metric, ("output",), value)
    assert [f.severity for f in known.rules("plateau")] == ["warning"]
    assert not _loss(lambda t: 2.3 * np.exp(-8 * t) + 0.05, noise=0.01).rules("plateau")
    assert not _loss(lambda t: 2.3 - 1.0 * t, noise=0.02).rules("plateau")


def test_leaving_a_saddle_is_told():
    (found,) = _loss(lambda t: 2.3 / (1 + np.exp((t - 0.5) * 30)) + 0.05).rules("plateau")
    assert found.severity == "info" and "was flat until about step" in found.what


def test_a_loss_that_rises_again():
    (found,) = _loss(lambda t: 2 * np.exp(-6 * t) + 0.2 + 1.5 * max(0, t - 0.6), noise=0.01).rules("loss rises")
    assert found.severity == "note"  # it is still far below where it began
    assert not _loss(lambda t: 2 * np.exp(-6 * t) + 0.2, noise=0.05).rules("loss rises")


def test_a_healthy_run_gives_nothing_alarming_and_says_what_was_checked():
    source = _loss(lambda t: 2.3 * np.exp(-5 * t) + 0.05, noise=0.02)
    for vital, metric, value in (
        ("gates", "density@0.01", 0.5),
        ("preactivations", "sigma", 1.0),
        ("sparsity", "hard", 0.5),
        ("preactivations", "preact_drift", 0.0),
        ("spikes", "max_over_mean", 12.0),
    ):
        source.series(vital, metric, value=value)
    source.array("gates", "density@0.01", np.full(64, 0.5)).array("preactivations", "mu", np.zeros(64))
    for metric, value in (("grad_norm", 0.5), ("update_ratio", 1e-3)):
        source.series("gradients", metric, WEIGHTS, value)
    source.series("gradients", "grad_norm", ("model",), 1.0).series("imbalance", "relative", ("a→b",), 0.1)
    source.series("drift", "drift_z", WEIGHTS, 0.0)
    found = diagnose(source)
    assert len(found) == 0, str(found)
    assert str(found).startswith("No problem found, but only ")  # a table without a loop has no exact checks
    asked = {c.rule for c in found.checked if c.series}
    assert asked >= {"dead units", "variance collapse", "sparsity cliff", "spikes", "plateau", "vanishing gradients"}
    assert len(found.checked) == sum(not rule.optional for rule in RULES)


def test_twelve_layers_with_one_trouble_give_one_finding():
    sites = tuple(f"blocks.{i}.act" for i in range(12))
    (found,) = Source({}).series("sparsity", "hard", sites, 0.75).rules("sparsity cliff")
    assert found.sites == sites
    assert "12 layers (blocks.0.act … blocks.11.act)" in found.what
    assert len(found.evidence) == 12


def test_findings_are_sorted_and_can_be_taken_as_plain_values():
    source = Source().series("sparsity", "hard", value=0.75).series("gradients", "grad_norm", ("a.weight",), 0.0)
    source.series("gradients", "grad_norm", ("b.weight",), 1.0)
    found = diagnose(source)
    assert [f.severity for f in found] == ["critical", "note"]
    assert found.to_dicts()[0]["evidence"][0]["metric"] == "grad_norm"
    assert [f.severity for f in found.alarming] == ["critical"]


def test_a_rule_that_fails_hides_nothing_else(monkeypatch):
    from netvitals.findings import diagnosis
    from netvitals.findings.rules import Rule

    def broken(context):
        raise RuntimeError("oops")

    monkeypatch.setattr(diagnosis, "RULES", (Rule("broken", "?", "sparsity", (("sparsity", "hard"),), broken), *RULES))
    found = diagnose(Source().series("sparsity", "hard", value=0.75))
    assert len(found) == 1
    assert "The check 'broken' could not run: RuntimeError: oops" in str(found)


def test_sites_come_in_the_order_of_depth_with_parameters_beside_their_module_and_the_model_last():
    meta = {"sites": [{"name": n, "module": n, "kind": "linear"} for n in ("in", "mid", "out")]}
    source = Source(meta).series("gradients", "grad_norm", ("model", "out.weight", "mid.weight", "in.weight"), 1.0)
    assert [s for _, s, _ in table(source).series] == ["in.weight", "mid.weight", "out.weight", "model"]
