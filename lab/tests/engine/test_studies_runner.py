"""A study runs once, resumes, retries, refuses a changed hypothesis, and says what its verdicts rest on."""

import dataclasses

import pytest

from netvitals_lab import Claim, Expected, Resources, Results, Study, code_version, decide, judge, run
from netvitals_lab.engine.versions import forget


@pytest.fixture
def toys(monkeypatch):
    from pathlib import Path

    monkeypatch.syspath_prepend(str(Path(__file__).parent / "studies_fixture"))
    import toy_trials

    return toy_trials


def make(toys, folder="", act="compute", seeds=3, **more):
    p = toys.Toy(seeds=seeds, act=act, folder=str(folder))
    scales = {"smoke": p, "small": dataclasses.replace(p, seeds=seeds + 1), "paper": p}
    return Study("toy", "toy", "a toy", scales, toys.trials, toys.trial, toys.summary, **more)


CLAIM = Claim(
    "toy/C1",
    "toy",
    "the mean is small",
    Expected(0.0, tolerance=2.0),
    lambda rows: decide(abs(sum(r["value"] for r in rows)) < 10, float(len(rows)), 0.1),
)


def ran(folder):
    return (folder / "log").read_text().split()


def toy_run(study, tmp_path, **more):
    options = {"engine": "inline", "results": tmp_path / "s.sqlite", "claims": [CLAIM], "progress": False}
    return run(study, "smoke", **{**options, **more})


def test_rows_carry_their_configuration_and_the_verdict_its_basis(toys, tmp_path):
    result = toy_run(make(toys, tmp_path), tmp_path)
    assert [r["seed"] for r in result.rows] == [0, 1, 2]
    verdict = result.verdicts["toy/C1"]
    assert (verdict.status, verdict.measured, verdict.uncertainty) == ("holds", 3.0, 0.1)
    assert (verdict.trials, verdict.seeds, verdict.scale, verdict.excluded) == (3, 3, "smoke", ())
    assert verdict.cost > 0
    assert result.summary["mean"] == pytest.approx(sum(r["value"] for r in result.rows) / 3)


def test_a_finished_trial_is_never_run_again_and_a_larger_scale_adds_only_its_own(toys, tmp_path):
    study = make(toys, tmp_path)
    first = toy_run(study, tmp_path)
    second = toy_run(study, tmp_path)
    assert (second.reused, second.rows) == (3, first.rows)
    assert ran(tmp_path) == ["0", "1", "2"]
    third = run(study, "small", engine="inline", results=tmp_path / "s.sqlite", claims=[CLAIM], progress=False)
    assert (third.reused, third.trials) == (3, 4)
    assert ran(tmp_path) == ["0", "1", "2", "3"]


def test_fresh_runs_all_trials_again(toys, tmp_path):
    toy_run(make(toys, tmp_path), tmp_path)
    toy_run(make(toys, tmp_path), tmp_path, resume=False)
    assert ran(tmp_path) == ["0", "1", "2"] * 2
    with Results(tmp_path / "s.sqlite", write=False) as results:
        assert len(results.trials()) == 3


def test_changed_code_runs_again_and_changed_comments_do_not(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "codeful.py").write_text(
        "import codeful_part\ndef trial(config):\n    return [{'v': codeful_part.V}]\n"
    )
    part = tmp_path / "codeful_part.py"
    part.write_text("V = 1\n")
    import codeful

    @dataclasses.dataclass
    class Nothing:
        pass

    study = Study(
        name="codeful",
        paper="x",
        title="x",
        scales=dict.fromkeys(("smoke", "small", "paper"), Nothing()),
        trials=lambda p: [{"seed": 0}],
        trial=codeful.trial,
        summary=lambda rows: {},
        depends=("codeful_part",),
    )

    def version():
        forget()
        return code_version(study)

    before = version()
    part.write_text('"""Now with words."""\n\n# and a comment\nV = 1\n')
    assert version() == before
    part.write_text("V = 2\n")
    assert version() != before


