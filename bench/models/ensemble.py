"""How many times faster 16 seeds train stacked than one after the other, measured side by side.

    python bench/models/ensemble.py [--threads 2] [--seeds 16] [--steps 69] [--rounds 5]

Every round trains the same 16 seeds of a three-layer perceptron on digits in three ways, in turn: by the training loop
seed after seed, by a bare torch loop seed after seed (no history, no schedule, no hooks), and as an ensemble. Networks
are built before the clock starts. Printed is the ratio of the best times of all rounds (what an undisturbed machine
does) and, in brackets, the median of the ratios within a round. Against the training loop the first, over all cases in
the geometric mean, must be 6 or more.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # idle threads give up the core: ratios survive a busy machine

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from netvitals_lab import data, models
from netvitals_lab.training import Ensemble, Recipe, make_optimizer, train

REQUIRED = 6.0
CASES = [
    ("mlp:64-64x2-10", "sgd", 64),
    ("mlp:64-64x2-10", "adam", 64),
    ("mlp:64-64x2-10,norm=batch", "sgd", 64),
    ("mlp:64-64x2-10,norm=batch", "adamw", 128),
    ("mlp:64-64x2-10", "sgd", 128),
]


def clock(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def bare(networks: list[nn.Module], recipe: Recipe, digits: data.Dataset) -> None:
    for seed, model in enumerate(networks):
        optimizer = make_optimizer(model, recipe)
        generator = torch.Generator().manual_seed(seed)
        done = 0
        while done < (recipe.steps or 0):
            for x, y in data.batches(digits, recipe.batch, generator):
                loss = cross_entropy(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                done += 1
                if done == recipe.steps:
                    break


def once(spec: str, recipe: Recipe, digits: data.Dataset, seeds: range) -> dict[str, float]:
    """Seconds of every way, each on networks of its own."""
    first, second = ([models.build(spec, seed=s) for s in seeds] for _ in range(2))
    ensemble = Ensemble(spec, seeds)
    return {
        "loop": clock(lambda: [train(m, digits, recipe) for m in first]),
        "bare": clock(lambda: bare(second, recipe, digits)),
        "ensemble": clock(lambda: ensemble.train(digits, recipe)),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("threads", 2), ("seeds", 16), ("steps", 69), ("rounds", 5)):
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    digits, seeds = data.load("digits"), range(options.seeds)
    print(f"{options.seeds} seeds, {options.threads} threads, {options.rounds} rounds: ratio of best times (median)")
    print(f"{'network':28} {'optimiser':9} {'batch':>5} {'training loop / ensemble':>25} {'bare loop / ensemble':>21}")
    against_loop = []
    for spec, optimizer, batch in CASES:
        recipe = Recipe(steps=options.steps, batch=batch, optimizer=optimizer, lr=1e-3, evaluate_on=0)
        once(spec, Recipe(steps=3, batch=batch, optimizer=optimizer, lr=1e-3, evaluate_on=0), digits, seeds)  # warm up
        rounds = [once(spec, recipe, digits, seeds) for _ in range(options.rounds)]
        best = {way: min(r[way] for r in rounds) for way in rounds[0]}
        middle = {way: statistics.median(r[way] / r["ensemble"] for r in rounds) for way in best}
        shown = [f"{best[way] / best['ensemble']:5.1f} ({middle[way]:.1f})" for way in ("loop", "bare")]
        against_loop.append(best["loop"] / best["ensemble"])
        print(f"{spec:28} {optimizer:9} {batch:5} {shown[0]:>25} {shown[1]:>21}", flush=True)
    mean = statistics.geometric_mean(against_loop)
    print(
        f"geometric mean against the training loop: {mean:.1f} ({'at least' if mean >= REQUIRED else 'BELOW'} "
        f"{REQUIRED:g})"
    )
    return 0 if mean >= REQUIRED else 1


if __name__ == "__main__":
    sys.exit(main())
