"""Curvature side by side with other libraries: same model, batch, probes and threads; accuracy beside time.

    python bench/curvature/run.py [trace] [equal] [estimators] [blocks] [sweep] [spectrum] [errors] [cost] [stream]
                              [resnet] [gpt] [--rounds 7] [--short]

Variants take turns and the median of CPU time is reported, as a ratio to the first of each table, so that what else the
machine does falls on all alike. Peers that are not installed are left out. ``--short`` looks once at everything, with
fewer seeds, in a few minutes. ``resnet`` (11 million parameters, 32 images, 10 nodes, 10 probes) and ``gpt`` (10.8
million, 4 × 128 characters of real text, as many probes as ``--probes`` says) are timed by themselves and are not part
of the default.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from itertools import pairwise
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
import torch.nn.functional as F
from error_bars import cost, errors, stream
from large import gpt, resnet
from peers import distance, equal_error, estimators
from torch import Tensor, nn

from netvitals import curvature
from netvitals.curvature.engine.probes import draw, generator
from netvitals.curvature.engine.products import Products
from netvitals.curvature.engine.tape import recorded

PROBES, STEPS, RUNS = 50, 40, 4
Variant = tuple[str, Callable[[], Any]]


def trained(width: int, samples: int, layers: int = 3) -> tuple[nn.Module, Tensor, Tensor]:
    """A tanh MLP 20 - width… - 5 after thirty steps of Adam."""
    torch.manual_seed(0)
    sizes = [20, *[width] * (layers - 1), 5]
    parts: list[nn.Module] = []
    for a, b in pairwise(sizes):
        parts += [nn.Linear(a, b), nn.Tanh()]
    net = nn.Sequential(*parts[:-1])
    x = torch.randn(samples, 20)
    y = (x @ torch.randn(20, 5)).argmax(1)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    for _ in range(30):
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()
    optimizer.zero_grad()
    return net, x, y


def dense(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    params = dict(net.named_parameters())
    sizes = [p.numel() for p in params.values()]

    def loss(flat: Tensor) -> Tensor:
        tree = {k: v.view_as(p) for (k, p), v in zip(params.items(), flat.split(sizes))}
        return F.cross_entropy(torch.func.functional_call(net, tree, (x,)), y)

    return torch.func.hessian(loss)(torch.cat([p.detach().flatten() for p in params.values()]))


def compare(title: str, variants: list[Variant], rounds: int, notes: dict[str, str] | None = None) -> dict[str, float]:
    """Time variants in turns; print medians as ratios to the first."""
    live: list[Variant] = []
    for name, run in variants:
        try:
            run()
            live.append((name, run))
        except ImportError as missing:
            print(f"  {name}: left out ({missing})")
    times: dict[str, list[float]] = {name: [] for name, _ in live}
    for _ in range(rounds):
        for name, run in live:
            began = time.process_time()
            run()
            times[name].append(time.process_time() - began)
    medians = {name: statistics.median(t) for name, t in times.items()}
    first = medians[live[0][0]]
    print(f"{title} (median of {rounds} turns)")
    for name, median in medians.items():
        spread = (max(times[name]) - min(times[name])) / median
        note = f"   {notes[name]}" if notes and name in notes else ""
        print(f"  {name:<44} {1e3 * median:9.1f} ms   ratio {median / first:5.2f}   spread {100 * spread:3.0f} %{note}")
    return medians


# ------------------------------------------------------------------------------------------------ what is compared


def curvlinops_hessian(net: nn.Module, x: Tensor, y: Tensor) -> Any:
    from curvlinops import HessianLinearOperator

    params = list(net.parameters())
    return HessianLinearOperator(net, nn.CrossEntropyLoss(), params, [(x, y)], check_deterministic=False)


def eigenthings_hessian(net: nn.Module, x: Tensor, y: Tensor) -> Any:
    import hessian_eigenthings as he

    return he.HessianOperator(net, [(x, y)], he.supervised_loss(F.cross_entropy))


def trace(rounds: int) -> None:
    for width, samples in ((32, 256), (256, 512)):
        _trace(rounds, width, samples)


def _trace(rounds: int, width: int, samples: int) -> None:
    net, x, y = trained(width, samples)
    loss = nn.CrossEntropyLoss()

    def ours() -> float:
        return curvature.trace(net, loss, (x, y), probes=PROBES).total

    def by_curvlinops() -> float:
        from curvlinops import hutchinson_trace

        return float(hutchinson_trace(curvlinops_hessian(net, x, y), PROBES))

    def by_curvlinops_diagonal() -> Any:
        from curvlinops import hutchinson_diag

        return hutchinson_diag(curvlinops_hessian(net, x, y), PROBES)

    def by_eigenthings() -> float:
        import hessian_eigenthings as he

        return he.hutchinson(eigenthings_hessian(net, x, y), num_samples=PROBES, seed=0).estimate

    def by_pyhessian() -> float:
        from pyhessian import hessian

        found = hessian(net, loss, data=(x, y), cuda=False).trace(maxIter=PROBES, tol=0.0)
        return sum(found) / len(found)

    notes = {}
    if width <= 64:
        exact = float(dense(net, x, y).trace())
        for name, run in (
            ("netvitals, whole and every tensor", ours),
            ("curvlinops", by_curvlinops),
            ("hessian-eigenthings", by_eigenthings),
            ("pyhessian", by_pyhessian),
        ):
            try:
                notes[name] = f"value {run():.3f}, exact {exact:.3f}"
            except ImportError:
                continue
    compare(
        f"Hessian trace, {PROBES} probes, width {width}, {samples} samples",
        [
            ("curvlinops", by_curvlinops),
            ("netvitals, whole and every tensor", ours),
            ("curvlinops, diagonal split by tensor", by_curvlinops_diagonal),
            ("hessian-eigenthings", by_eigenthings),
            ("pyhessian", by_pyhessian),
        ],
        rounds,
        notes,
    )


def blocks(rounds: int, probes: int = 12) -> None:
    """All blocks of an 8-node MLP with 72 thousand parameters."""
    net, x, y = trained(107, 512, layers=8)
    loss = nn.CrossEntropyLoss()
    count = sum(p.numel() for p in net.parameters())

    def ours() -> Any:
        return curvature.between_layers(net, loss, (x, y), probes=probes, space="parameter")

    def per_pair() -> list[list[float]]:
        from curvlinops import SubmatrixLinearOperator

        h = curvlinops_hessian(net, x, y)
        ends = torch.tensor([p.numel() for p in net.parameters()]).cumsum(0).tolist()
        starts = [0, *ends]
        layers = [list(range(starts[i], ends[i + 1])) for i in range(0, 16, 2)]

        def norm(i: list[int], j: list[int]) -> float:
            signs = torch.randint(0, 2, (len(j), probes)) * 2.0 - 1
            return float((SubmatrixLinearOperator(h, i, j) @ signs).square().sum() / probes) ** 0.5

        return [[norm(i, j) for j in layers] for i in layers]

    times = compare(
        f"all blocks of 8 nodes, {count} parameters, {probes} probes",
        [("netvitals, one sweep: H, GN and T", ours)],
        rounds,
    )
    try:
        began = time.process_time()
        theirs = per_pair()
        spent = time.process_time() - began
    except ImportError as missing:
        print(f"  curvlinops: left out ({missing})")
        return
    print(
        f"  {'curvlinops, submatrix per pair: H':<44} {1e3 * spent:9.1f} ms   ratio "
        f"{spent / times['netvitals, one sweep: H, GN and T']:5.2f}   (one turn)"
    )
    small, sx, sy = trained(12, 128, layers=8)
    exact = curvature.between_layers(small, loss, (sx, sy), method="exact", space="parameter").resonance
    found = curvature.between_layers(small, loss, (sx, sy), probes=probes, space="parameter").resonance
    worst = float(abs(found / exact - 1).max())
    print(f"  accuracy at width 12: largest relative error of a block {100 * worst:.1f} % at {probes} probes")
    del theirs


def sweep(rounds: int, probes: int = 30) -> None:
    """One sweep with GN, T and all metrics against N·m plain products with H on the same graph."""
    net, x, y = trained(107, 512, layers=8)
    loss = nn.CrossEntropyLoss()
    for space in ("activation", "parameter"):

        def ours(space: Any = space) -> Any:
            return curvature.between_layers(net, loss, (x, y), probes=probes, space=space)

        def plain(space: Any = space) -> None:
            with recorded(net, loss, (x, y), space=space) as tape:
                products = Products(tape, split=False, roots="never")
                source = generator(0)
                for _ in tape.nodes:
                    products.whole(draw(probes, products.flat, source))

        compare(
            f"sweep over all nodes in {space} space, {probes} probes a node",
            [("N·m plain batched products with H", plain), ("netvitals, one sweep: H, GN, T, all metrics", ours)],
            rounds,
        )


def spectrum(rounds: int) -> None:
    for width, samples in ((32, 256), (256, 512)):
        _spectrum(rounds, width, samples)


def _spectrum(rounds: int, width: int, samples: int) -> None:
    net, x, y = trained(width, samples)
    loss = nn.CrossEntropyLoss()

    def ours(runs: int = RUNS // 2, seed: int = 0) -> Any:
        return curvature.spectral_density(net, loss, (x, y), steps=STEPS, runs=runs, seed=seed)

    def by_eigenthings(seed: int = 0) -> Any:
        import hessian_eigenthings as he

        hessian = eigenthings_hessian(net, x, y)
        return he.spectral_density(hessian, num_runs=RUNS, lanczos_steps=STEPS, seed=100 * seed)

    def top() -> Any:
        return curvature.top_eigenvalues(net, loss, (x, y), k=5)

    def top_by_eigenthings() -> Any:
        import hessian_eigenthings as he

        return he.lanczos(eigenthings_hessian(net, x, y), k=5, which="LA", seed=0, max_iter=STEPS, reorthogonalize=True)

    half, whole = f"netvitals, {RUNS // 2} runs", f"netvitals, {RUNS} runs"
    notes = {}
    if width <= 64:  # the distance of two distributions of eigenvalues
        exact = torch.linalg.eigvalsh(dense(net, x, y)).numpy()
        seeds = range(20 if rounds > 1 else 4)
        error = lambda found: (
            f"distance to the eigenvalues {np.mean(found):.1e} ± {np.std(found) / len(found) ** 0.5:.0e}"
        )
        for name, runs in ((half, RUNS // 2), (whole, RUNS)):
            made = [ours(runs, seed) for seed in seeds]
            notes[name] = error([distance(exact, one.nodes, one.weights) for one in made])
        with contextlib.suppress(ImportError):
            made = [by_eigenthings(seed) for seed in seeds]
            notes["hessian-eigenthings"] = error(
                [distance(exact, one.raw_eigenvalues.numpy(), one.raw_weights.numpy()) for one in made]
            )
    compare(
        f"spectral density, {STEPS} steps, {RUNS} runs of the peer, width {width}",
        [("hessian-eigenthings", by_eigenthings), (half, ours), (whole, lambda: ours(RUNS))],
        rounds,
        notes,
    )
    notes = {}
    if width <= 64:
        exact = torch.linalg.eigvalsh(dense(net, x, y))[-5:].flip(0)
        worst = float((torch.tensor(top().values) - exact).abs().max())
        notes["netvitals"] = f"largest error {worst:.1e}"
        try:
            theirs = torch.as_tensor(top_by_eigenthings().eigenvalues).sort(descending=True).values[:5]
            notes["hessian-eigenthings"] = f"largest error {float((theirs - exact).abs().max()):.1e}"
        except ImportError:
            pass
    compare(
        f"five largest eigenvalues, width {width}",
        [("hessian-eigenthings", top_by_eigenthings), ("netvitals", top)],
        rounds,
        notes,
    )


TASKS: dict[str, Callable[[int], None]] = {
    "trace": trace,
    "equal": equal_error,
    "estimators": estimators,
    "blocks": blocks,
    "sweep": sweep,
    "spectrum": spectrum,
    "errors": errors,
    "cost": cost,
    "stream": stream,
    "resnet": resnet,
    "gpt": gpt,
}
ALONE = ("resnet", "gpt")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", help=f"some of {', '.join(TASKS)}; default all but {' and '.join(ALONE)}")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--probes", type=int, default=8, help="of gpt")
    parser.add_argument("--short", action="store_true", help="one turn, few seeds")
    options = parser.parse_args()
    unknown = [t for t in options.tasks if t not in TASKS]
    if unknown:
        sys.exit(f"there is no task {unknown[0]!r}; tasks are {', '.join(TASKS)}")
    warnings.filterwarnings("ignore")
    torch.set_num_threads(options.threads)
    rounds = 1 if options.short else options.rounds
    for name in options.tasks or [t for t in TASKS if t not in ALONE]:
        began = time.perf_counter()
        TASKS[name](options.probes if name == "gpt" else rounds)
        print(f"  ({name}: {time.perf_counter() - began:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
