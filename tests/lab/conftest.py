"""Studies at smoke scale, for the tests of every paper."""

from __future__ import annotations

import pytest

from netvitals.lab.studies import run


@pytest.fixture(autouse=True)
def no_data_folder(monkeypatch):
    monkeypatch.delenv("NETVITALS_DATA", raising=False)


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
