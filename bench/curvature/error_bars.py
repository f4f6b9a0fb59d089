"""Whether curvature's numbers mean what they say: z-scores of its error bars, its stated cost, what streaming adds.

Run by ``bench/curvature/run.py errors cost stream``. A z-score is (estimate − exact) / standard error; over seeds it
should have mean 0 and spread 1.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from netvitals import curvature

SEEDS = 40
ROUNDING = 1e-9  # relative errors below it are of arithmetic: such a block was not estimated, it is known
METRICS = ("resonance", "tensor", "coupling", "gn_gap", "stable_rank")


def slow_spectrum(width: int = 128, depth: int = 3, seed: int = 1) -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    """A GELU net in float64 whose blocks have slowly falling singular values."""
    torch.manual_seed(seed)
    parts = [part for _ in range(depth) for part in (nn.Linear(width, width), nn.GELU())]
    net = nn.Sequential(*parts, nn.Linear(width, 10)).double()
    return net, (torch.randn(16, width).double(), torch.randint(0, 10, (16,)))


def errors(rounds: int) -> None:
    """z-scores of every reported standard error over 40 seeds, at 10, 30 and 100 probes; one turn is the short form.

    The network is one that no choice of the estimators was made on.
    """
    seeds, width = (14, 64) if rounds == 1 else (SEEDS, 128)
    net, batch = slow_spectrum(width, seed=1717)
    exact = curvature.between_layers(net, F.cross_entropy, batch, method="exact")
    upper = np.triu_indices(len(exact.nodes))
    print(f"z-scores over {seeds} seeds, width {width}, mean ± spread (refine=8; stable ranks without marked bounds)")
    print(f"  {'probes':>6}" + "".join(f"{m:>18}" for m in (*METRICS, "trace")) + f"{'bounds':>10}")
    true = trace_of(net, batch)
    for probes in (10, 30) if rounds == 1 else (10, 30, 100):
        runs = [
            curvature.between_layers(net, F.cross_entropy, batch, probes=probes, seed=s, refine=8) for s in range(seeds)
        ]
        cells = [scores(runs, exact, metric, upper) for metric in METRICS]
        traces = [curvature.trace(net, F.cross_entropy, batch, probes=probes, seed=s) for s in range(seeds)]
        cells.append(np.array([(t.total - true) / t.total_stderr for t in traces]))
        bounds = np.mean([r.stable_rank_is_bound.mean() for r in runs])
        row = "".join(f"{f'{z.mean():+.2f} ± {z.std():.2f}':>18}" for z in cells)
        print(f"  {probes:>6}{row}{100 * bounds:>8.0f} %", flush=True)


def scores(runs: list[Any], exact: Any, metric: str, upper: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """z-scores of one metric over pairs and seeds, where there is something to estimate."""
    keep = exact.tensor[upper] > 1e-9 if metric in ("tensor", "gn_gap") else np.ones(len(upper[0]), bool)
    keep &= (upper[0] != upper[1]) | (metric != "coupling")
    out = []
    for found in runs:
        value, error = getattr(found, metric), getattr(found, f"{metric}_stderr")
        z = (value - getattr(exact, metric)) / np.maximum(error, 1e-300)
        known = keep & (error > ROUNDING * np.abs(value))[upper]
        if metric == "stable_rank":
            known &= ~found.stable_rank_is_bound[upper]
        out.append(z[upper][known])
    return np.concatenate(out)


def trace_of(net: nn.Module, batch: tuple[Tensor, Tensor]) -> float:
    """The trace, with a fourteenth of the error of a hundred probes."""
    return curvature.trace(net, F.cross_entropy, batch, probes=20000, seed=10**6).total


def cost(rounds: int) -> None:
    """Stated gradient-equivalents beside measured ones, by time."""
    net, _ = slow_spectrum()
    net, x, y = net.float(), torch.randn(512, 128), torch.randint(0, 10, (512,))
    gradient = timed(lambda: torch.autograd.grad(F.cross_entropy(net(x), y), list(net.parameters())), 20 * rounds)
    runs: dict[str, Callable[[], Any]] = {
        "interlayer, activation space": lambda: curvature.between_layers(net, F.cross_entropy, (x, y)),
        "interlayer, parameter space": lambda: curvature.between_layers(
            net, F.cross_entropy, (x, y), space="parameter"
        ),
        "trace": lambda: curvature.trace(net, F.cross_entropy, (x, y)),
        "five largest eigenvalues": lambda: curvature.top_eigenvalues(net, F.cross_entropy, (x, y)),
    }
    print("cost in gradient-equivalents: stated, and measured by time")
    for name, run in runs.items():
        print(f"  {name:<32} {run().cost:8.0f} {timed(run, rounds) / gradient:8.0f}")


def stream(rounds: int) -> None:
    """The same examples as one batch and as eight: with graphs that are kept between passes, and without."""
    for width in (64,) if rounds == 1 else (64, 256):
        net, _ = slow_spectrum(width)
        x, y = torch.randn(2048, width).double(), torch.randint(0, 10, (2048,))
        parts = list(zip(x.split(256), y.split(256)))
        small = {"memory": 1 << 29 if width > 64 else 1 << 25}  # too little to keep a graph: each pass records anew
        runs: dict[str, Callable[..., Any]] = {
            "trace, 50 probes": lambda b, net=net, **more: curvature.trace(net, F.cross_entropy, b, **more),
            "largest eigenvalue": lambda b, net=net, **more: curvature.top_eigenvalues(
                net, F.cross_entropy, b, k=1, **more
            ),
            "between layers": lambda b, net=net, **more: curvature.between_layers(
                net, F.cross_entropy, b, space="parameter", probes=12, **more
            ),
        }
        for name, run in runs.items():
            ways = [partial(run, (x, y)), partial(run, parts), partial(run, parts, **small)]
            many, bare = ratios(ways, rounds)
            words = f"{many} of the time of one of 2048, {bare} if no graph is kept"
            print(f"{name}, width {width}: 8 batches of 256 take {words}", flush=True)


def ratios(ways: Sequence[Callable[[], Any]], rounds: int) -> list[str]:
    """CPU time over that of the first, which is taken before and after each: the median, and its standard error."""
    for run in ways:
        run()
    found: list[list[float]] = [[] for _ in ways[1:]]
    before = spent(ways[0])
    for _ in range(max(rounds, 1)):
        for k, run in enumerate(ways[1:]):
            mine, after = spent(run), spent(ways[0])
            found[k].append(mine / (0.5 * (before + after)))
            before = after
    error = lambda all_: 1.25 * statistics.stdev(all_) / len(all_) ** 0.5 if len(all_) > 1 else math.nan
    return [f"{statistics.median(all_):.2f} ± {error(all_):.2f}" for all_ in found]


def spent(run: Callable[[], Any]) -> float:
    """CPU time."""
    began = time.process_time()
    run()
    return time.process_time() - began


def timed(run: Callable[[], Any], rounds: int) -> float:
    """Median of CPU time."""
    run()
    return statistics.median(spent(run) for _ in range(max(rounds, 1)))
