"""Studies beside the paper's own tables: crossed blocks and what follows; claims get verdicts and can fail."""

from __future__ import annotations

import pytest

from netvitals.lab.studies import find_claim

pytestmark = pytest.mark.slow

NAMES = ("crossed", "latent", "sampled")
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


def test_the_rate_and_sampling_agree_where_they_should(smoke):
    found = {c.split("/")[1]: v.status for c, v in smoke("sampled").verdicts.items()}
    assert found == {"LLC-same": "holds", "LLC-crossing": "holds", "LLC-timing": "not-run", "LLC-cost": "holds"}


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
