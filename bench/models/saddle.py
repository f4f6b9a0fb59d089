"""Escape times of many chains at once against one scipy solve after the other, measured side by side.

    python bench/models/saddle.py [--chains 1000] [--loop 40] [--rounds 5]

Every round integrates the same random initial conditions in one call of ``saddle.reduced_flow`` and, for the first
``--loop`` of them, by ``scipy.integrate.solve_ivp`` (LSODA, numpy right-hand side, terminal event), the way a single
chain is solved. Both run at the same relative tolerance and must agree to 1e-6. Printed is the ratio of times per
chain, best over rounds, required to be at least 20; and the time of experiment E2, required to stay below 15 s.
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np
import torch

from netvitals import saddle
from netvitals.saddle.laws.chain import ScalarChain
from netvitals_lab.papers.saddle_escape import scaling

REQUIRED, E2_SECONDS = 20.0, 15.0
RTOL, THRESHOLD, WIDTH = 1e-9, 0.3, 64


def loop(starts: np.ndarray) -> np.ndarray:
    """One scipy solve per chain with a plain numpy right-hand side."""
    from scipy.integrate import solve_ivp

    chain = ScalarChain("tanh", WIDTH)
    g, w, y = (a.numpy() for a in (chain.g, chain.w, chain.teacher))
    root = np.sqrt(WIDTH)

    def velocity(_: float, x: np.ndarray) -> np.ndarray:
        u, slopes = [g], []
        c = x[0] * g
        for scale in x[1:]:
            h = np.tanh(c)
            u.append(h)
            slopes.append(1 - h * h)
            c = scale * h
        back = -(root * c - y) * w * root
        out = np.empty_like(x)
        for ell in range(len(x) - 1, -1, -1):
            out[ell] = (back * u[ell]).sum()
            if ell:
                back = back * x[ell] * slopes[ell - 1]
        return out

    def hit(_: float, x: np.ndarray) -> float:
        return float(x[0]) - THRESHOLD

    hit.terminal = True  # type: ignore[attr-defined]
    return np.array(
        [
            solve_ivp(
                velocity, (0, 1e8), x, method="LSODA", rtol=RTOL, atol=1e-4 * RTOL * x.min(), events=hit
            ).t_events[0][0]
            for x in starts
        ]
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chains", type=int, default=1000)
    parser.add_argument("--loop", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    starts = np.exp(np.random.default_rng(0).uniform(np.log(0.01), np.log(0.15), (options.chains, 4)))
    together, single = [], []
    for _ in range(options.rounds):
        begin = time.perf_counter()
        flow = saddle.reduced_flow(starts, "tanh", WIDTH, threshold=THRESHOLD, rtol=RTOL, keep=False)
        together.append((time.perf_counter() - begin) / options.chains)
        begin = time.perf_counter()
        times = loop(starts[: options.loop])
        single.append((time.perf_counter() - begin) / options.loop)
        gap = float(np.abs(np.asarray(flow.escape_t)[: options.loop] / times - 1).max())
        if gap > 1e-6:
            print(f"the two disagree by {gap:.1e}")
            return 1
    ratio = min(single) / min(together)
    print(
        f"{options.chains} chains in one call: {ratio:.1f} times faster per chain than a loop of scipy solves "
        f"(required {REQUIRED:g}; agreement {gap:.1e})"
    )
    begin = time.perf_counter()
    for config in scaling.trials(scaling.SCALES["paper"]):
        scaling.trial(config)
    seconds = time.perf_counter() - begin
    print(f"experiment E2, all curves, one thread: {seconds:.1f} s (required below {E2_SECONDS:g})")
    return int(ratio < REQUIRED or seconds > E2_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
