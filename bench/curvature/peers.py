"""The trace at equal error, beside other libraries and other estimators: `bench/curvature/run.py equal estimators`."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from netvitals import curvature

Estimator = Callable[[int], float]  # of a seed


def equal_error(rounds: int) -> None:
    """Time to the same error of the trace: time × (error / ours)², the error a root mean square over seeds.

    Runs take turns. What is exact is the dense Hessian's trace where that fits, else ours with 4000 probes.
    """
    for width, samples in ((32, 256), (256, 512)):
        _equal(width, samples, 6 if rounds == 1 else 16)


def _equal(width: int, samples: int, seeds: int) -> None:
    from curvature import PROBES, curvlinops_hessian, dense, eigenthings_hessian, trained

    net, x, y = trained(width, samples)
    loss = nn.CrossEntropyLoss()
    many = lambda: curvature.trace(net, loss, (x, y), probes=2000, seed=10**6).total
    exact = float(dense(net, x, y).trace()) if width <= 64 else many()

    def ours(seed: int) -> float:
        return curvature.trace(net, loss, (x, y), probes=PROBES, seed=seed).total

    def by_curvlinops(seed: int) -> float:
        from curvlinops import hutchinson_trace

        torch.manual_seed(seed)
        return float(hutchinson_trace(curvlinops_hessian(net, x, y), PROBES))

    def by_eigenthings(seed: int) -> float:
        import hessian_eigenthings as he

        return he.hutchinson(eigenthings_hessian(net, x, y), num_samples=PROBES, seed=seed).estimate

    live: dict[str, Estimator] = {}
    known = {"netvitals": ours, "curvlinops": by_curvlinops, "hessian-eigenthings": by_eigenthings}
    for name, run in known.items():
        try:
            run(0)
            live[name] = run
        except ImportError as missing:
            print(f"  {name}: left out ({missing})")
    spent: dict[str, list[float]] = {name: [] for name in live}
    found: dict[str, list[float]] = {name: [] for name in live}
    for seed in range(seeds):
        for name, run in live.items():
            began = time.process_time()
            found[name].append(run(seed))
            spent[name].append(time.process_time() - began)
    print(f"trace at equal error, {PROBES} probes, width {width}, exact {exact:.4f}, {seeds} seeds")
    needed = {}
    for name in live:
        error = statistics.fmean((v - exact) ** 2 for v in found[name]) ** 0.5
        typical = statistics.median(spent[name])
        needed[name] = typical * error**2
        print(
            f"  {name:<24} {1e3 * typical:8.1f} ms, error {error:.4f}: ours takes "
            f"{needed['netvitals'] / needed[name]:.4f} of its time to equal error",
            flush=True,
        )


def estimators(rounds: int) -> None:
    """Errors of plain probes, Hutch++ and XTrace at equal products on the dense Hessian, and of probes by example."""
    from curvature import dense, trained

    net, x, y = trained(32, 256)
    h = dense(net.double(), x.double(), y)
    exact, seeds = float(h.trace()), 10 if rounds == 1 else 40
    print(f"root mean square error of the trace {exact:.2f} over {seeds} seeds, by products")
    off = lambda run: statistics.fmean((run(s) - exact) ** 2 for s in range(seeds)) ** 0.5
    for m in (12, 24, 48, 96):
        ours: Any = lambda s, m=m: curvature.trace(net, "ce", (x.double(), y), probes=m, seed=s).total
        row = {
            "plain": off(lambda s, m=m: _plain(h, m, s)),
            "Hutch++": off(lambda s, m=m: _hutch(h, m, s)),
            "XTrace": off(lambda s, m=m: _xtrace(h, m, s)),
            "by example": off(ours),
        }
        print(f"  {m:>3}  " + "  ".join(f"{name} {value:.3f}" for name, value in row.items()), flush=True)


def _signs(h: Tensor, m: int, source: torch.Generator) -> Tensor:
    return torch.randint(0, 2, (len(h), m), generator=source).to(h) * 2 - 1


def _plain(h: Tensor, m: int, seed: int) -> float:
    z = _signs(h, m, torch.Generator().manual_seed(seed))
    return float((z * (h @ z)).sum() / m)


def _hutch(h: Tensor, m: int, seed: int) -> float:
    source, third = torch.Generator().manual_seed(seed), m // 3
    q = torch.linalg.qr(h @ _signs(h, third, source))[0]
    z = _signs(h, m - 2 * third, source)
    z = z - q @ (q.mT @ z)
    return float((q.mT @ h @ q).trace() + (z * (h @ z)).sum() / (m - 2 * third))


def _xtrace(h: Tensor, m: int, seed: int) -> float:
    """The exchangeable estimator of Epperly, Tropp and Webber (2024), with their rescaling of what is left."""
    n, k = len(h), m // 2
    omega = torch.randn(n, k, generator=torch.Generator().manual_seed(seed), dtype=h.dtype)
    omega = n**0.5 * omega / omega.norm(dim=0)
    q, r = torch.linalg.qr(h @ omega)
    s = torch.linalg.inv(r.mT)
    s = s / s.norm(dim=0)  # column i: what of the basis only the i-th vector brought in
    image = h @ q
    core, w = q.mT @ image, q.mT @ omega
    total = 0.0
    for i in range(k):
        inside = w[:, i] - s[:, i] * (s[:, i] @ w[:, i])
        rest = omega[:, i] - q @ inside
        scale = (n - k + 1) / float(rest @ rest)
        total += float(core.trace() - s[:, i] @ core @ s[:, i]) + scale * float(rest @ (h @ rest))
    return total / k


def distance(exact: np.ndarray, nodes: np.ndarray, weights: np.ndarray) -> float:
    """Between the distribution of the eigenvalues and that of the nodes of several runs: the area between the two."""
    points = np.concatenate([exact, nodes.ravel()])
    shares = np.concatenate([np.full(len(exact), 1 / len(exact)), -weights.ravel() / len(weights)])
    order = points.argsort()
    return float(np.abs(shares[order].cumsum()[:-1] * np.diff(points[order])).sum())
