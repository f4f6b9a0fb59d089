"""The clinic itself: what is planted is there, what is healthy is not, judgement and cures are counted right."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch

from netvitals_lab import clinic
from netvitals_lab.clinic.trials import Cure

DISEASES = {d.name: d for d in clinic.DISEASES}
CONTROLS = {c.name: c for c in clinic.CONTROLS}


def test_there_are_forty_diseases_in_eight_families_and_twenty_controls():
    assert len(DISEASES) >= 40 and len(CONTROLS) >= 20
    families = Counter(d.family for d in clinic.DISEASES)
    assert set(families) == set(clinic.FAMILIES), families
    assert all(set(d.hosts) <= set(clinic.ARCHITECTURES) for d in clinic.DISEASES)


def test_every_disease_names_rules_that_exist():
    from netvitals.findings import RULES

    known = {r.name for r in RULES}
    for disease in clinic.DISEASES:
        assert disease.cause and set(disease.cause + disease.symptoms) <= known, disease.name


def test_the_tuning_set_and_the_test_set_are_other_networks():
    for name in clinic.ARCHITECTURES:
        small, large = (sum(p.numel() for p in clinic.patient(name, 0, size).model.parameters()) for size in (0, 1))
        assert small != large, name


def test_a_session_is_the_same_every_time_and_a_disease_changes_it():
    session = lambda: CONTROLS["rnn"].session(3)
    runs = [clinic.course(_short(session()), 3, watched=False).losses for _ in range(2)]
    assert runs[0] == runs[1]
    sick = DISEASES["loss of the wrong sign"].session(0)
    assert clinic.course(_short(sick), 0, watched=False).losses[0] < 0


def test_watching_does_not_change_the_course():
    runs = [clinic.course(_short(CONTROLS["glu"].session(1)), 1, watched=w).losses for w in (False, True)]
    assert runs[0] == runs[1]


def _short(session):
    session.steps = 12
    return session


MISSED = (
    ("learning rate too high, Adam", 0),
    ("stream grows with depth", 0),
    ("most parameters not in the optimizer", 0),
    ("detached block", 0),
    ("eval mode while training", 0),
    ("attention logits explode", 0),
    ("vanishing in a recurrence", 0),
    ("dead experts", 0),
)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "seed"), MISSED)
def test_what_was_once_missed_is_caught_by_its_cause_and_dated(name, seed):
    trial = clinic.examine(DISEASES[name], seed, "moderate", size=0)
    assert trial.caught and trial.cause and trial.place, trial
    assert trial.delay is not None and trial.delay <= 20, trial.delay


QUIET = ("binary", "fine-tune of a language model at 2e-5", "soft-cap", "gpt", "many labels, output sigmoids")


@pytest.mark.slow
@pytest.mark.parametrize("name", QUIET)
def test_what_once_alarmed_is_quiet(name):
    trial = clinic.keep_watch(CONTROLS[name], 0, size=0)
    assert not trial.alarm and not trial.ever, trial.rules


@pytest.mark.slow
@pytest.mark.parametrize(("rate", "alarms"), [(3e-3, False), (3e-2, True), (3e-1, True)])
def test_a_llama_at_a_good_a_bad_and_a_ruinous_rate(rate, alarms):
    pytest.importorskip("transformers")
    session = clinic.patient("llama", 0, 0)
    session.lr, session.steps = rate, 60
    found = clinic.course(session, 0, live=False).findings
    assert bool(found.alarming) == alarms, str(found)
    if alarms:
        assert found[0].rule == "learning rate too high" and found[0].since is not None


@pytest.mark.slow
def test_a_cure_is_applied_from_the_step_of_the_finding_and_mends():
    disease = DISEASES["missing zero_grad"]
    trial = clinic.examine(disease, 1, "moderate", size=0)
    found = clinic.cure(trial, disease)
    assert found is not None and found.remedy == "zero_grad"
    assert found.curable and found.mended and not found.harmed, found


def test_cures_and_harms_are_told_apart():
    made = lambda healthy, sick, treated: Cure("d", "r", "k", 0, healthy, sick, treated)
    assert made(0.1, 2.0, 0.9).mended and not made(0.1, 2.0, 1.5).mended
    assert not made(0.1, 0.101, 0.2).curable and made(0.1, 0.101, 0.2).harmed
    assert made(0.1, math.inf, 0.2).mended and not made(0.1, 1.0, math.inf).mended


def test_rates_have_wilsons_interval_and_scores_count_what_they_say():
    row = lambda **more: {
        "set": "disease", "name": "a", "family": "data", "grade": "moderate", "seed": 0, "caught": True, "cause": True,
        "place": True, "delay": 4.0, "first": "x", "rules": ["x"], "alarm": True, "ever": True, **more,
    }  # fmt: skip
    rows = [
        row(),
        row(caught=False, cause=False, place=False, delay=None, first=""),
        row(set="control", name="c", alarm=False, ever=True),
    ]
    found = clinic.scores(rows)
    assert found["overall"]["sensitivity"]["share"] == 0.5 and found["overall"]["delay"]["median"] == 4.0
    assert found["overall"]["specificity"]["share"] == 1.0 and found["overall"]["specificity_live"]["share"] == 0.0
    assert found["rules"]["x"] == {"spoke": 1, "right": 1, "healthy": 1, "false": 1}
    assert clinic.rate([], "x")["n"] == 0


@pytest.mark.parametrize("kind", sorted(clinic.TREATMENTS))
def test_every_treatment_can_be_done_to_a_running_session(kind):
    from netvitals.runs import Remedy

    session = clinic.patient(
        "moe" if "expert" in kind else "gpt" if kind in ("centre_embeddings", "rescale_queries") else "mlp", 0
    )
    optimizer = session.make_optimizer()
    places = ("blocks.1.linear.weight", "blocks.2.linear.weight") if kind == "balance" else ("blocks.1.act",)
    optimizer = clinic.treat(session, optimizer, Remedy(kind, 0.5, places), 3)
    assert isinstance(optimizer, torch.optim.Optimizer)
    session.steps = 2
    assert math.isfinite(clinic.course(session, 0, watched=False).losses[-1])


def test_a_treatment_that_does_not_exist_is_refused_with_what_there_is():
    from netvitals.runs import Remedy

    with pytest.raises(ValueError, match="there is no treatment 'prayer'; there are zero_grad"):
        clinic.treat(clinic.patient("mlp", 0), None, Remedy("prayer"), 0)  # type: ignore[arg-type]
