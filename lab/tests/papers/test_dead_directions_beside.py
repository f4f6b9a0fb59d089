"""Studies beside the paper's own tables: crossed blocks and what follows; claims get verdicts and can fail."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
import torch

from netvitals_lab import find_claim, find_study
from netvitals_lab.papers.dead_directions import _continual
from netvitals_lab.papers.dead_directions._variations import Bridge, fitted, natural, root
from netvitals_lab.papers.dead_directions.variations import AXES, bridge

NAMES = ("crossed", "latent", "sampled", "adapters", "variations", "compression", "pictures")
UNNAMED = "pretrained"  # without a folder
PREFIX = "dead-directions-"


@pytest.mark.parametrize("name", NAMES)
def test_every_trial_runs_and_every_claim_gets_a_verdict(whole, name):
    whole(name)


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("name", NAMES)
def test_no_claim_holds_whatever_was_measured(refutable, name):
    refutable(name)


def test_exponents_of_crossed_blocks_are_the_predicted_ones(smoke):
    assert {v.status for v in smoke("crossed").verdicts.values()} == {"holds"}


def test_hidden_states_are_read(smoke):
    found = {c.split("/")[1]: v.status for c, v in smoke("latent").verdicts.items()}
    assert found == {"C2-latent": "holds", "C36-latent": "holds", "C40-latent": "not-run", "C37-latent": "holds"}


def test_a_transition_that_comes_late_is_seen():
    rows = [
        {
            "step": s,
            "orders": [2 - (s > 10), 2 - (s > 20), 2 - (s > 30)],
            "sampled": 0.75 + lam / 4,
            "every": 1,
            "seed": n,
        }
        for n in range(3)
        for s in range(50)
        for lam in [(s > 10) + (s > 20) + (s > 30)]
    ]
    judge = find_claim("dead-directions/LLC-timing").judge
    assert judge(rows).status == "holds"
    late = [{**r, "sampled": 0.75 + ((r["step"] > 13) + (r["step"] > 23) + (r["step"] > 33)) / 4} for r in rows]
    assert judge(late).status == "fails"


def test_variations_are_each_one_change():
    configs = [c for c in find_study("dead-directions-variations").configs("paper") if c["check"] == "bridge"]
    assert len(configs) == 24 + 7 and {c["seeds"] for c in configs} == {10}
    for config in configs:
        changed = {f.name for f in fields(Bridge) if getattr(bridge(config), f.name) != f.default}
        assert len(changed - {"start"} if config["axis"] == "depth" else changed) <= 2 - (config["axis"] in AXES)
    assert {c["level"] for c in configs if c["axis"] == "depth"} == {2, 4, 6, 8, 12, 20, 32}


def test_a_slope_is_read_on_the_canonical_path_only():
    t = np.geomspace(0.3, 0.1, 40)
    whole = fitted(t, t**4, np.ones(40, dtype=bool))
    assert abs(whole["slope"] - 4) < 1e-9 and not whole["left"] and abs(whole["span"] - np.log10(3)) < 1e-9
    bent = np.where(t < 0.2, 1e-3, t**4)
    cut = fitted(t, bent, t > 0.2)
    assert abs(cut["slope"] - 4) < 1e-9 and cut["left"]
    assert fitted(t, t**4, np.arange(40) < 3)["slope"] is None


def test_preconditioned_steps_are_what_they_should_be():
    gen = torch.Generator().manual_seed(0)
    weights = [torch.nn.Parameter(torch.randn(1, 3, 3, generator=gen, dtype=torch.float64)) for _ in range(2)]
    x = torch.randn(1, 50, 3, generator=gen, dtype=torch.float64)
    for w in weights:
        w.grad = torch.randn(w.shape, generator=gen, dtype=torch.float64)
    before = [w.detach().clone() for w in weights]
    natural(weights, x, lr=0.1, damping=1e-3)()
    eye, a = 1e-3 * torch.eye(3, dtype=torch.float64), x[0].T @ x[0] / 50
    move = torch.linalg.inv(before[1][0].T @ before[1][0] + eye) @ weights[0].grad[0] @ torch.linalg.inv(a + eye)
    assert torch.allclose(before[0][0] - weights[0].detach()[0], 0.1 * move)
    spd = a[None] + eye
    assert torch.allclose(torch.linalg.matrix_power(root(spd), 4) @ spd, torch.eye(3, dtype=torch.float64)[None])


def test_projected_updates_leave_the_old_task_alone():
    old, _ = _continual.tasks("upright then turned")
    old = (old[0][:300], old[1][:300])
    net = _continual.network(0, (64, 12, 10))
    moves = [torch.randn(p.shape, generator=torch.Generator().manual_seed(1)) for p in net.parameters()]
    flat = torch.cat([m.flatten() for m in _continual.orthogonal(net, old, 20)(moves)])
    grads = _continual.stored_gradients(net, old, 20)
    assert float((grads.T @ flat).abs().max()) < 1e-4
    first = _continual.null_space(net, old[0], 0.999)(moves)
    before = old[0] @ first[0].T + first[1]
    assert float(before.norm() / (old[0] @ moves[0].T + moves[1]).norm()) < 0.1


def test_norms_of_a_transformer_trained_here(smoke, monkeypatch):
    monkeypatch.delenv("NETVITALS_MODELS", raising=False)
    found = {c.split("/")[1]: v.status for c, v in smoke(UNNAMED).verdicts.items()}
    assert found["X31-norms"] == "holds" and found["X31-share"] == "not-judged"
    assert "set NETVITALS_MODELS" in find_study("dead-directions-pretrained").obstacle("paper")
