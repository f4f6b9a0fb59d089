"""The transition grid of the reconstruction problem as one tensor program, against loops over stiffness and seeds.

    python bench/models/reconstruction.py [--threads 2] [--size 64] [--seeds 20] [--iterations 200] [--sample 8]
    [--rounds 3]

The grid is 14 stiffness values × 20 seeds, Adam, Sobel kernel, 64 × 64 pixels, 200 iterations, in double precision. Two
loops are timed beside it, in turn: torch as one writes it first (conv2d, autograd, torch.optim.Adam, clamp), and this
project's own solver called once per problem. Both run on every (280 / sample)-th problem of the grid only, and their
time is multiplied by 280 / sample. The grid has to take less than 60 s, and a tenth of the first loop at most. Ends
with 1 if it does not, or if the loops and the grid disagree.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import conv2d

from netvitals_lab.papers.gate_density import reconstruction as rec

ALPHAS = [1, 1.5, 2, 3, 5, 7, 10, 13, 16, 20, 25, 30, 40, 60.0]
LIMIT, REQUIRED = 60.0, 10.0


def clock(run: Callable[[], Tensor]) -> tuple[float, Tensor]:
    start = time.perf_counter()
    out = run()
    return time.perf_counter() - start, out


def plain(problem: rec.Reconstruction, x0: Tensor, chosen: range, iterations: int) -> Tensor:
    weight, found = problem.kernels[None, None], []
    for i in chosen:
        alpha = float(problem.alpha[i])
        x = x0[i].clone()[None, None].requires_grad_()
        optimizer = torch.optim.Adam([x], lr=0.03)
        for _ in range(iterations):
            optimizer.zero_grad()
            h = torch.sigmoid(alpha * (conv2d(x, weight, padding=1) - problem.c))
            (h[0, 0] - problem.y).square().sum().backward()
            optimizer.step()
            with torch.no_grad():
                x.clamp_(0, 1)
        found.append(x.detach()[0, 0])
    return torch.stack(found)


def one_by_one(problem: rec.Reconstruction, x0: Tensor, chosen: range, iterations: int) -> Tensor:
    return torch.cat([rec.solve(problem.part(slice(i, i + 1)), x0[i : i + 1], iterations=iterations).x for i in chosen])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("threads", 2), ("size", 64), ("seeds", 20), ("iterations", 200), ("sample", 8), ("rounds", 3)):
        parser.add_argument(f"--{name}", type=int, default=value)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    problem, keys = rec.grid(ALPHAS, given.seeds, [rec.kernel("sobel_x")], rec.target("checkerboard", given.size))
    x0 = problem.start(torch.tensor([seed for _, _, seed in keys]))
    chosen = range(0, problem.batch, max(1, problem.batch // given.sample))
    more = problem.batch / len(chosen)
    ways: dict[str, Callable[[], Tensor]] = {
        "grid": lambda: rec.solve(problem, x0, iterations=given.iterations).x,
        "plain": lambda: plain(problem, x0, chosen, given.iterations),
        "one by one": lambda: one_by_one(problem, x0, chosen, given.iterations),
    }
    rec.solve(problem, x0, iterations=2)  # warm up
    best: dict[str, float] = {}
    for _ in range(given.rounds):
        found = {}
        for name, way in ways.items():
            torch.set_num_threads(given.threads if name == "grid" else 1)  # one picture is too small to share out
            seconds, found[name] = clock(way)
            best[name] = min(best.get(name, seconds), seconds)
    iou = float(problem.iou(problem.forward(found["grid"])).mean())
    gap = max(float((found[n] - found["grid"][list(chosen)]).abs().mean()) for n in ("plain", "one by one"))
    torch.set_num_threads(given.threads)
    ratio, own = best["plain"] * more / best["grid"], best["one by one"] * more / best["grid"]
    print(
        f"{problem.batch} problems of {given.size} × {given.size}, {given.iterations} iterations, {given.threads} "
        f"threads, best of {given.rounds} rounds; loops on {len(chosen)} problems with one thread, times {more:g}"
    )
    print(f"grid as one program       {best['grid']:.1f} s (limit {LIMIT:g} s); mean IoU {iou:.4f}")
    print(f"against the plain loop    {ratio:.1f} times faster (at least {REQUIRED:g})")
    print(f"against one call each     {own:.1f} times faster")
    print(f"largest mean difference of a pixel between the three: {gap:.1g}")
    return 0 if best["grid"] < LIMIT and ratio >= REQUIRED and gap < 0.05 else 1


if __name__ == "__main__":
    sys.exit(main())
