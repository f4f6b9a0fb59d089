"""The five papers as executable studies: claims, trials, verdicts; on one machine or on a cluster.

``run`` runs one study, ``reproduce`` several. One folder per paper in ``netvitals_lab.papers``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from netvitals.report import Plot as Plot
    from netvitals.report import Series as Series
    from netvitals_lab.engine.claim import Claim as Claim
    from netvitals_lab.engine.claim import Expected as Expected
    from netvitals_lab.engine.claim import Measured as Measured
    from netvitals_lab.engine.claim import above as above
    from netvitals_lab.engine.claim import at_least as at_least
    from netvitals_lab.engine.claim import at_most as at_most
    from netvitals_lab.engine.claim import below as below
    from netvitals_lab.engine.claim import between as between
    from netvitals_lab.engine.declaring import Claims as Claims
    from netvitals_lab.engine.exporting import export as export
    from netvitals_lab.engine.judging import judge as judge
    from netvitals_lab.engine.judging import trial_keys as trial_keys
    from netvitals_lab.engine.page import render_page as render_page
    from netvitals_lab.engine.page import write_page as write_page
    from netvitals_lab.engine.record import render_record as render_record
    from netvitals_lab.engine.record import write_record as write_record
    from netvitals_lab.engine.registry import all_claims as all_claims
    from netvitals_lab.engine.registry import all_studies as all_studies
    from netvitals_lab.engine.registry import check_scale as check_scale
    from netvitals_lab.engine.registry import check_status as check_status
    from netvitals_lab.engine.registry import claims_of as claims_of
    from netvitals_lab.engine.registry import find_claim as find_claim
    from netvitals_lab.engine.registry import find_studies as find_studies
    from netvitals_lab.engine.registry import find_study as find_study
    from netvitals_lab.engine.registry import papers as papers
    from netvitals_lab.engine.runner import State as State
    from netvitals_lab.engine.runner import StudyRun as StudyRun
    from netvitals_lab.engine.runner import reproduce as reproduce
    from netvitals_lab.engine.runner import run as run
    from netvitals_lab.engine.status import RECORDED as RECORDED
    from netvitals_lab.engine.status import Standing as Standing
    from netvitals_lab.engine.status import standings as standings
    from netvitals_lab.engine.store import DEFAULT as DEFAULT
    from netvitals_lab.engine.store import Hypothesis as Hypothesis
    from netvitals_lab.engine.store import Results as Results
    from netvitals_lab.engine.store import StoredVerdict as StoredVerdict
    from netvitals_lab.engine.store import TrialRecord as TrialRecord
    from netvitals_lab.engine.study import SCALES as SCALES
    from netvitals_lab.engine.study import Config as Config
    from netvitals_lab.engine.study import Resources as Resources
    from netvitals_lab.engine.study import Row as Row
    from netvitals_lab.engine.study import Study as Study
    from netvitals_lab.engine.verdict import LABELS as LABELS
    from netvitals_lab.engine.verdict import STATUSES as STATUSES
    from netvitals_lab.engine.verdict import Verdict as Verdict
    from netvitals_lab.engine.verdict import decide as decide
    from netvitals_lab.engine.verdict import erratum as erratum
    from netvitals_lab.engine.verdict import fails as fails
    from netvitals_lab.engine.verdict import holds as holds
    from netvitals_lab.engine.verdict import not_judged as not_judged
    from netvitals_lab.engine.verdict import not_reproduced as not_reproduced
    from netvitals_lab.engine.verdict import not_run as not_run
    from netvitals_lab.engine.verdict import underspecified as underspecified
    from netvitals_lab.engine.versions import code_version as code_version
    from netvitals_lab.engine.workers import ENGINES as ENGINES

# module → the names it holds; loaded when first used, so that `netvitals --help` needs no torch
_HOMES = {
    "engine.claim": "Claim Expected Measured above at_least at_most below between",
    "engine.declaring": "Claims",
    "engine.exporting": "export",
    "engine.judging": "judge trial_keys",
    "engine.page": "render_page write_page",
    "engine.record": "render_record write_record",
    "engine.registry": "all_claims all_studies check_scale check_status claims_of find_claim find_studies find_study"
    " papers",
    "engine.runner": "State StudyRun reproduce run",
    "engine.status": "RECORDED Standing standings",
    "engine.store": "DEFAULT Hypothesis Results StoredVerdict TrialRecord",
    "engine.study": "SCALES Config Resources Row Study",
    "engine.verdict": "LABELS STATUSES Verdict decide erratum fails holds not_judged not_reproduced not_run"
    " underspecified",
    "engine.versions": "code_version",
    "engine.workers": "ENGINES",
    "netvitals.report": "Plot Series",
}
_HOME = {name: module for module, names in _HOMES.items() for name in names.split()}
__all__ = sorted(_HOME)


def __dir__() -> list[str]:
    return [*globals(), *__all__]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _HOME:
            raise AttributeError(f"netvitals_lab has no {name!r}")
        module = _HOME[name]
        module = module if module.startswith("netvitals.") else f"netvitals_lab.{module}"
        return getattr(importlib.import_module(module), name)
