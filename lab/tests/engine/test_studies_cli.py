"""The command line of the studies: two of them end to end, killed in the middle, and every kind of wrong input."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import polars as pl
import pytest

from netvitals.cli import main
from netvitals_lab import Results, all_studies, find_studies
from netvitals_lab.papers.activations.claims import claim as activation_claims
from netvitals_lab.papers.weight_drift.theorem_claims import claim as theorem_claims

pytestmark = pytest.mark.usefixtures("listed_once")

# workers are forked here, which saves their import of torch; test_engine_local has workers that are started anew
COMMAND = """
import multiprocessing
kinds = multiprocessing.get_context
multiprocessing.get_context = lambda kind: kinds("fork")
from netvitals.cli import main
main()
"""
BOTH = ("activations", "weight-drift-theorems")


def netvitals(capsys, *arguments):
    """Exit code, stdout and stderr of the command, run in this process."""
    try:
        main(list(arguments))
        code = 0
    except SystemExit as leave:
        code = leave.code or 0
    sentence = capsys.readouterr()
    return code, sentence.out, sentence.err


def verdicts(path):
    """What a results file says of every claim, cost and time aside."""
    with Results(path, write=False) as results:
        return {v.claim: {k: x for k, x in v.verdict.to_dict().items() if k != "cost"} for v in results.verdicts()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Both studies at smoke, undisturbed."""
    path = tmp_path_factory.mktemp("whole") / "studies.sqlite"
    from netvitals_lab import reproduce

    reproduce(BOTH, scale="smoke", engine="inline", results=path, progress=False)
    return path


def test_both_studies_hold_but_for_the_known_errata(whole):
    mine = {c.id for c in (*activation_claims, *theorem_claims)} | {
        "weight-drift/C4"
    }  # other claims may rest on the same trials
    sentence = {c: v for c, v in verdicts(whole).items() if c in mine}
    assert set(sentence) == mine and len(mine) == 18
    assert {c for c, v in sentence.items() if v["status"] == "erratum"} == {
        "activations/definition",
        "weight-drift/C4",
    }
    assert {c for c, v in sentence.items() if v["status"] == "not-run"} == set()
    assert {c for c, v in sentence.items() if v["status"] == "fails"} == set()
    assert all(v["trials"] > 0 and not v["excluded"] and v["scale"] == "smoke" for v in sentence.values())


def test_the_counterexample_is_exact(whole):
    erratum = verdicts(whole)["weight-drift/C4"]
    assert erratum["measured"] == -9 / 16
    assert "exactly 0" in erratum["note"]


@pytest.mark.slow
def test_killed_in_the_middle_and_resumed_gives_the_same_verdicts(whole, tmp_path, programs):
    path = tmp_path / "studies.sqlite"
    command = [
        sys.executable,
        "-c",
        COMMAND,
        "reproduce",
        *BOTH,
        "--scale",
        "smoke",
        "--jobs",
        "2",
        "--results",
        str(path),
    ]
    process = programs.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    stored, total = 0, sum(len(s.configs("smoke")) for s in find_studies(BOTH))
    deadline = time.monotonic() + 240
    while stored < total // 3:
        assert process.poll() is None and time.monotonic() < deadline, process.stderr.read().decode()
        time.sleep(0.02)
        with suppress(FileNotFoundError), Results(path, write=False) as results:
            stored = len(results.trials())
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    with Results(path) as results:
        before = set(results.trials())
        finished = results._db.execute("SELECT key, finished FROM trial").fetchall()
    assert total // 3 <= len(before) < total

    done = programs.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    with Results(path) as results:
        again = dict(results._db.execute("SELECT key, finished FROM trial"))
    assert len(again) == total
    assert all(again[key] == at for key, at in finished)  # no finished trial ran a second time
    assert verdicts(path) == verdicts(whole)