@pytest.mark.parametrize(
    ("act", "why"), [("raise", "ArithmeticError: seed 1 does not converge"), ("exit", "SystemExit: 3")]
)
def test_a_failing_trial_is_tried_twice_recorded_and_excluded_by_name(toys, tmp_path, act, why):
    result = toy_run(make(toys, tmp_path, act), tmp_path)
    verdict = result.verdicts["toy/C1"]
    assert (result.failed, verdict.trials) == (1, 2)
    ((name, reason),) = verdict.excluded
    assert "seed=1" in name and reason == why
    assert ran(tmp_path) == ["0", "1", "1", "2"]
    with Results(tmp_path / "s.sqlite", write=False) as results:
        assert [(n, "Traceback" in e) for _, _, n, e in results.failures("toy")] == [(1, True), (2, True)]


def test_a_trial_that_recovers_counts_once_and_its_first_traceback_is_kept(toys, tmp_path):
    result = toy_run(make(toys, tmp_path, "raise-once"), tmp_path)
    assert (result.failed, result.verdicts["toy/C1"].trials, len(result.rows)) == (0, 3, 3)
    with Results(tmp_path / "s.sqlite", write=False) as results:
        assert len(results.failures("toy")) == 1
        assert next(t for t in results.trials().values() if t.config["seed"] == 1).attempts == 2


def test_all_trials_failed_is_not_run_with_the_reason(toys, tmp_path):
    study = dataclasses.replace(make(toys, tmp_path, seeds=1), trial=toys.not_rows)
    verdict = toy_run(study, tmp_path).verdicts["toy/C1"]
    assert verdict.status == "not-run"
    assert "a trial must return a list of dicts, got str" in verdict.note


def test_a_study_that_cannot_run_here_says_why_and_runs_nothing(toys, tmp_path):
    result = toy_run(make(toys, tmp_path, ready=lambda p: "needs CIFAR-10"), tmp_path)
    assert (result.trials, result.verdicts["toy/C1"].status, result.verdicts["toy/C1"].note) == (
        0,
        "not-run",
        "needs CIFAR-10",
    )
    assert not (tmp_path / "log").exists()


def test_a_claim_runs_only_the_trials_it_rests_on(toys, tmp_path):
    one = dataclasses.replace(CLAIM, id="toy/C2", uses=lambda c: c["seed"] == 2)
    result = toy_run(make(toys, tmp_path), tmp_path, claims=[one])
    assert ran(tmp_path) == ["2"]
    assert result.verdicts["toy/C2"].trials == 1
    with Results(tmp_path / "s.sqlite") as results:
        other = judge([CLAIM], make(toys, tmp_path), "smoke", results)["toy/C1"]
    assert (other.status, other.note) == ("not-run", "2 of 3 trials have not run")


def test_a_judge_that_raises_gives_no_verdict_and_hides_no_other(toys, tmp_path):
    broken = dataclasses.replace(CLAIM, id="toy/C3", judge=lambda rows: 1 / 0)
    verdicts = toy_run(make(toys, tmp_path), tmp_path, claims=[broken, CLAIM]).verdicts
    assert verdicts["toy/C3"].status == "not-judged" and "ZeroDivisionError" in verdicts["toy/C3"].note
    assert verdicts["toy/C1"].status == "holds"


def test_a_registered_hypothesis_is_kept_before_the_first_trial_and_a_changed_one_refused(toys, tmp_path):
    study = make(toys, tmp_path, hypothesis="The mean falls.")
    toy_run(study, tmp_path)
    with Results(tmp_path / "s.sqlite", write=False) as results:
        kept = results.hypothesis("toy")
    assert (kept.text, kept.trials_before) == ("The mean falls.", 0)
    assert len(kept.hash) == 64 and kept.registered.endswith("+00:00")

    for changed in ("The mean rises.", ""):
        again = toy_run(dataclasses.replace(study, hypothesis=changed), tmp_path, resume=False)
        verdict = again.verdicts["toy/C1"]
        assert verdict.status == "not-run"
        assert "has been changed since" in verdict.note and "The mean falls." in verdict.note
    assert len(ran(tmp_path)) == 3
    assert toy_run(study, tmp_path).verdicts["toy/C1"].status == "holds"


