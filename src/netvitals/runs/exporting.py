"""A run as a file that other programs read: Parquet, CSV or JSON."""

from __future__ import annotations

import json
import os
from pathlib import Path

from netvitals.capture import plain
from netvitals.runs.reader import Run

FORMATS = ("parquet", "csv", "json")


def export(run: Run, to: str = "parquet", out: str | os.PathLike[str] | None = None) -> Path:
    """Write all measurements of a run to one Parquet, CSV or JSON file, and return its path.

    Parquet and CSV have one row per measurement, with columns step, vital, site, metric and value. JSON also has
    metadata, findings and arrays; NaN and infinities are written as the strings ``"nan"``, ``"inf"``, ``"-inf"``.

    Args:
        run: the run.
        to: ``"parquet"``, ``"csv"`` or ``"json"``.
        out: path of the file; by default beside the run, named after it. An existing file is replaced.

    Returns:
        Where the file was written.

    >>> import tempfile
    >>> from netvitals.capture import Measurement
    >>> from netvitals.runs import RunWriter, open_run
    >>> folder = tempfile.mkdtemp() + "/first"
    >>> with RunWriter(folder) as writer:
    ...     writer.write([Measurement(0, "loss", "", "loss", 2.5)])
    >>> print(export(open_run(folder), "csv").read_text().strip())
    step,vital,site,metric,value
    0,loss,"",loss,2.5
    """
    if to not in FORMATS:
        raise ValueError(f"a run can be exported to {', '.join(FORMATS)}, got {to!r}")
    path = Path(out) if out is not None else run.path.with_name(f"{run.name}.{to}")
    if path.is_dir():
        path = path / f"{run.name}.{to}"
    path.parent.mkdir(parents=True, exist_ok=True)
    if to == "json":
        frame = run.frame()
        document = {
            "meta": run.meta,
            "status": run.status,
            "measurements": {name: frame[name].to_list() for name in frame.columns},
            "arrays": [
                {
                    "step": a.step,
                    "vital": a.vital,
                    "site": a.site,
                    "metric": a.metric,
                    "dtype": a.value.dtype.name,
                    "value": a.value.tolist(),
                }
                for a in run.arrays()
            ],
            "findings": [f.to_dict() for f in run.findings()],
            "forecasts": run.forecasts(),
        }
        path.write_text(json.dumps(plain(document, odd=str)), encoding="utf-8")
    elif to == "csv":
        run.frame().write_csv(path)
    else:
        run.frame().write_parquet(path)
    return path
