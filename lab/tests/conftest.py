"""Studies at smoke scale, for the tests of every paper."""

from __future__ import annotations

import random
from functools import cache

import pytest

from netvitals_lab import Study, find_claim, find_study, run
from netvitals_lab.engine import registry
from shared_fixtures import *  # noqa: F403


def pytest_collection_modifyitems(items):
    """What runs a whole study is for ``make test-slow``; engine and judges are tested without one."""
    for item in items:
        if "smoke" in getattr(item, "fixturenames", ()):
            item.add_marker("slow")


@pytest.fixture(autouse=True)
def no_data_folder(monkeypatch):
    monkeypatch.delenv("NETVITALS_DATA", raising=False)


@pytest.fixture(scope="module")
def listed_once():
    """Trials are listed once for each study and scale, and folders are read once, however often a command asks."""
    configs, papers, kept = Study.configs, registry.papers, {}

    def remembered(study: Study, scale: str):
        if (id(study), scale) not in kept:
            kept[id(study), scale] = study, configs(study, scale)
        return list(kept[id(study), scale][1])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Study, "configs", remembered)
        patch.setattr(registry, "papers", cache(papers))
        yield


@pytest.fixture(scope="module")
def smoke(request, tmp_path_factory):
    """Each study once, when first asked for; ``PREFIX`` of the test's module goes before its name."""
    prefix = getattr(request.module, "PREFIX", "")
    results = tmp_path_factory.mktemp("studies") / "studies.sqlite"
    done: dict = {}

    def of(name: str):
        if name not in done:
            done[name] = run(prefix + name, "smoke", "inline", results=results, progress=False)
        return done[name]

    of.results = results
    return of


@pytest.fixture(scope="module")
def whole(smoke):
    """Runs a study: every trial ends, every claim gets a verdict, and every picture is drawn.

    A claim without an answer must say ``excuse`` in its note, or, without one, at least a sentence.
    """

    def of(name: str, excuse: str = "larger scale"):
        seen = smoke(name)
        assert seen.failed == 0 and seen.trials > 0 and seen.summary and seen.verdicts
        for name, verdict in seen.verdicts.items():
            assert "its judge raised" not in verdict.note, f"{name}: {verdict.note}"
            if verdict.status == "not-run":
                assert excuse in verdict.note and len(verdict.note) > 20, f"{name}: {verdict.note}"
            claim = find_claim(name)
            if claim.plot is not None:
                assert claim.plot([r for r in seen.rows if claim.rests_on(r)]).svg().startswith("<svg")
        return seen

    return of


def spoiled(value, rnd):
    """A value of the same kind that was never measured."""
    if isinstance(value, bool):
        return rnd.random() < 0.5
    if isinstance(value, int):
        return value + rnd.randint(-3, 3)
    if isinstance(value, float):
        return value * rnd.uniform(2, 9) * rnd.choice((-1, 1)) + rnd.uniform(-3, 3)
    if isinstance(value, str):
        return rnd.choice((value, "spoiled"))
    return [spoiled(v, rnd) for v in value] if isinstance(value, list) else value


@pytest.fixture(scope="module")
def refutable(smoke, request):
    """No claim of a study holds whatever was measured: its rows are spoiled eight times."""
    prefix = getattr(request.module, "PREFIX", "")

    def of(name: str):
        seen, rnd = smoke(name), random.Random(0)
        given = {"predicted"}.union(*find_study(prefix + name).configs("smoke"))
        for claim in seen.verdicts:
            entry, good = find_claim(claim), 0
            rows = [r for r in seen.rows if entry.rests_on(r)]
            for _ in range(8):
                try:
                    bad = [{k: v if k in given else spoiled(v, rnd) for k, v in r.items()} for r in rows]
                    good += entry.judge(bad).status in ("holds", "erratum")
                except (LookupError, ValueError, ArithmeticError, TypeError, StopIteration):
                    pass
            assert good < 8, f"{claim} holds with any numbers"

    return of