@pytest.mark.slow
def test_ctrl_c_says_how_to_go_on(tmp_path, programs):
    path = tmp_path / "studies.sqlite"
    process = programs.Popen(
        [
            sys.executable,
            "-c",
            COMMAND,
            "reproduce",
            BOTH[0],
            "--scale",
            "smoke",
            "--jobs",
            "1",
            "--results",
            str(path),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    stored = 0
    while stored < 2:
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.02)
        with suppress(FileNotFoundError), Results(path, write=False) as results:
            stored = len(results.trials())
    process.send_signal(signal.SIGINT)
    _, sentence = process.communicate(timeout=180)
    assert process.returncode == 130
    assert sentence.strip().splitlines()[-1].startswith("stopped; the trials done so far are in")
    with Results(path) as results:
        assert 2 <= len(results.trials()) < len(find_studies(BOTH[:1])[0].configs("smoke"))


def test_a_single_claim_runs_only_what_it_needs(capsys, tmp_path):
    path = str(tmp_path / "s.sqlite")
    code, out, _ = netvitals(
        capsys, "reproduce", "--claim", "weight-drift/C4", "--scale", "smoke", "--engine", "inline", "--results", path
    )
    assert code == 0 and "not negative" in out and "-0.5625" in out
    with Results(path, write=False) as results:
        assert len(results.trials()) == 1
        assert [v.claim for v in results.verdicts()] == ["weight-drift/C4"]


def test_claims_lists_filters_and_prints_json(capsys, whole):
    code, out, _ = netvitals(capsys, "claims", "--json", "--paper", "weight-drift", "--results", str(whole))
    found = json.loads(out)
    assert code == 0
    assert {c["paper"] for c in found} == {"weight-drift"}
    first = next(c for c in found if c["id"] == "weight-drift/V1")
    assert first["status"] == "holds" and first["expected"] == "|z| < 4.5" and first["measured"] < 4.5
    assert first["trials"] == 12 and not first["stale"]
    code, out, _ = netvitals(capsys, "claims", "--status", "erratum", "--results", str(whole))
    assert code == 0 and "activations/definition" in out and "weight-drift/C4" in out
    assert "activations/table3" not in out
    code, out, _ = netvitals(capsys, "claims", "--status", "erratum", "--json", "--results", str(whole))
    assert code == 0 and {c["status"] for c in json.loads(out)} == {"erratum"}


def test_claims_without_results_open_with_the_recorded_verdicts(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, _ = netvitals(capsys, "claims", "--paper", "weight-drift", "--json")
    told = json.loads(out)
    kept = [c for c in told if c["recorded"]]
    assert code == 0 and len(kept) > 0.9 * len(told) and any(c["trials"] > 1 for c in kept)
    assert "not-run" not in {c["status"] for c in kept} >= {"holds", "erratum", "underspecified", "not-judged"}
    code, shown, _ = netvitals(capsys, "claims", "--paper", "weight-drift")
    assert code == 0 and shown.count("netvitals reproduce") == 1
    assert len(shown.splitlines()) < 4 * len(told)  # readable on 80 columns: no column of single letters
    code, shown, _ = netvitals(capsys, "claims")
    counts = re.search(r"(\d+) claims: .* (\d+) of them on record", shown.replace("\n", " "))
    assert code == 0 and counts and int(counts[1]) >= int(counts[2]) >= 440
    assert len(shown.splitlines()) < len(all_studies()) + 10  # a line a study, whatever it claims


def test_every_record_is_of_a_claim_and_few_claims_have_none():
    import netvitals_lab as studies
    from netvitals_lab.engine.status import recorded_verdicts

    claims = {c.id for c in studies.all_claims()}
    assert set(recorded_verdicts()) <= claims and len(claims - set(recorded_verdicts())) < 20


def test_studies_counts_stored_trials_and_exports_parquet(capsys, whole, tmp_path):
    code, out, _ = netvitals(capsys, "studies", "--paper", "weight-drift", "--results", str(whole))
    assert code == 0 and "27/27" in out
    code, out, _ = netvitals(capsys, "studies", "--results", str(whole), "--parquet", str(tmp_path / "out"))
    assert code == 0 and len(out.split()) == 3
    frame = pl.read_parquet(tmp_path / "out" / "weight-drift-theorems.parquet")
    assert {"check", "quantity", "mean", "stderr", "expected", "code"} <= set(frame.columns)
    assert frame.filter(pl.col("quantity") == "enumeration")["exact"].to_list()[0] == "-9/16"
    assert pl.read_parquet(tmp_path / "out" / "verdicts.parquet").height >= 23


def test_the_page_is_written_with_the_verdicts(capsys, whole, tmp_path):
    code, out, _ = netvitals(capsys, "claims", "--results", str(whole), "--html", str(tmp_path / "claims.html"))
    assert code == 0 and str(tmp_path / "claims.html") in out
    assert Path(tmp_path / "claims.html").read_text().count("<tr class=") >= 23


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("reproduce", "actvations"), "there is no study 'actvations'; did you mean activations"),
        (("reproduce", "activations", "--scale", "smal"), "there is no scale 'smal'; did you mean small"),
        (("reproduce", "activations", "--engine", "rya"), "there is no engine 'rya'; did you mean ray?"),
        (("reproduce", "--claim", "weight-drift/V11"), "there is no claim 'weight-drift/V11'; did you mean"),
        (("reproduce", "activations", "--jobs", "0"), "jobs must be at least 1, got 0"),
        (("reproduce", "activations", "--claim", "weight-drift/V1"), "belongs to the study weight-drift-theorems"),
        (("reproduce", "activations", "--results", "/proc/nowhere/s.sqlite"), "cannot be made"),
        (("claims", "--status", "hold"), "there is no status 'hold'; did you mean holds?"),
        (("claims", "--paper", "gate-densty"), "there is no paper 'gate-densty'; did you mean gate-density"),
        (("claims", "--results", "nowhere.sqlite"), "there are no results at nowhere.sqlite"),
        (("studies", "--paper", "weight-drft"), "there is no paper 'weight-drft'; did you mean weight-drift"),
    ],
)
def test_wrong_input_gets_one_sentence_and_exit_code_2(capsys, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    code, _, err = netvitals(capsys, *arguments)
    assert code == 2
    assert words in err and len(err.strip().splitlines()) == 1
    assert not list(tmp_path.rglob("*.sqlite")) or arguments[0] == "reproduce"


def test_a_page_of_what_ran_imports_no_other_paper(capsys, tmp_path, monkeypatch):
    """Importing and hashing the other papers takes as long as many a study."""
    from netvitals_lab.engine import registry

    loaded, load = set(), registry._load
    monkeypatch.setattr(registry, "_load", lambda folder: (loaded.add(folder), load(folder))[1])
    page = tmp_path / "claims.html"
    told = ("--scale", "smoke", "--engine", "inline", "--results", str(tmp_path / "s.sqlite"), "--html", str(page))
    code, _, err = netvitals(capsys, "reproduce", "--claim", "weight-drift/C4", *told)
    assert code == 0, err
    assert loaded == {"weight-drift"}
    text = page.read_text(encoding="utf-8")
    assert 'data-paper="weight-drift"' in text and 'data-paper="dag-hessian"' not in text


def test_smoke_shows_what_is_printed_beside_what_was_measured_and_gives_no_verdict(capsys, tmp_path):
    told = ("--engine", "inline", "--results", str(tmp_path / "s.sqlite"))
    code, out, _ = netvitals(capsys, "reproduce", "activations", "--scale", "smoke", *told)
    row = next(line for line in out.splitlines() if line.startswith("activations/table3"))
    assert code == 0 and "paper says" in out
    assert "0 ± 0.001" in row and "0.00072" in row and " smoke " in row
    assert "it decides no" in out and not re.search(r"^activations/\S+ .* (holds|erratum) ", out, re.MULTILINE)
    assert "2 holds" not in out
    code, out, _ = netvitals(capsys, "reproduce", "activations", *told)
    assert code == 0 and re.search(r"^activations/table3 .* holds ", out, re.MULTILINE) and "it decides no" not in out


def test_a_claim_that_needs_some_trials_of_a_study_is_judged_without_the_others(tmp_path):
    """The study's summary is of all trials: it is left out where only some were run."""
    from netvitals_lab import run

    found = run(
        "gate-density-transition",
        "smoke",
        "inline",
        claims=["gate-density/C24"],
        results=tmp_path / "s.sqlite",
        progress=False,
    )
    assert found.verdicts["gate-density/C24"].status != "not-run" and found.summary == {}