def test_a_hypothesis_written_after_the_trials_is_called_late(toys, tmp_path):
    toy_run(make(toys, tmp_path), tmp_path)
    verdict = toy_run(make(toys, tmp_path, hypothesis="As seen."), tmp_path).verdicts["toy/C1"]
    assert "written down after 3 trials had run" in verdict.note


def test_two_trials_of_one_configuration_are_refused(toys, tmp_path):
    study = dataclasses.replace(make(toys, tmp_path), trials=lambda p: [{"seed": 0}, {"seed": 0}])
    with pytest.raises(ValueError, match="tell them apart by a seed"):
        toy_run(study, tmp_path)


def test_a_configuration_must_be_plain(toys, tmp_path):
    study = dataclasses.replace(make(toys, tmp_path), trials=lambda p: [{"seed": float("nan")}])
    with pytest.raises(ValueError, match="plain finite values"):
        toy_run(study, tmp_path)


def test_scales_must_be_of_one_dataclass_and_medium_says_what_it_takes(toys):
    with pytest.raises(ValueError, match="scales must be smoke, small, medium, paper"):
        Study("x", "x", "x", {"smoke": toys.Toy()}, toys.trials, toys.trial, toys.summary)
    four = dict.fromkeys(("smoke", "small", "medium", "paper"), toys.Toy())
    with pytest.raises(ValueError, match="are declared together"):
        Study("x", "x", "x", four, toys.trials, toys.trial, toys.summary)
    whole = Study("x", "x", "x", four, toys.trials, toys.trial, toys.summary, resources=Resources(core_hours=2.0))
    assert str(whole.resources) == "1 CPU and 2 GB a trial, about 2 core-hours"


def test_a_study_that_small_settles_says_why_and_is_the_same_at_medium(toys):
    three = {"smoke": toys.Toy(), "small": toys.Toy(), "paper": toys.Toy()}
    parts = ("x", "x", "x", three, toys.trials, toys.trial, toys.summary)
    settled = Study(*parts, settled="an identity")
    assert settled.configs("medium") == settled.configs("small")
    assert dataclasses.replace(settled, title="y").configs("medium") == settled.configs("small")
    assert Study(*parts).configs("medium") == [] and "has no scale medium" in Study(*parts).obstacle("medium")
    larger = three | {"medium": dataclasses.replace(toys.Toy(), **_more(toys.Toy()))}
    with pytest.raises(ValueError, match="says that small tells all"):
        Study("x", "x", "x", larger, toys.trials, toys.trial, toys.summary, settled="an identity")


def _more(parameters):
    name = next(f.name for f in dataclasses.fields(parameters) if isinstance(getattr(parameters, f.name), int))
    return {name: getattr(parameters, name) + 1}


def test_progress_counts_done_running_failed_and_time_left(toys, tmp_path):
    seen = []
    toy_run(
        make(toys, tmp_path, "raise"), tmp_path, progress=lambda s: seen.append((s.done, s.failed, s.running, s.left))
    )
    assert seen[0][:2] == (0, 0) and seen[0][3] is None
    assert seen[-1] == (2, 1, 0, 0.0)
    assert any(0 < done < 2 and left is not None for done, _, _, left in seen)


def test_inline_trials_leave_the_callers_generators_alone(toys, tmp_path):
    import torch

    torch.manual_seed(7)
    expected = torch.rand(2)
    torch.manual_seed(7)
    toy_run(make(toys, tmp_path), tmp_path)
    assert torch.equal(torch.rand(2), expected)


def test_a_full_disk_stops_the_run_and_the_next_one_goes_on(toys, tmp_path):
    study = make(toys, tmp_path, "bulk", seeds=8)
    with Results(tmp_path / "s.sqlite") as results:
        pages = results._db.execute("PRAGMA page_count").fetchone()[0]
        results._db.execute(f"PRAGMA max_page_count={pages + 60}")  # SQLite's own error for a full disk
        with pytest.raises(OSError, match=r"disk is full.* the trials stored so far are intact"):
            toy_run(study, tmp_path, results=results)
        stored = len(results.trials())
    assert 0 < stored < 8
    assert toy_run(study, tmp_path).reused == stored
    assert sorted(ran(tmp_path)) == sorted([*"01234567", str(stored)])  # only the trial that found no room ran twice
