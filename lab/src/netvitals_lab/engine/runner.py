"""Running a study: what is stored is never run again, what fails is tried once more, what is done is kept at once."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from netvitals.runs.lock import FileLock, FileLocked
from netvitals_lab.device import CPU, checked
from netvitals_lab.engine.claim import Claim
from netvitals_lab.engine.judging import changed_hypothesis, judge, rows_of
from netvitals_lab.engine.progress import shown
from netvitals_lab.engine.registry import check_scale, claims_of, find_claim, find_studies, find_study
from netvitals_lab.engine.store import DEFAULT, Results, TrialRecord
from netvitals_lab.engine.study import Resources, Row, Study, trial_key
from netvitals_lab.engine.verdict import STATUSES, Verdict
from netvitals_lab.engine.versions import code_version
from netvitals_lab.engine.workers import Engine, Outcome, TrialTask, make_engine

ATTEMPTS = 2  # a trial that raises or breaks its worker is tried once more
LOSSES = 7  # workers that may be killed under one trial by others before the trial itself is suspected


@dataclass(frozen=True)
class StudyRun:
    """What came of a study: its rows, its verdicts, and how many trials are behind them."""

    study: str
    scale: str
    rows: list[Row]
    verdicts: dict[str, Verdict]
    summary: Mapping[str, Any]
    trials: int  # that the study has at this scale (or that the claims asked for rest on)
    reused: int  # of them already stored
    failed: int
    seconds: float  # this call took

    def __str__(self) -> str:
        counts = {s: sum(v.status == s for v in self.verdicts.values()) for s in STATUSES}
        text = ", ".join(f"{n} {s}" for s, n in counts.items() if n) or "no claims"
        if self.scale == "smoke" and self.verdicts:
            text = f"{len(self.verdicts)} claims, none of them decided by a smoke run"
        return (
            f"{self.study} ({self.scale}): {self.trials} trials, {self.reused} reused, {self.failed} failed, "
            f"{self.seconds:.1f} s; {text}"
        )


@dataclass
class State:
    """How far a study is; handed to the progress callback after every change."""

    study: str
    total: int
    slots: int
    reused: int = 0
    done: int = 0
    failed: int = 0
    running: int = 0
    started: float = field(default_factory=time.monotonic)
    spent: float = 0.0  # seconds of finished trials

    @property
    def left(self) -> float | None:
        """Estimated seconds until the last trial is done; None before the first one was."""
        finished = self.done + self.failed
        todo = self.total - self.reused - finished
        if todo == 0:
            return 0.0
        return None if finished == 0 else self.spent / finished * todo / max(1, min(self.slots, todo))


Watcher = Callable[[State], None]


def run(
    study: str | Study,
    scale: str = "small",
    engine: str | Engine = "local",
    *,
    jobs: int | None = None,
    resume: bool = True,
    results: str | os.PathLike[str] | Results = DEFAULT,
    claims: Sequence[str | Claim] | None = None,
    address: str | None = None,
    device: str = CPU,
    progress: bool | Watcher = True,
) -> StudyRun:
    """Run one study and judge its claims.

    >>> import tempfile
    >>> file, claim = tempfile.mkdtemp() + "/results.sqlite", "activations/classes"
    >>> found = run("activations", "smoke", "inline", results=file, claims=[claim], progress=False)
    >>> found.verdicts[claim].status
    'holds'
    """
    chosen = find_study(study) if isinstance(study, str) else study
    wanted = claims_of(chosen) if claims is None else [find_claim(c) if isinstance(c, str) else c for c in claims]
    check_scale(scale)
    place(device, engine if isinstance(engine, str) else engine.name)
    for claim in wanted:
        if claim.study != chosen.name:
            raise ValueError(f"claim {claim.id} belongs to the study {claim.study}, not to {chosen.name}")
    store = results if isinstance(results, Results) else Results(results)
    try:
        with driving(store):
            worker = make_engine(engine, jobs=jobs, address=address) if isinstance(engine, str) else engine
            try:
                return _run(
                    chosen,
                    scale,
                    worker,
                    store,
                    wanted,
                    narrow=claims is not None,
                    resume=resume,
                    device=device,
                    progress=progress,
                )
            finally:
                if worker is not engine:
                    worker.close()
    finally:
        if store is not results:
            store.close()


def reproduce(
    names: Iterable[str] = (),
    *,
    claims: Iterable[str] = (),
    scale: str = "small",
    engine: str = "local",
    jobs: int | None = None,
    resume: bool = True,
    results: str | os.PathLike[str] = DEFAULT,
    address: str | None = None,
    device: str = CPU,
    progress: bool | Watcher = True,
    each: Callable[[StudyRun], None] | None = None,
) -> list[StudyRun]:
    """Run several studies with one engine and one results file; ``each`` is called as every study ends."""
    chosen = [find_claim(c) for c in claims]
    names = list(names) or list(dict.fromkeys(c.study for c in chosen))
    studies = find_studies(names)
    check_scale(scale)
    place(device, engine)
    for claim in chosen:
        if claim.study not in {s.name for s in studies}:
            raise ValueError(f"claim {claim.id} belongs to the study {claim.study}, which was not asked for")
    runs: list[StudyRun] = []
    with Results(results) as store, driving(store):
        worker = make_engine(engine, jobs=jobs, address=address)
        try:
            for study in studies:
                mine = [c for c in chosen if c.study == study.name] if chosen else None
                if mine == []:
                    continue
                asked = {"resume": resume, "results": store, "claims": mine, "device": device, "progress": progress}
                runs.append(run(study, scale, worker, **asked))  # type: ignore[arg-type]
                if each is not None:
                    each(runs[-1])
        finally:
            worker.close()
    return runs


def place(device: str, engine: str) -> None:
    """Refuse a device that is not here; on a cluster only its nodes know."""
    if engine != "ray":
        checked(device)


@contextmanager
def driving(store: Results) -> Iterator[None]:
    """Run studies for a results file, and nobody else meanwhile; a driver that died holds nobody up."""
    if store.lock is not None:
        yield
        return
    try:
        store.lock = FileLock(store.path)
    except FileLocked as error:
        raise FileLocked(
            f"{error}. Two drivers would run every trial twice: wait for the other one, or give this one another "
            "--results"
        ) from None
    try:
        yield
    finally:
        store.lock.release()
        store.lock = None


def _run(
    study: Study,
    scale: str,
    engine: Engine,
    store: Results,
    claims: Sequence[Claim],
    *,
    narrow: bool,
    resume: bool,
    device: str,
    progress: bool | Watcher,
) -> StudyRun:
    begin = time.monotonic()
    code = code_version(study)
    tasks: list[TrialTask] = []
    reused = 0
    if study.hypothesis:
        store.register(study.name, study.hypothesis)
    if not (study.obstacle(scale) or changed_hypothesis(study, store)):
        configs = [c for c in study.configs(scale) if not narrow or any(claim.rests_on(c) for claim in claims)]
        needs = study.resources if scale == "medium" and study.resources is not None else Resources(memory_gb=0.0)
        tasks = [
            TrialTask(
                key=trial_key(study.name, c, code),
                function=study.trial,
                config=c,
                cpus=needs.cpus,
                memory_gb=needs.memory_gb,
                device=device,
            )
            for c in configs
        ]
    stored = store.trials([t.key for t in tasks], study.name)
    pending = [t for t in tasks if not (resume and t.key in stored and stored[t.key].done)]
    reused = len(tasks) - len(pending)
    if pending:
        state = State(study.name, len(tasks), engine.slots, reused)
        with shown(state, progress) as watch:
            _work(study, code, pending, engine, store, state, watch)
    kept = store.trials([t.key for t in tasks], study.name)
    ordered = [kept[t.key] for t in tasks if t.key in kept]
    verdicts = judge(claims, study, scale, store)
    store.save_verdicts(verdicts, scale, code)
    rows = rows_of(ordered)
    return StudyRun(
        study=study.name,
        scale=scale,
        rows=rows,
        verdicts=verdicts,
        summary=study.summary(rows) if rows and len(tasks) == len(study.configs(scale)) else {},  # of all trials
        trials=len(tasks),
        reused=reused,
        failed=sum(not t.done for t in ordered),
        seconds=time.monotonic() - begin,
    )


def _work(
    study: Study, code: str, pending: Sequence[TrialTask], engine: Engine, store: Results, state: State, watch: Watcher
) -> None:
    """Every pending task to its end; the store is written here and nowhere else."""
    queue = deque(pending)
    tasks = {t.key: t for t in pending}
    attempts, losses = dict.fromkeys(tasks, 0), dict.fromkeys(tasks, 0)
    while queue or engine.running:
        while queue and engine.free > 0:
            task = queue.popleft()
            attempts[task.key] += 1
            engine.submit(task)
        state.running = engine.running
        watch(state)
        for outcome in engine.poll(0.2):
            task = tasks[outcome.key]
            attempt = attempts[task.key]
            if outcome.lost and losses[task.key] < LOSSES - 1:
                losses[task.key] += 1
                attempts[task.key] -= 1  # its worker was killed from outside: that says nothing of the trial
                store.record_failure(task.key, study.name, task.config, attempt, outcome.error)
                queue.append(task)
                continue
            if outcome.ok or attempt >= ATTEMPTS or outcome.lost:
                store.record(_record(study, code, task, outcome, attempt, engine.name))
            if not outcome.ok:
                store.record_failure(task.key, study.name, task.config, attempt, outcome.error)
                if attempt < ATTEMPTS and not outcome.lost:
                    queue.appendleft(task)
                    continue
            state.done += outcome.ok
            state.failed += not outcome.ok
            state.spent += outcome.seconds
    state.running = 0
    watch(state)


def _record(study: Study, code: str, task: TrialTask, outcome: Outcome, attempts: int, engine: str) -> TrialRecord:
    return TrialRecord(
        key=task.key,
        study=study.name,
        config=task.config,
        code=code,
        rows=outcome.rows,
        error=outcome.error,
        attempts=attempts,
        seconds=outcome.seconds if outcome.computing is None else outcome.computing,
        engine=engine,
    )
