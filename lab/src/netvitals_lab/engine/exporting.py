"""Results as Parquet: one table of rows per study, and one of all verdicts."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from netvitals_lab.engine.judging import rows_of
from netvitals_lab.engine.store import Results
from netvitals_lab.engine.verdict import worded


def export(results: Results, folder: str | os.PathLike[str], studies: Iterable[str] | None = None) -> list[Path]:
    """Write ``STUDY.parquet`` for every study with finished trials, and ``verdicts.parquet``.

    A row holds the values of its trial's configuration, what the trial returned, and the trial's ``code`` version.
    """
    import polars as pl

    folder = Path(folder)
    if folder.suffix:
        raise ValueError(f"results are exported to a folder, one file per study; {folder} looks like a file")
    folder.mkdir(parents=True, exist_ok=True)
    trials = [t for t in results.trials().values() if t.done]
    names = sorted({t.study for t in trials})
    wanted = names if studies is None else list(studies)
    missing = [s for s in wanted if s not in names]
    if missing:
        raise LookupError(
            f"{results.path} holds no trials of {', '.join(missing)}; it holds {', '.join(names) or 'none'}"
        )
    written = []
    for name in wanted:
        rows = [row | {"code": t.code} for t in trials if t.study == name for row in rows_of([t])]
        frame = pl.DataFrame(rows, infer_schema_length=None, strict=False)
        written.append(folder / f"{name}.parquet")
        frame.write_parquet(written[-1])
    verdicts = [
        {
            "claim": v.claim,
            "judged": v.judged,
            "code": v.code,
            **v.verdict.to_dict(),
            "measured": v.verdict.number,
            "facts": [f"{name}: {worded(fact)}" for name, fact in v.verdict.facts.items()],
            "excluded": [f"{t}: {why}" for t, why in v.verdict.excluded],
        }
        for v in results.verdicts()
    ]
    if verdicts:
        written.append(folder / "verdicts.parquet")
        pl.DataFrame(verdicts, infer_schema_length=None, strict=False).write_parquet(written[-1])
    return written
