"""Adam, SGD, Algorithm 2 and Adam on the balanced network, paired by seed, each at the rate that validation data chose.

    python bench/models/optimisers.py [--seeds 5] [--networks mlp,gpt] [--out bench/results/optimisers.json]

A row is an optimiser on a network: its test loss, the difference to Adam on the same seeds with its standard error, and
the largest change of the test loss when training begins from the same function at another place of its orbit. Test
examples have no say in the rate. Rates of Algorithm 2 are lower, because its step is in units of a block's norm; SGD's
are higher. Nothing was tuned on these seeds.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path

import torch

from netvitals_lab.papers.dead_directions import _race

STEPS = {"mlp": 300, "gpt": 60}
DATA = {"mlp": "digits", "gpt": "text"}
RATES = {
    "adam": (1e-3, 3e-3, 1e-2, 3e-2),
    "ddcadam": (1e-3, 3e-3, 1e-2, 3e-2),
    "ddcadam-printed": (3e-4, 1e-3, 3e-3, 1e-2, 3e-2),
    "sgd": (1e-2, 3e-2, 1e-1, 3e-1, 1.0),
    "ddc-sgd": (3e-2, 1e-1, 3e-1, 1.0, 3.0),
}
NAMES = {
    "adam": "Adam",
    "ddcadam": "BalancedAdam",
    "ddcadam-printed": "DDCAdam (Algorithm 2)",
    "sgd": "SGD",
    "ddc-sgd": "DDC around SGD (Corollary 79)",
}
FIRST_SEED = 300  # other experiments have smaller ones


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--networks", default="mlp,gpt")
    parser.add_argument("--out", default="")
    args = parser.parse_args()
    torch.set_num_threads(1)
    table = []
    for network in args.networks.split(","):
        plain: list[float] = []
        for name, rates in RATES.items():
            runs = [
                _race.race(network, name, FIRST_SEED + s, rates, 1.0, STEPS[network], DATA[network])
                for s in range(args.seeds)
            ]
            tests = [chosen["test"] for chosen, _ in runs]
            moved = max(
                abs(turned["test"] - chosen["test"]) / chosen["test"] if turned["test"] else float("inf")
                for chosen, turned in runs
            )
            plain = plain or tests
            gaps = [t - p for t, p in zip(tests, plain)]
            error = statistics.stdev(gaps) / len(gaps) ** 0.5 if len(gaps) > 1 else float("nan")
            row = {
                "network": network,
                "optimiser": NAMES[name],
                "test": statistics.fmean(tests),
                "to Adam": statistics.fmean(gaps),
                "standard error": error,
                "turned start": moved,
                "rates": sorted({chosen["lr"] for chosen, _ in runs}),
                "gauges": runs[0][0]["gauges"],
            }
            table.append(row)
            print(
                f"{network:4s} {row['optimiser']:30s} {row['test']:.4f}  {row['to Adam']:+.4f} ± {error:.4f}  "
                f"turned start {moved:.2g}  rates {row['rates']}",
                flush=True,
            )
    if args.out:
        Path(args.out).write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
