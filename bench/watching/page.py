"""What the live page costs: first paint, an update, and fifty viewers while a run is written.

    python bench/watching/page.py [--sites 500] [--steps 20000] [--viewers 50]

A synthetic run of sites × steps is written by the real writer and read by the real server's parts. Times are CPU times
of this process; ratios are what is claimed: an update of a long run against one of a short run.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

from netvitals.report.live import api
from netvitals.report.live.api import to_json
from netvitals.report.live.run_index import OpenRun
from netvitals.report.live.server import create_app
from netvitals.runs import RunWriter
from netvitals.runs.database import RunDatabase
from netvitals.runs.write_queue import Columns, Pending, as_json


def synthetic(path: Path, sites: int, steps: int, start: int = 0) -> RunDatabase:
    """A run of one metric at so many sites on so many measured steps, with a loss; open for more."""
    names = [f"block.{i // 10}.layer{i}.act" for i in range(sites)]
    ledger = RunDatabase(path, "refuse")
    told = [{"name": n, "kind": "activation", "op": "relu", "role": "hidden activation"} for n in names]
    ledger.commit(Pending(notes={"model": as_json("Deep"), "status": as_json("running"), "sites": as_json(told)}))
    write(ledger, names, range(start, start + steps))
    return ledger


def write(ledger: RunDatabase, names: list[str], steps: range) -> None:
    keys = [("gates", n, "density@0.1") for n in names] + [("loss", "model", "loss")]
    rng = np.random.default_rng(0)
    for at in range(steps.start, steps.stop, 100):
        here = np.arange(at, min(at + 100, steps.stop))
        values = rng.random((len(here), len(keys))).ravel()
        ledger.commit(Pending(columns=[Columns(np.repeat(here, len(keys)), keys * len(here), values)]))


def clock(work) -> tuple[float, object]:
    begin = time.process_time()
    out = work()
    return time.process_time() - begin, out


def first_paint(path: Path) -> tuple[float, int]:
    """CPU seconds and bytes until the page has what its first screen shows: head, loss, one metric at all sites."""

    def work() -> int:
        run = OpenRun(path)
        run.refresh()
        told = [
            api.head(run.numbers, run.findings, title="r", status="running"),
            api.metric(run.numbers, "loss", "loss"),
            api.metric(run.numbers, "gates", "density@0.1"),
        ]
        return sum(len(to_json(t)) for t in told)

    return clock(work)  # type: ignore[return-value]


def update(path: Path, ledger: RunDatabase, sites: int, start: int) -> float:
    """CPU seconds of the page's api after one more measured step; the median of seven."""
    run = OpenRun(path)
    run.refresh()
    _ = run.findings
    names = [f"block.{i // 10}.layer{i}.act" for i in range(sites)]
    times = []
    for k in range(7):
        write(ledger, names, range(start + k, start + k + 1))

        def work() -> None:
            run.refresh()
            api.head(run.numbers, run.findings, title="r", status="running")
            api.metric(run.numbers, "gates", "density@0.1")

        times.append(clock(work)[0])
    return sorted(times)[3]


def viewers(count: int, steps: int) -> tuple[int, int]:
    """A run written while so many ask for it again and again: measurements handed over, measurements on disk."""
    from starlette.testclient import TestClient

    with tempfile.TemporaryDirectory() as folder:
        writer = RunWriter(Path(folder) / "r", meta={"model": "MLP"})
        stop = threading.Event()
        app = create_app(folder, "t", judge=False)

        def ask() -> None:
            client = TestClient(app, base_url="http://127.0.0.1")
            client.cookies.set("netvitals-80", "t")
            while not stop.is_set():
                client.get("/api/head", params={"run": "r"})

        threads = [threading.Thread(target=ask, daemon=True) for _ in range(count)]
        from netvitals.capture import Measurement

        writer.write([Measurement(0, "loss", "model", "loss", 1.0)])
        writer.flush()
        for t in threads:
            t.start()
        for step in range(1, steps):
            writer.write(
                [Measurement(step, "loss", "model", "loss", 1.0 / (1 + step))]
                + [Measurement(step, "gates", f"l{k}", "density@0.1", 0.5) for k in range(20)]
            )
            time.sleep(0.002)
        writer.close()
        stop.set()
        for t in threads:
            t.join(10)
        from netvitals.runs import open_run

        return 1 + (steps - 1) * 21, open_run(Path(folder) / "r").summary.measurements


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sites", type=int, default=500)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--viewers", type=int, default=50)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        ledger = synthetic(root / "long", options.sites, options.steps)
        seconds, size = first_paint(root / "long")
        shape = f"{options.sites} sites x {options.steps:,} steps"
        print(f"first paint, {shape}: {seconds:.2f} s of CPU, {size / 1e6:.2f} MB (at most 1 s, 5 MB)")
        short = synthetic(root / "short", 50, 100)
        long = synthetic(root / "longer", 50, 100_000)
        few, many = update(root / "short", short, 50, 100), update(root / "longer", long, 50, 100_000)
        print(f"an update of 100,000 steps against one of 100: {many / few:.2f} (at most 2)")
        for one in (ledger, short, long):
            one.close()
    given, kept = viewers(options.viewers, 500)
    print(f"{options.viewers} viewers: {given} measurements handed over, {kept} on disk")
    print(json.dumps({"first_paint_s": seconds, "bytes": size, "update_ratio": many / few, "lost": given - kept}))


if __name__ == "__main__":
    main()
