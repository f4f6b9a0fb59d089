"""The studies of the dead-directions paper run at smoke scale, and every claim gets a verdict."""

import pytest

from netvitals.lab.studies import all_claims, all_studies, run


def test_claims_name_studies_that_exist():
    names = {s.name for s in all_studies("dead-directions")}
    assert names and {c.study for c in all_claims("dead-directions")} <= names


@pytest.mark.parametrize("name", [s.name for s in all_studies("dead-directions")])
def test_smoke_run_reaches_verdicts(name, tmp_path):
    done = run(name, "smoke", "inline", results=tmp_path / "results.sqlite", progress=False)
    assert done.rows and done.verdicts
    for claim, verdict in done.verdicts.items():
        assert not verdict.excluded, (claim, verdict.excluded)
        assert verdict.status != "not-run" or "no trial at scale smoke" in verdict.note, (claim, verdict.note)
