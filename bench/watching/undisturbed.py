"""Thousands of random models, each trained with and without every measurement: how many trainings were changed?

python bench/watching/undisturbed.py --models 5000
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from random_training import WAYS, disturbed


def main() -> int:
    """Run, and print what was changed; the exit code says whether anything was."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=5000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--ways", type=int, default=4, help="measurements per model, taken in turn")
    given = parser.parse_args()
    torch.set_num_threads(1)
    begin, compared, odd = time.monotonic(), 0, 0
    changed: Counter[str] = Counter()
    for seed in range(given.first, given.first + given.models):
        ways = [WAYS[(seed * given.ways + i) % len(WAYS)] for i in range(given.ways)]
        found = disturbed(seed, ways)
        if found is None:
            odd += 1
            continue
        compared += len(ways)
        for way, parts, where in found:
            changed[way] += 1
            print(f"seed {seed}: {way} changed a model of {', '.join(parts)}: {where}", flush=True)
    print(f"{given.models} models, {odd} did not repeat themselves, {compared} trainings compared")
    print(f"{sum(changed.values())} changed {dict(changed) or ''} in {time.monotonic() - begin:.0f} s")
    return int(bool(changed))


if __name__ == "__main__":
    sys.exit(main())
