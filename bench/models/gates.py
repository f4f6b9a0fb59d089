"""What measuring gates costs: all gates, margins and predictions of a mini-ResNet, against forward–backward passes.

    python bench/models/gates.py [--rounds 15] [--width 8] [--side 32]

The two take turns on the same batch of 64 images, so that what else the machine does falls on both alike; the median of
each is compared. A forward–backward pass is the model, the cross-entropy and ``backward``, nothing else. Measuring
gives density at two thresholds for every site and channel, percentiles, and at both thresholds the five predictors of
every channel, the predicted density among them.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.nn.functional as F

from netvitals import gates
from netvitals_lab import models

LIMIT = 3.0  # passes


def clocked(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def compare(act: str, width: int, side: int, rounds: int) -> tuple[float, float, float]:
    """Milliseconds of a pass, of measuring and predicting, and of measuring by the ``ratio`` backend."""
    torch.manual_seed(0)
    net = models.build(f"resnet18,width={width}", seed=0, act=act).train()
    x, y = torch.randn(64, 3, side, side), torch.randint(0, 10, (64,))

    def forward_backward() -> None:
        net.zero_grad()
        F.cross_entropy(net(x), y).backward()

    def measure() -> None:
        report = gates.measure(net, (x, y), mode="train")
        for theta in report.thetas:
            report.margins(theta)

    def ratio() -> None:
        gates.measure(net, F.cross_entropy, (x, y), backend="ratio", mode="train")

    jobs = (forward_backward, measure, ratio)
    for job in jobs:
        job()
    times = [[clocked(job) for job in jobs] for _ in range(rounds)]
    a, b, c = (1000 * statistics.median(t[i] for t in times) for i in range(3))
    return a, b, c


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--width", type=int, default=8)
    parser.add_argument("--side", type=int, default=32)
    given = parser.parse_args()
    torch.set_num_threads(1)
    print(
        f"ResNet-18 skeleton of width {given.width}, 64 images of {given.side}×{given.side}; in forward–backward passes"
    )
    for act in ("relu", "gelu", "silu", "mish"):
        one, measured, ratio = compare(act, given.width, given.side, given.rounds)
        verdict = "within" if measured <= LIMIT * one else "ABOVE"
        print(
            f"  {act:5s} gates, margins and predictions {measured / one:.2f} ({verdict} the limit of {LIMIT:g}); "
            f"ratio backend {ratio / one:.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
