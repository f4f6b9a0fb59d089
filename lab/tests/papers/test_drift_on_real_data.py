"""Dial and suppression on networks that people train, and drift judged over seeds, optimizers and architectures."""

from __future__ import annotations

import pytest
import torch

from netvitals.anatomy.kinds import by_output, layer_kind
from netvitals.drift import centre_weights
from netvitals_lab.papers.weight_drift import dialling, drift_claims, suppression_costs
from netvitals_lab.papers.weight_drift._real import hidden_weights, needed, task
from netvitals_lab.papers.weight_drift._text import EMBEDDED
from netvitals_lab.papers.weight_drift.architectures import Architectures, trials
from netvitals_lab.papers.weight_drift.dial_claims import turned


def run(zeros, *, seeds=5, noise=0.001):
    return [
        {
            "target": target,
            "seed": seed,
            "push": target or 0.02,
            "sparsity": value + noise * ((seed * 7 + i * 3) % 5),
            "drift_z": -0.01 + 0.001 * seed,
            "score": 0.4 - 0.01 * i + 0.001 * seed,
        }
        for i, (target, value) in enumerate(zeros.items())
        for seed in range(seeds)
    ]


@pytest.mark.parametrize(
    ("zeros", "status"),
    [
        ({None: 0.5, 0.15: 0.45, 1.2: 0.6, 4.5: 0.8}, "holds"),
        ({None: 0.5, 0.15: 0.8, 1.2: 0.6, 4.5: 0.45}, "fails"),
        ({None: 0.5, 0.15: 0.5, 1.2: 0.5, 4.5: 0.5}, "not-reproduced"),
    ],
)
def test_the_dial_is_judged_by_zeros_over_paired_seeds(zeros, status):
    verdict = turned.judge(run(zeros))
    assert verdict.status == status, str(verdict)
    assert verdict.seeds == 5 and verdict.interval is not None
    table = [name for name in verdict.facts if "hidden drift_z" in name]
    assert len(table) == 4, "one line a push, and one for the network as it is"


def test_the_dial_of_one_seed_is_not_judged():
    assert turned.judge(run({None: 0.5, 0.15: 0.4, 4.5: 0.6}, seeds=1)).status == "not-judged"


def test_a_conv1d_stays_a_linear_layer_when_its_weight_is_reparametrised():
    class Conv1D(torch.nn.Module):  # as Hugging Face has it: (in, out)
        def __init__(self):
            super().__init__()
            self.nf, self.weight = 3, torch.nn.Parameter(torch.randn(2, 3))

        def forward(self, x):
            return x @ self.weight

    layer = Conv1D()
    assert layer_kind(layer) == "linear"
    torch.nn.utils.parametrize.register_parametrization(layer, "weight", torch.nn.Identity())
    assert type(layer).__name__ != "Conv1D" and layer_kind(layer) == "linear"
    assert by_output(layer, layer.weight).shape == (3, 2)


@pytest.mark.slow
def test_tools_work_on_gpt2_as_its_library_makes_it():
    pytest.importorskip("transformers")
    assert needed(("gpt2",)) == ""
    job = task("gpt2", EMBEDDED, width=16, steps=2, seed=0)
    before = hidden_weights(job.net)
    assert len(before) == 8 and not [n for n in before if "head" in n], list(before)
    done = centre_weights(job.net, job.batch(4))
    assert len(done.names) == 8 and "lm_head" in done.skipped, str(done)
    assert max(float(w.mean(0).abs().max()) for w in hidden_weights(job.net).values()) < 1e-6  # stored (in, out)
    config = {"network": "gpt2", "data": EMBEDDED, "seed": 0, "steps": 2, "width": 16}
    for tool in suppression_costs.TOOLS:
        (row,) = suppression_costs.trial({**config, "tool": tool})
        assert row["score"] < 0 and 0 <= row["sparsity"] <= 1
    (row,) = dialling.trial({**config, "target": 1.2})
    assert row["by"] == "logits" and row["push"] == pytest.approx(1.2, rel=1e-3)


def sites(change):
    """Rows of one run each: (network, optimizer) → change of the mean input of its activations."""
    rows = []
    for (network, optimizer), value in change.items():
        for seed in range(5):
            at = {"network": network, "optimizer": optimizer, "data": "digits", "seed": seed, "steps": 120}
            sunk = value + 0.01 * seed
            rows.append({**at, "quantity": "site", "preact_drift": sunk, "preact_drift_0": 0.0})
            rows.append({**at, "quantity": "weights", "place": "hidden", "drift_z": -0.01})
    return rows


@pytest.mark.parametrize(
    ("sgd", "adam", "status"), [(-0.4, -0.3, "holds"), (-0.4, 0.3, "underspecified"), (0.1, -0.01, "fails")]
)
def test_architectures_sink_only_beyond_their_interval(sgd, adam, status):
    verdict = drift_claims.networks.judge(sites({("mlp", "sgd"): sgd, ("mlp", "adam"): adam}))
    assert verdict.status == status, str(verdict)
    assert verdict.seeds == 5


def test_every_architecture_is_trained_with_two_optimizers_and_five_seeds():
    cases = {}
    for config in trials(Architectures()):
        cases.setdefault((config["network"], config["act"], config["data"]), set()).add(
            (config["optimizer"], config["seed"])
        )
    assert all(len({o for o, _ in found}) == 2 and len(found) == 10 for found in cases.values())
