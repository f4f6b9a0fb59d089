"""Trials stored under the old way of naming their code are found under the new one, and are not run again."""

from __future__ import annotations

import json
import sqlite3

import pytest

from netvitals.lab.engine import store
from netvitals.lab.engine.registry import all_studies, claims_of
from netvitals.lab.engine.study import trial_key
from netvitals.lab.engine.versions import carry
from netvitals.lab.studies import Results, TrialRecord, code_version, find_study, holds, run, standings

pytestmark = pytest.mark.slow

STUDY = "activations"


def planted(path, version, configs, study=STUDY):
    """A results file of layout 1 with trials and a verdict under ``version``."""
    with Results(path) as results:
        for number, config in enumerate(configs):
            results.record(
                TrialRecord(
                    key=trial_key(study, config, version),
                    study=study,
                    config=config,
                    code=version,
                    rows=[{"number": number}],
                )
            )
        key = trial_key(study, configs[0], version)
        results.record_failure(key, study, configs[0], attempt=1, error="Traceback")
        results.save_verdicts({claims_of(find_study(study))[0].id: holds(1.0)}, "smoke", version)
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version=1")
    db.commit()
    db.close()


def test_stored_trials_and_verdicts_are_carried_over_when_the_file_is_opened(tmp_path, monkeypatch):
    study, path = find_study(STUDY), tmp_path / "s.sqlite"
    configs, now = study.configs("smoke")[:3], code_version(study)
    planted(path, "0123456789abcdef", configs)
    monkeypatch.setattr(carry, "carried", lambda: {STUDY: {"0123456789abcdef": now}})
    with Results(path) as results:
        keys = [trial_key(STUDY, c, now) for c in configs]
        kept = results.trials(keys, STUDY)
        assert [kept[k].rows for k in keys] == [[{"number": 0}], [{"number": 1}], [{"number": 2}]]
        assert {t.code for t in kept.values()} == {now} and len(results.trials()) == 3
        assert [key for key, *_ in results.failures(STUDY)] == [keys[0]]
        (standing,) = [s for s in standings(claims_of(study), results) if s.verdict.status == "holds"]
        assert not standing.stale
    again = run(study, "smoke", "inline", results=path, progress=False)
    assert again.reused == 3 and again.trials > 3


def test_it_is_done_once_and_other_versions_stay_as_they_are(tmp_path, monkeypatch):
    path, asked = tmp_path / "s.sqlite", []
    configs = find_study(STUDY).configs("smoke")[:2]
    planted(path, "ffffffffffffffff", configs)
    monkeypatch.setattr(carry, "carried", lambda: asked.append(1) or {STUDY: {"0123456789abcdef": "new"}})
    for _ in range(2):
        with Results(path) as results:
            assert {t.code for t in results.trials().values()} == {"ffffffffffffffff"}
    assert len(asked) == 1


def test_a_trial_that_already_ran_with_the_new_version_is_kept(tmp_path, monkeypatch):
    path = tmp_path / "s.sqlite"
    configs = find_study(STUDY).configs("smoke")[:1]
    with Results(path) as results:
        fresh = TrialRecord(trial_key(STUDY, configs[0], "new"), STUDY, configs[0], code="new", rows=[{"number": 9}])
        results.record(fresh)
    planted(path, "old", configs)
    monkeypatch.setattr(carry, "carried", lambda: {STUDY: {"old": "new"}})
    with Results(path) as results:
        assert results.trials([fresh.key])[fresh.key].rows == [{"number": 9}]


def test_a_step_that_fails_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "s.sqlite"
    configs = find_study(STUDY).configs("smoke")[:1]
    planted(path, "old", configs)

    def broken(db):
        carry.carry_over(db, {STUDY: {"old": "new"}})
        raise sqlite3.OperationalError("no")

    monkeypatch.setattr(store, "STEPS", {1: broken})
    with pytest.raises(ValueError, match=r"could not be brought .* it is unchanged"):
        Results(path)
    db = sqlite3.connect(path)
    assert db.execute("PRAGMA user_version").fetchone() == (1,)
    assert db.execute("SELECT code FROM trial").fetchall() == [("old",)]
    db.close()


def test_the_command_writes_the_versions_of_the_code_as_it_is(tmp_path, monkeypatch, capsys):
    old = {s.name: f"old of {s.name}" for s in all_studies()}
    (tmp_path / "old.json").write_text(json.dumps(old))
    monkeypatch.setattr(carry, "CARRIED", tmp_path / "carried.json")
    monkeypatch.setattr(carry.write_carried, "__defaults__", (tmp_path / "carried.json",))
    carry.main([str(tmp_path / "old.json")])
    written = carry.carried(tmp_path / "carried.json")
    assert f"{len(old)} studies" in capsys.readouterr().out
    assert written == {s.name: {f"old of {s.name}": code_version(s)} for s in all_studies()}
    with pytest.raises(ValueError, match="there are no studies elsewhere any more"):
        carry.write_carried({"elsewhere": "x"}, tmp_path / "no.json")
    with pytest.raises(SystemExit, match="usage"):
        carry.main([])


def test_what_is_shipped_names_studies_that_are_there():
    shipped = carry.carried()
    assert set(shipped) <= {s.name for s in all_studies()} and len(shipped) >= 41
    assert all(len(v) == 16 for pairs in shipped.values() for pair in pairs.items() for v in pair)
