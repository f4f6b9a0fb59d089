"""From stored trials to verdicts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from netvitals_lab.engine.assumptions import awaited, data_of
from netvitals_lab.engine.claim import Claim
from netvitals_lab.engine.judges.comparing import seen_by
from netvitals_lab.engine.store import Results, TrialRecord, fingerprint
from netvitals_lab.engine.study import Config, Row, Study, trial_key, trial_name
from netvitals_lab.engine.verdict import FINAL, JUDGED, Verdict, not_judged, not_run
from netvitals_lab.engine.versions import code_version

WIDE = 8  # set-ups that the paper's text admits, without which none of them refutes what it says


def judge(claims: Iterable[Claim], study: Study, scale: str, results: Results) -> dict[str, Verdict]:
    """The verdict on each claim from what is stored now; trials that failed are excluded and named."""
    refusal = study.obstacle(scale) or changed_hypothesis(study, results)
    if refusal:
        return {c.id: replace(not_run(refusal), scale=scale) for c in claims}
    configs = study.configs(scale)
    keys = trial_keys(study, scale)
    stored = results.trials(keys, study.name)
    pairs = [(config, stored.get(key)) for config, key in zip(configs, keys)]
    late = late_hypothesis(study, results)
    return {c.id: _verdict(c, study, [p for p in pairs if c.rests_on(p[0])], scale, late) for c in claims}


def trial_keys(study: Study, scale: str) -> list[str]:
    """The keys of a study's trials at ``scale``, in the order of its configurations."""
    code = code_version(study)
    return [trial_key(study.name, c, code) for c in study.configs(scale)]


def rows_of(trials: Iterable[TrialRecord]) -> list[Row]:
    """Rows of finished trials, each with the values of its trial's configuration."""
    return [{**t.config, **row} for t in trials if t.done for row in t.rows]


def changed_hypothesis(study: Study, results: Results) -> str:
    """Why no verdict may be given on a study whose registered hypothesis is not the one it states now."""
    kept = results.hypothesis(study.name)
    if kept is None or kept.hash == fingerprint(study.hypothesis):
        return ""
    return (
        f"refused: the hypothesis of {study.name} was registered on {kept.registered} (sha256 {kept.hash[:12]}…) "
        f"as “{kept.text}” and has been changed since; restore it, or begin a new results file"
    )


def late_hypothesis(study: Study, results: Results) -> str:
    kept = results.hypothesis(study.name)
    if kept is None or not kept.trials_before:
        return ""
    return f"its hypothesis was written down after {kept.trials_before} trials had run"


def _verdict(
    claim: Claim, study: Study, pairs: Sequence[tuple[Config, TrialRecord | None]], scale: str, late: str
) -> Verdict:
    missing = sum(t is None for _, t in pairs)
    if not pairs:
        why = awaited(claim) if scale == "small" else f"no trial at scale {scale} bears on it"
        return replace(not_run(why), scale=scale)
    if missing:
        return replace(not_run(f"{missing} of {len(pairs)} trials have not run"), scale=scale)
    trials = [t for _, t in pairs if t is not None]
    done = [t for t in trials if t.done]
    excluded = tuple((trial_name(t.config), _last_line(t.error)) for t in trials if not t.done)
    facts: dict[str, Any] = {
        "scale": scale,
        "cost": sum(t.seconds for t in trials),
        "trials": len(done),
        "excluded": excluded,
        "data": data_of([t.config for t in done]),
    }
    if not done:
        return replace(not_run(f"all {len(trials)} trials failed: {excluded[0][1]}"), **facts)
    rows = rows_of(done)
    try:
        verdict = claim.judge(rows)
    except Exception as error:  # a verdict that cannot be reached is no verdict, and must not hide the others
        return replace(not_judged(f"its judge raised {type(error).__name__}: {error}"), **facts)
    seeds = verdict.seeds or len({str(r["seed"]) for r in rows if "seed" in r})
    note = "; ".join(filter(None, (verdict.note, late)))
    correction = verdict.correction or (claim.correction if verdict.status == "erratum" else "")
    return fair(claim, study, replace(verdict, seeds=seeds, note=note, correction=correction, **facts))


def fair(claim: Claim, study: Study, verdict: Verdict) -> Verdict:
    """What a verdict may say: nothing on a comparison with too few seeds, and nothing final about a paper from a set-up
    that is neither the paper's nor given a reason to decide."""
    if verdict.seeds < claim.seeds and verdict.status in JUDGED:
        text = f"a comparison needs {claim.seeds} paired seeds and there are {verdict.seeds}"
        return _without_answer(verdict, text)
    if claim.whose != "paper" or claim.decides or verdict.scale == "paper" or verdict.status not in FINAL:
        free = verdict.status == "reproduced" and claim.whose != "paper"  # on record from when it was
        return replace(verdict, status="holds") if free else verdict
    admitted = verdict.setups[1] if verdict.setups else 1
    if study.unprinted and not study.reduced and admitted >= WIDE and verdict.status != "erratum":
        return verdict  # the same in every set-up that the text admits
    where = f"here {study.reduced}" if study.reduced else f"the paper does not print {study.unprinted or 'its set-up'}"
    if verdict.status == "erratum":
        return _without_answer(verdict, f"a set-up that is not the paper's refutes nothing; {where}")
    if verdict.status == "holds":
        return replace(verdict, status="reproduced", note="; ".join(filter(None, (verdict.note, where))))
    if not study.reduced:
        return _without_answer(verdict, f"{where}; in our set-up it is not so")
    note = "; ".join(filter(None, (verdict.note, where)))
    seen, unit = seen_by(max(2, verdict.seeds)), "standard deviations over seeds"
    return replace(verdict, status="not-reproduced", power=seen, power_in=unit, note=note)


def _without_answer(verdict: Verdict, why: str) -> Verdict:
    note = "; ".join(filter(None, (why, verdict.note)))
    return replace(verdict, status="not-judged", note=note, correction="", power=None, span=None)


def _last_line(error: str) -> str:
    return next((line for line in reversed(error.strip().splitlines()) if line.strip()), "no reason given")
