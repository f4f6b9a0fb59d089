"""What a chart costs: its time over that of one forward pass, on models of growing depth, measured in turns.

python bench/anatomy/cost.py [--rounds 5]
"""

from __future__ import annotations

import argparse
import os
import statistics
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from torch import nn

from netvitals.anatomy import chart


def encoder(depth: int, width: int) -> nn.Module:
    layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
    return nn.Sequential(nn.Linear(32, width), nn.TransformerEncoder(layer, depth), nn.Linear(width, 32)).eval()


def timed(work: object) -> float:
    begun = time.process_time()
    work()  # type: ignore[operator]
    return time.process_time() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    print("| blocks | width | operations | chart over one forward pass | passes |\n|---|---|---|---|---|")
    for depth, width in ((6, 128), (12, 128), (24, 128), (12, 512)):
        net, x = encoder(depth, width), torch.randn(8, 64, 32)
        found = chart(net, x)
        net(x)
        ratios = [timed(lambda: chart(net, x)) / timed(lambda: net(x)) for _ in range(rounds)]  # noqa: B023
        print(f"| {depth} | {width} | {len(found.operations)} | {statistics.median(ratios):.1f} | {found.passes} |")


if __name__ == "__main__":
    main()
