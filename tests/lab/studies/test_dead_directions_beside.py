"""Studies beside the paper's own tables: crossed blocks and what follows; claims get verdicts and can fail."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.slow

NAMES = ("crossed", "latent")
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
