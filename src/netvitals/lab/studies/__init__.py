"""Executable papers: studies, their claims, and the verdicts; on one machine or on a cluster.

One folder per paper. ``run`` (also ``netvitals.lab.run``) runs a study, ``reproduce`` several.
"""

from netvitals.lab.engine.claim import Claim, Expected, within
from netvitals.lab.engine.exporting import export
from netvitals.lab.engine.judging import judge, trial_keys
from netvitals.lab.engine.page import render_page, write_page
from netvitals.lab.engine.record import render_record, write_record
from netvitals.lab.engine.registry import (
    all_claims,
    all_studies,
    check_scale,
    check_status,
    claims_of,
    find_claim,
    find_studies,
    find_study,
    papers,
)
from netvitals.lab.engine.runner import State, StudyRun, reproduce, run
from netvitals.lab.engine.standing import RECORDED, Standing, standings
from netvitals.lab.engine.store import DEFAULT, Hypothesis, Results, StoredVerdict, TrialRecord
from netvitals.lab.engine.study import SCALES, Config, Resources, Row, Study
from netvitals.lab.engine.verdict import (
    LABELS,
    STATUSES,
    Verdict,
    decide,
    erratum,
    fails,
    holds,
    not_judged,
    not_reproduced,
    not_run,
    underspecified,
)
from netvitals.lab.engine.versions import code_version
from netvitals.lab.engine.workers import ENGINES
from netvitals.report import plot as _drawing

# assigned rather than imported: how a picture is drawn must not make stored trials stale
Plot = _drawing.Plot
Series = _drawing.Series

__all__ = [
    "DEFAULT",
    "ENGINES",
    "LABELS",
    "RECORDED",
    "SCALES",
    "STATUSES",
    "Claim",
    "Config",
    "Expected",
    "Hypothesis",
    "Plot",
    "Resources",
    "Results",
    "Row",
    "Series",
    "Standing",
    "State",
    "StoredVerdict",
    "Study",
    "StudyRun",
    "TrialRecord",
    "Verdict",
    "all_claims",
    "all_studies",
    "check_scale",
    "check_status",
    "claims_of",
    "code_version",
    "decide",
    "erratum",
    "export",
    "fails",
    "find_claim",
    "find_studies",
    "find_study",
    "holds",
    "judge",
    "not_judged",
    "not_reproduced",
    "not_run",
    "papers",
    "render_page",
    "render_record",
    "reproduce",
    "run",
    "standings",
    "trial_keys",
    "underspecified",
    "within",
    "write_page",
    "write_record",
]
