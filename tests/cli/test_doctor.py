"""``netvitals doctor`` says what is there and what is broken, with what to do; its exit code tells a script."""

import json

import pytest
import torch
from typer.testing import CliRunner

from netvitals._extras import PARTS
from netvitals.cli import _self_check, app, doctor


def asked(*arguments):
    return CliRunner().invoke(app, ["doctor", *arguments])


@pytest.fixture
def only(monkeypatch):
    """A self-check of the checks given, none of which trains anything."""
    return lambda **checks: monkeypatch.setattr(_self_check, "CHECKS", checks)


def test_a_sound_installation_passes_every_check_and_leaves_no_trace(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    state, names = torch.get_rng_state(), []
    done = _self_check.self_check(names.append)
    assert [c.ok for c in done] == [True] * 5, done
    assert names == [c.name for c in done] == list(_self_check.CHECKS)
    assert torch.equal(torch.get_rng_state(), state) and not list(tmp_path.glob("netvitals-*"))


def test_a_watch_that_disturbs_is_noticed(monkeypatch):
    import netvitals

    real = netvitals.watch

    def clumsy(model, **options):
        torch.rand(1)  # one number drawn from the user's generator: dropout goes another way from here
        return real(model, **options)

    monkeypatch.setattr(netvitals, "watch", clumsy)
    last = _self_check.self_check()[-1]
    assert last.name == "a watched training is the bare one" and not last.ok
    assert "watching changed" in last.sentence and "generator" in last.sentence and "report it" in last.sentence


def test_every_extra_is_listed_with_the_command_that_brings_it(only, monkeypatch):
    only()
    monkeypatch.setattr(doctor, "_version", lambda package: "" if package in ("plotly", "wandb") else "1.0")
    text = asked().output
    assert "no plotly: pip install 'netvitals[notebook]'" in text
    assert "tensorboard 1.0, mlflow-skinny 1.0; no wandb: pip install 'netvitals[trackers]'" in text
    seen = json.loads(asked("--json").output)
    assert {package for parts in seen["extras"].values() for package in parts} == {p for p, _ in PARTS.values()}
    assert seen["ok"] and seen["core"]["torch"] == "1.0"


def test_capabilities_say_what_is_missing_and_what_to_do(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda program: None)
    monkeypatch.setattr(doctor, "_version", lambda package: "")
    found = doctor.capabilities()
    assert found["devices"].startswith("cpu")
    assert "install one" in found["torch.compile"] and "any browser" in found["pictures of pages"]
    assert "netvitals[trackers]" in found["trackers"] and "netvitals[serve]" in found["live page"]


def test_what_is_broken_ends_with_code_one_and_a_sentence(only):
    def fails(bench):
        raise _self_check.Broken("the disk is full: free some")

    only(first=lambda bench: "fine", second=fails, third=lambda bench: "never asked")
    done = asked()
    assert done.exit_code == 1
    assert "ok     first" in done.output and "BROKEN second" in done.output and "free some" in done.output
    assert "third" not in done.output and "… second" in done.output
    seen = asked("--json")
    assert seen.exit_code == 1 and json.loads(seen.output)["ok"] is False


def test_an_error_that_nobody_foresaw_is_told_with_what_to_do(only, monkeypatch):
    only(first=lambda bench: 1 / 0)
    text = asked().output
    assert "ZeroDivisionError: division by zero" in text and "--force-reinstall" in text
    monkeypatch.setenv("NETVITALS_DEBUG", "1")
    assert isinstance(asked().exception, ZeroDivisionError)


def test_the_self_check_can_be_left_out(only):
    only(first=lambda bench: 1 / 0)
    done = asked("--no-check")
    assert done.exit_code == 0 and "first" not in done.output and "well" not in done.output
