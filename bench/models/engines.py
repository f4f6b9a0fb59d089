"""How much two cores give: throughput of the local engine with two workers over one, on eight equal trials.

    python bench/models/engines.py [--seconds 3] [--rounds 3] [--ray]

Every round runs the same eight trials with one worker and with two, in turn, workers already awake; printed is the
median over rounds of the ratio of times within a round, required to be at least 1.8. A trial multiplies small matrices
on one thread for about as long as asked. With ``--ray`` the same is measured on a local Ray.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import torch

from netvitals_lab.engine.workers import TrialTask, make_engine

REQUIRED = 1.8
TRIALS = 8


def trial(config: dict[str, Any]) -> list[dict[str, Any]]:
    """A fixed amount of work, the same on every call."""
    x = torch.randn(96, 96, generator=torch.Generator().manual_seed(config["seed"]))
    for _ in range(config["products"]):
        x = torch.tanh(x @ x.T / 96)
    return [{"sum": float(x.sum())}]


def calibrate(seconds: float) -> int:
    """How many products fill about that many seconds on one thread here."""
    torch.set_num_threads(1)
    trial({"seed": 0, "products": 100})
    start = time.perf_counter()
    trial({"seed": 0, "products": 2000})
    return max(1, int(2000 * seconds / (time.perf_counter() - start)))


def clock(engine: Any, products: int) -> float:
    """Wall time of eight trials on workers that are awake."""
    tasks = [TrialTask(str(i), trial, {"seed": i, "products": products}) for i in range(TRIALS)]
    start, done = time.perf_counter(), 0
    while done < TRIALS:
        while tasks and engine.free > 0:
            engine.submit(tasks.pop())
        for outcome in engine.poll(1.0):
            if not outcome.ok:
                raise SystemExit(outcome.error)
            done += 1
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of a trial, about")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ray", action="store_true", help="measure Ray too")
    options = parser.parse_args()
    products = calibrate(options.seconds)
    for name in ("local", "ray") if options.ray else ("local",):
        ratios = []
        for _ in range(options.rounds):
            times = {}
            for jobs in (1, 2):
                engine = make_engine(name, jobs=jobs)
                try:
                    clock(engine, 1)
                    times[jobs] = clock(engine, products)
                finally:
                    engine.close()
            ratios.append(times[1] / times[2])
        ratio = statistics.median(ratios)
        verdict = "" if name != "local" else f", required {REQUIRED}: {'met' if ratio >= REQUIRED else 'NOT met'}"
        print(
            f"{name}: {TRIALS} equal trials, two workers over one: {ratio:.2f} times the throughput "
            f"(rounds {', '.join(f'{r:.2f}' for r in ratios)}){verdict}"
        )


if __name__ == "__main__":
    main()
