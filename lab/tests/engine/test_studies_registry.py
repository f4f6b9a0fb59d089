"""Studies and claims are found by name, lazily, and are well formed."""

import subprocess
import sys

import pytest

import netvitals_lab as lab
from netvitals_lab.engine import registry


def test_every_claim_names_a_study_and_an_expectation():
    names = {s.name for s in lab.all_studies()}
    for claim in lab.all_claims():
        assert claim.study in names, claim.id
        assert claim.statement and str(claim.expected), claim.id


def test_ids_are_unique_across_papers():
    ids = [c.id for c in lab.all_claims()]
    assert len(ids) == len(set(ids))
    names = [s.name for s in lab.all_studies()]
    assert len(names) == len(set(names))


@pytest.mark.slow
def test_every_study_lists_its_trials_at_every_scale():
    for study in lab.all_studies():
        sizes = {scale: len(study.configs(scale)) for scale in lab.SCALES}
        assert all(sizes.values()), f"{study.name} has {sizes}"
        assert bool(study.settled) == (study.resources is None), study.name
        assert lab.code_version(study) == lab.code_version(study)


def test_every_claim_of_the_two_proofs_rests_on_some_trial_at_smoke():
    for name in ("activations", "weight-drift-theorems"):
        study = lab.find_study(name)
        configs = study.configs("smoke")
        for claim in lab.claims_of(study):
            assert any(claim.rests_on(c) for c in configs), claim.id


def test_a_paper_means_all_of_its_studies():
    assert {s.name for s in lab.find_studies(["activations"])} == {"activations"}
    assert "weight-drift-theorems" in {s.name for s in lab.find_studies(["weight-drift"])}
    assert len(lab.find_studies([])) == len(lab.all_studies())


def test_finding_one_study_does_not_load_the_other_papers():
    code = (
        "import sys; from netvitals_lab import find_study; find_study('weight-drift-theorems'); "
        "sys.exit('netvitals_lab.papers.activations.claims' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_study_that_cannot_be_imported_does_not_hide_the_others(tmp_path, monkeypatch):
    import netvitals_lab.papers as package

    paper = tmp_path / "broken_paper"
    paper.mkdir()
    (paper / "__init__.py").write_text("")
    (paper / "bad.py").write_text("import nothing_of_this_name\n")
    (paper / "good.py").write_text("STUDIES = ()\n")
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    registry._load.cache_clear()
    with pytest.warns(UserWarning, match="nothing_of_this_name"):
        assert "activations" in {s.name for s in lab.all_studies()}
    registry._load.cache_clear()
