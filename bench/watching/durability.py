"""Kills, flipped bits and long lists: what is lost, what is told, what it costs.

python bench/watching/durability.py                 # 1,000 kills, 10,000 flipped bits, 200 runs of 5 million
measurements python bench/watching/durability.py --kills 100 --flips 500
"""

from __future__ import annotations

import argparse
import math
import os
import random
import select
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

import netvitals as nv
from netvitals.capture import ArrayMeasurement, Measurement
from netvitals.report.live import create_app
from netvitals.runs import Finding, RunWriter, open_run, recover
from netvitals.runs.database import RunDatabase
from netvitals.runs.write_queue import Columns, Pending

EVERY = (1, 50, 1000)
PAUSES = (0.001, 0.01, 0.1, 1.0, 5.0)
OWED_S = 1.0  # everything older than this must be there
AT_ONCE = 6


def train(path: Path, every: int, pause: float, told: int) -> None:
    """A child that trains until it is killed, and tells each step and its time through a pipe."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    x = torch.randn(16, 4)
    vitals = nv.watch(model, run=path, every=every, vitals=["gates"])
    step = 0
    while True:
        loss = model(x).square().mean()
        model.zero_grad()
        loss.backward()
        vitals.step(loss)
        os.write(told, f"{step} {time.time()}\n".encode())
        step += 1
        time.sleep(pause)


def kills(count: int, folder: Path) -> dict[str, float]:
    """Kill ``count`` trainings at random moments."""
    chance = random.Random(0)
    lost, unreadable, steps, worst = 0, 0, 0, 0.0
    begun = 0
    running: list[tuple[int, int, Path, float, float]] = []
    while begun < count or running:
        while begun < count and len(running) < AT_ONCE:
            every, pause = chance.choice(EVERY), chance.choice(PAUSES)
            path = folder / f"kill{begun}"
            ours, theirs = os.pipe()
            child = os.fork()
            if child == 0:
                os.close(ours)
                try:
                    train(path, every, pause, theirs)
                finally:
                    os._exit(1)
            os.close(theirs)
            life = chance.uniform(0.05, 3.0) + (6.0 if pause > 1 else 0.0)
            at_once = begun % 5 == 0  # most are killed so long after their first step, the others after their birth
            running.append((child, ours, path, life, time.time() + life if at_once else math.inf))
            begun += 1
        time.sleep(0.01)
        ready = select.select([r[1] for r in running], [], [], 0)[0]
        running = [(*r[:4], min(r[4], time.time() + r[3])) if r[1] in ready else r for r in running]
        for one in [r for r in running if time.time() >= r[4]]:
            child, pipe, path, *_ = one
            killed = time.time()
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            running.remove(one)
            with os.fdopen(pipe) as lines:
                noted = [
                    (int(a), float(b)) for a, b in (line.split() for line in lines.read().splitlines() if " " in line)
                ]
            steps += len(noted)
            if not (path / "run.sqlite").exists():
                unreadable += bool(noted)
                continue
            try:
                stored = set(open_run(path).frame(vital="loss")["step"])
                open_run(path).verify()
            except Exception as error:
                unreadable += 1
                print(f"unreadable after a kill: {error}")
                continue
            missing = [(step, killed - moment) for step, moment in noted if step not in stored]
            worst = max([worst, *(age for _, age in missing)])
            lost += any(age > OWED_S for _, age in missing)
            shutil.rmtree(path)
    assert steps, "no child came to its first step: nothing was tested"
    return {
        "kills": count,
        "steps": steps,
        "lost more than a second": lost,
        "oldest lost (s)": worst,
        "unreadable": unreadable,
    }


def flips(count: int, folder: Path) -> dict[str, float]:
    """Read a run of which one bit was changed, ``count`` times."""
    with RunWriter(folder / "whole", meta={"model": "MLP"}) as writer:
        for step in range(60):
            measurements = [Measurement(step, "gates", f"layer{i}", "density", step + i / 100) for i in range(30)]
            writer.write(measurements, [ArrayMeasurement(step, "gates", "layer0", "channels", np.arange(40.0) + step)])
            if step % 10 == 9:
                writer.finding(Finding("note", "layer0", f"at {step}"))
                writer.flush()
    data = writer.path.read_bytes()
    truth = everything(writer.path)
    chance = random.Random(1)
    seen = {"flipped bits": count, "equal": 0, "told": 0, "silently wrong": 0, "raw errors": 0}
    file = folder / "flipped.sqlite"
    rescued = []
    for number in range(count):
        changed = bytearray(data)
        bit = chance.randrange(8 * len(data))
        changed[bit // 8] ^= 1 << bit % 8
        file.write_bytes(bytes(changed))
        try:
            seen["equal" if everything(file) == truth else "silently wrong"] += 1
        except ValueError:
            seen["told"] += 1
            if number % 50 == 0:
                shutil.rmtree(folder / "saved", ignore_errors=True)
                try:
                    rescued.append(recover(file, folder / "saved").measurements / (60 * 30))
                except ValueError:
                    rescued.append(0.0)
        except Exception as error:
            seen["raw errors"] += 1
            print(f"bit {bit}: {type(error).__name__}: {error}")
    return {**seen, "recovered share of measurements": float(np.mean(rescued)) if rescued else 1.0}


def everything(path: Path) -> tuple[object, ...]:
    """All that can be read of a run."""
    run = open_run(path)
    return (
        str(run.meta),
        run.frame().rows(),
        [(a.step, a.site, a.metric, a.value.tolist()) for a in run.arrays()],
        [f.to_dict() for f in run.findings()],
        run.steps,
        run.series,
        run.summary,
    )


def listing(runs: int, measurements: int, folder: Path) -> dict[str, float]:
    """The list of a folder of many long runs, which are one file under many names."""
    from starlette.testclient import TestClient

    ledger = RunDatabase(folder / "runs" / "0", "refuse")
    keys = [("v", f"s{i}", "m") for i in range(1000)]
    for start in range(0, measurements, 50_000):
        steps = np.repeat(np.arange(start // 1000, start // 1000 + 50), 1000)
        ledger.commit(Pending(columns=[Columns(steps, keys * 50, steps * 0.5)]))
    ledger.close()
    for number in range(1, runs):
        (folder / "runs" / str(number)).mkdir()
        os.link(ledger.path, folder / "runs" / str(number) / "run.sqlite")
    client = TestClient(create_app(folder / "runs", "secret"), base_url="http://127.0.0.1")
    client.cookies.set("netvitals-80", "secret")
    spent = []
    for _ in range(3):  # the quickest: others may use the machine
        begin = time.perf_counter()
        assert client.get("/").status_code == 200
        spent.append(time.perf_counter() - begin)
    return {"runs": runs, "measurements each": measurements, "seconds for the list": min(spent)}


def main() -> int:
    """Run what was asked for and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--flips", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--measurements", type=int, default=5_000_000)
    given = parser.parse_args()
    torch.set_num_threads(1)
    failed = False
    with tempfile.TemporaryDirectory(prefix="netvitals-durability-") as place:
        folder = Path(place)
        if given.kills:
            found = kills(given.kills, folder)
            failed |= bool(found["lost more than a second"] or found["unreadable"])
            print(found, flush=True)
        if given.flips:
            found = flips(given.flips, folder)
            failed |= bool(found["silently wrong"] or found["raw errors"])
            print(found, flush=True)
        if given.runs:
            found = listing(given.runs, given.measurements, folder)
            failed |= found["seconds for the list"] > 1.0
            print(found, flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
