"""The learning coefficient against exact answers, and its effective draws a second beside devinterp 1.3.2.

    python bench/models/learning_coefficient.py table [--seeds 10] [--only PATTERN] [--out FILE]
    python bench/models/learning_coefficient.py errors [--seeds 20]
    python bench/models/learning_coefficient.py speed [--rounds 5]
    python bench/models/learning_coefficient.py minibatches
    python bench/models/learning_coefficient.py readout
    python bench/models/learning_coefficient.py show

``table`` runs every posterior of ``singular.networks.posteriors`` with the settings a user gets and asks whether the
error lies within three standard errors, or the result says itself that it is not to be believed. It goes on where it
was interrupted. ``errors`` asks whether error over standard error has variance one on targets whose chains mix fast and
slowly, among them tanh networks of three units and linear ones of three layers (about 2 seconds a run on one core).
``speed`` races both libraries on posteriors whose answer is known, at equal nβ, γ and chains, devinterp at the best of
several learning rates; CPU time, one thread. ``minibatches`` runs the posteriors that have 512 examples with batches of
64, in groups of four chains, and devinterp on them. ``readout`` asks ``singular.readout`` for λ of every posterior with
a pull of 1 and no noise, at the n that has its nβ.

devinterp is installed apart: ``pip install --no-deps devinterp==1.3.2`` into an environment of its own, whose packages
PYTHONPATH names.
"""

from __future__ import annotations

import argparse
import copy
import json
import logging
import math
import os
import re
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from scipy.optimize import brentq
from torch.utils.data import DataLoader, TensorDataset

from netvitals import singular
from netvitals.anatomy import Replicas
from netvitals.singular.networks.posteriors import Posterior, catalogue, half_square, of_regular, white
from netvitals.singular.sampling.chains import effective_draws, examine
from netvitals.singular.sampling.coefficient import LLC
from netvitals.singular.sampling.langevin import Langevin, cooled
from netvitals.singular.sampling.noise import NoiseSource
from netvitals.singular.sampling.observables import names, observer

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
torch.set_num_threads(1)
RESULTS = Path(__file__).parents[1] / "results" / "learning_coefficient.json"


def estimate(p: Posterior, seed: int) -> LLC:
    options: dict[str, Any] = {"nbeta": p.nbeta, "localization": p.gamma, "seed": seed}
    return singular.learning_coefficient(p.model, half_square, p.batch, **options)


def table(seeds: int, out: Path, only: str) -> None:
    whole = stored(out, "rows")
    rows = whole["rows"]
    done = {(r["posterior"], r["seed"]) for r in rows}
    made: dict[str, Posterior] = {}
    for seed in range(seeds):
        for name, make in catalogue().items():
            if (name, seed) in done or name.startswith("minibatches") or not re.search(only, name):
                continue
            p = made.setdefault(name, make())
            start = time.process_time()
            found = estimate(p, seed)
            rows.append(
                {
                    "posterior": name,
                    "source": p.source,
                    "exact": p.exact,
                    "seed": seed,
                    "mean": found.mean,
                    "stderr": found.stderr,
                    "ok": found.ok,
                    "r_hat": found.health.r_hat,
                    "effective_draws": found.health.effective_draws,
                    "rungs": len(found.rungs),
                    "cost": found.cost,
                    "cpu_seconds": round(time.process_time() - start, 2),
                }
            )
            out.parent.mkdir(exist_ok=True)
            out.write_text(json.dumps(whole, indent=0))
        print(f"seed {seed}: {gate(rows)}", flush=True)


TARGETS = (
    *("ab", "ab at nβ = 2e5", "abcd at nβ = 1e4", "regular", "tanh unit with bias, dead"),
    *("tanh unit with bias, two outputs", "two tanh units, one dead", "two ReLU units, one dead"),
    *("three tanh units, all dead", "three tanh units, one alive", "three tanh units, two equal"),
    *("three tanh units, dead, two outputs", "linear 1-2-1, rank 1", "linear 2-1-3, rank 1", "linear 1-2-3, rank 1"),
    *("linear 4-1-3, rank 0", "linear 2-2-2, rank 0", "linear 2-2-5, rank 0", "linear 3-2-4, rank 0"),
    *("linear 2-1-2-2, rank 0", "linear 3-2-1-2, rank 0", "linear 1-2-1-2, rank 0", "linear 2-2-2-2, rank 0"),
    *("linear 3-2-2-1, rank 0", "linear 2-2-3-2, rank 0"),
)


def errors(seeds: int, first: int = 1000) -> None:
    """z = error / standard error of the runs that say they may be believed, by target and of all."""
    z: dict[str, list[float]] = {}
    print("| target | exact | believed | mean z | rms z |")
    print("|---|---|---|---|---|")
    for name in TARGETS:
        p = catalogue()[name]()
        runs = [estimate(p, first + seed) for seed in range(seeds)]
        z[name] = [(r.mean - p.exact) / r.stderr for r in runs if r.ok]
        print(scores(name, p.exact, seeds, z[name]), flush=True)
    print(scores("all", math.nan, seeds * len(TARGETS), [v for some in z.values() for v in some]))


def scores(name: str, exact: float, runs: int, z: list[float]) -> str:
    if not z:
        return f"| {name} | {exact:.4f} | 0/{runs} | | |"
    rms = math.sqrt(statistics.mean(v * v for v in z))
    spread = f"{rms:.2f} ± {rms / math.sqrt(2 * len(z)):.2f}"
    return f"| {name} | {exact:.4f} | {len(z)}/{runs} | {statistics.mean(z):+.2f} | {spread} |"


def kept(row: dict[str, Any]) -> bool:
    """Whether the promise was kept: within three standard errors, or refused."""
    return not row["ok"] or abs(row["mean"] - row["exact"]) <= 3 * row["stderr"]


def gate(rows: list[dict[str, Any]]) -> str:
    believed = [r for r in rows if r["ok"]]
    z = [(r["mean"] - r["exact"]) / r["stderr"] for r in believed]
    within = ", ".join(f"{statistics.mean(abs(v) <= k for v in z):.0%}" for k in (1, 2, 3))
    return (
        f"{len({r['posterior'] for r in rows})} posteriors, {len(rows)} runs: promise kept in "
        f"{statistics.mean(map(kept, rows)):.1%}, believed {len(believed) / len(rows):.0%}, of these "
        f"within 1, 2, 3 standard errors {within}; "
        f"z has mean {statistics.mean(z):+.2f} and standard deviation {statistics.pstdev(z):.2f}"
    )


def show(out: Path) -> None:
    """The tables as Markdown."""
    found = json.loads(out.read_text())
    rows = found["rows"]
    print("| posterior | exact | mean of means | mean stderr | largest error / stderr | believed | promise kept |")
    print("|---|---|---|---|---|---|---|")
    for name, some in by_posterior(rows).items():
        believed = [r for r in some if r["ok"]] or some
        worst = max(abs(r["mean"] - r["exact"]) / r["stderr"] for r in believed)
        mean, error = (statistics.mean(r[k] for r in believed) for k in ("mean", "stderr"))
        print(
            f"| {name} | {some[0]['exact']:.4f} | {mean:.4f} | {error:.4f} | {worst:.1f} | "
            f"{sum(r['ok'] for r in some)}/{len(some)} | {sum(map(kept, some))}/{len(some)} |"
        )
    print(gate(rows), "\n")
    show_minibatches(found)
    show_readouts(found["readout"])


def by_posterior(rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    return {name: [r for r in rows if r["posterior"] == name] for name in dict.fromkeys(r["posterior"] for r in rows)}


def show_minibatches(found: dict[str, Any]) -> None:
    peers = {(r["posterior"], r["lr"]): r["mean"] for r in found.get("devinterp", [])}
    rates = sorted({lr for _, lr in peers})
    print("| batches of 64 | exact | mean of means | off | mean stderr | rms z | heat | believed |", end="")
    print("".join(f" devinterp, ε = {lr:g} |" for lr in rates))
    print("|---|---|---|---|---|---|---|---|" + "---|" * len(rates))
    for name, some in by_posterior(found["minibatches"]).items():
        exact = some[0]["exact"]
        mean, error, heat = (statistics.mean(r[k] for r in some) for k in ("mean", "stderr", "heat"))
        rms = math.sqrt(statistics.mean(((r["mean"] - exact) / r["stderr"]) ** 2 for r in some))
        theirs = [peers.get((name, lr), math.nan) for lr in rates]
        cells = [
            "diverged" if v is None else "" if math.isnan(v) else f"{v:.3f} ({v / exact - 1:+.0%})" for v in theirs
        ]
        print(
            f"| {name.removeprefix('minibatches of 64, ')} | {exact:.4f} | {mean:.4f} | {mean / exact - 1:+.1%} | "
            f"{error:.2g} | {rms:.2f} | {heat:+.1%} | {sum(r['ok'] for r in some)}/{len(some)} |"
            + "".join(f" {cell} |" for cell in cells)
        )
    print(gate(found["minibatches"]), "\n")


def show_readouts(rows: list[dict[str, Any]]) -> None:
    print("| posterior | n | exact at n | sampled | readout: λ, m | limit |")
    print("|---|---|---|---|---|---|")
    right = []
    for r in rows:
        right.append(abs(r["sampled"] - r["exact"]) <= 3 * r["sampled_stderr"])
        m = f", m = {r['m']:g}" if r["m"] else ""
        said = "none" if r["lambda"] is None else f"{r['lambda']:.4g}" + (f" ± {r['stderr']:.2g}" if r["stderr"] else m)
        limit = "open" if r["limit"] is None else f"{r['limit']:.4g}"
        print(
            f"| {r['posterior']} | {r['n']:,} | {r['exact']:.4f} | {r['sampled']:.4f} ± {r['sampled_stderr']:.2g} | "
            f"{said} | {limit} |"
        )
    print(f"{len(rows)} posteriors: sampled within three standard errors in {sum(right)}")


def stored(out: Path, part: str) -> dict[str, Any]:
    """What ``out`` holds, with a list for ``part``."""
    found: dict[str, Any] = json.loads(out.read_text()) if out.exists() else {"rows": []}
    found.setdefault(part, [])
    return found


def readouts(out: Path) -> None:
    """λ by the readout of every posterior that it can be asked for."""
    for name, make in catalogue().items():
        found = stored(out, "readout")
        if name.startswith("minibatches") or name in {r["posterior"] for r in found["readout"]}:
            continue
        p = make()
        if p.gamma != 1.0:
            continue  # its well is 1
        n = round(brentq(lambda n, nbeta: n / math.log(n) - nbeta, 3, 1e9, args=(p.nbeta,)))
        start = time.process_time()
        said = singular.readout(p.model, "mse", p.x, n=n)
        triple = said.triple
        row = {
            "posterior": name,
            "exact": p.exact,
            "n": n,
            "lambda": triple.lam if triple is not None else None,
            "stderr": triple.stderr if triple is not None else None,
            "m": triple.m if triple is not None and math.isfinite(triple.m) else None,
            "limit": said.limit.lam,
            "sampled": said.sampled.mean if said.sampled is not None else None,
            "sampled_stderr": said.sampled.stderr if said.sampled is not None else None,
            "undetermined": said.undetermined,
            "cpu_seconds": round(time.process_time() - start, 2),
        }
        found["readout"].append(row)
        out.write_text(json.dumps(found, indent=0))
        print(row, flush=True)


# ---------------------------------------------------------------------- beside devinterp


def minibatches(groups: int, out: Path) -> None:
    """Chains of 200 draws on batches of 64 in groups of four, each with its own error, tuned and run together."""
    for name, make in catalogue().items():
        whole = stored(out, "minibatches")
        if not name.startswith("minibatches") or name in {r["posterior"] for r in whole["minibatches"]}:
            continue
        p, start = make(), time.process_time()
        copies = Replicas(p.model, half_square)
        streams = [NoiseSource(0, c) for c in range(4 * groups)]
        chain = Langevin(copies, p.batch, streams=streams, nbeta=p.nbeta, gamma=p.gamma, batch=64)
        chain.burn(500, "auto", True, lambda: None)
        seen, virials = chain.sample(200, 10, observer(copies.start, 0), lambda: None)
        for group in range(groups):
            some = slice(4 * group, 4 * group + 4)
            traces = {k: trace[some] for k, trace in zip(names(), seen)}
            health, _ = examine(traces, 1e3 * copies.size)
            mean, stderr, heat = cooled(seen[0, some], virials[some], seen[1:, some])
            whole["minibatches"].append(
                {
                    "posterior": name,
                    "exact": p.exact,
                    "seed": group,
                    "mean": mean,
                    "raw": float(seen[0, some].mean()),
                    "stderr": stderr,
                    "heat": heat,
                    "ok": health.ok and abs(heat) < 0.25,
                    "r_hat": health.r_hat,
                    "effective_draws": health.effective_draws,
                    "cpu_seconds": round((time.process_time() - start) / groups, 2),
                }
            )
        out.write_text(json.dumps(whole, indent=0))
        print(f"{name}: {gate(whole['minibatches'])}", flush=True)


def peer_on_minibatches(out: Path) -> None:
    """devinterp's SGLD with 4 chains × 1,500 draws after 500 steps, at two learning rates."""
    targets = {name: make() for name, make in catalogue().items() if name.startswith("minibatches")}
    for lr in (1e-4, 1e-3):
        for name, p in targets.items():
            found = stored(out, "devinterp")
            if any(r["posterior"] == name and r["lr"] == lr for r in found["devinterp"]):
                continue
            try:
                mean, _, seconds = theirs(p, lr, 1500, 4, 64, seed=0, burn=500)
            except RuntimeError:  # it stops at the first NaN
                mean, seconds = math.nan, math.nan
            numbers = {"mean": mean, "cpu_seconds": round(seconds, 2)}
            row = {"posterior": name, "lr": lr, "exact": p.exact}
            row |= {k: v if math.isfinite(v) else None for k, v in numbers.items()}
            found["devinterp"].append(row)
            out.write_text(json.dumps(found, indent=0))
            print(row, flush=True)


def theirs(
    p: Posterior, lr: float, draws: int, chains: int, batch: int, seed: int, burn: int | None = None
) -> tuple[float, float, float]:
    """Mean, effective draws of the loss, CPU seconds of devinterp's SGLD; by default half the draws are burn-in."""
    from devinterp.optim import SGLD
    from devinterp.slt.sampler import estimate_learning_coeff_with_summary

    x, y = p.batch
    model = copy.deepcopy(p.model)
    loader = DataLoader(TensorDataset(x, y), batch_size=batch, shuffle=True)
    baseline = float(half_square(model(x), y))
    start = time.process_time()
    found = estimate_learning_coeff_with_summary(
        model,
        loader,
        evaluate=lambda net, data: (half_square(net(data[0]), data[1]), {}),
        sampling_method=SGLD,
        optimizer_kwargs={"lr": lr, "localization": p.gamma, "nbeta": p.nbeta},
        num_chains=chains,
        num_draws=draws,
        num_burnin_steps=draws // 2 if burn is None else burn,
        init_loss=baseline,
        seed=seed,
        verbose=False,
    )
    seconds = time.process_time() - start
    trace = p.nbeta * (found["loss/trace"] - baseline)
    mean = float(found["llc/mean"])
    return mean, effective_draws(trace) if math.isfinite(mean) else 0.0, seconds


def ours(p: Posterior, draws: int, chains: int, rungs: int | None, seed: int) -> tuple[float, float, float]:
    start = time.process_time()
    found = singular.learning_coefficient(
        p.model,
        half_square,
        p.batch,
        nbeta=p.nbeta,
        localization=p.gamma,
        seed=seed,
        draws=draws,
        chains=chains,
        rungs=rungs,
    )
    return found.mean, found.health.effective_of_loss, time.process_time() - start


def raced() -> list[Posterior]:
    """Posteriors on 512 examples."""
    made = catalogue()
    wide = torch.nn.Linear(50, 2, bias=False, dtype=torch.float64)
    exact = of_regular(np.ones(100), 300.0)
    return [
        replace(made["regular"](), x=white(512, 4)),
        Posterior("regular, 100 parameters", wide, white(512, 50), 300.0, exact),
        replace(made["linear 3-2-4, rank 0"](), x=white(512, 3)),
    ]


def speed(rounds: int) -> None:
    """Effective draws a CPU second, and 1 / (mean square error × CPU seconds), both as ratios ours over theirs."""
    for p in raced():
        variants: dict[str, Callable[[int], tuple[float, float, float]]] = {
            "netvitals": partial(ours, p, 400, 4, None),
            "netvitals, one temperature": partial(ours, p, 400, 4, 1),
        }
        for lr, draws in ((3e-5, 3000), (3e-4, 600), (1e-3, 600)):  # a chain of small steps needs more of them
            variants[f"devinterp, lr {lr:g}"] = partial(theirs, p, lr, draws, 4, 64)
        print(f"{p.name}: exact {p.exact:.4f}")
        scores = {}
        for label, run in variants.items():
            try:
                run(99)  # what is loaded at the first call is no matter of speed
                found = [run(seed) for seed in range(rounds)]
            except Exception as error:  # a peer that is missing or broken must not stop the others
                print(f"  {label}: left out ({type(error).__name__}: {str(error)[:90]})")
                continue
            means = [f[0] for f in found if math.isfinite(f[0])]
            if not means:
                print(f"  {label}: diverged")
                continue
            rmse = math.sqrt(statistics.mean((m - p.exact) ** 2 for m in means))
            rate = statistics.median(f[1] / f[2] for f in found)
            seconds = statistics.median(f[2] for f in found)
            scores[label] = (rate, 1 / (rmse**2 * seconds), rmse)
            print(
                f"  {label:28s} λ = {statistics.mean(means):.4f}, RMSE {rmse:.4f}, {rate:8.1f} effective draws/s, "
                f"{seconds:.2f} s of CPU",
                flush=True,
            )
        peers = {k: v for k, v in scores.items() if k.startswith("devinterp")}
        if peers:
            near = min(peers, key=lambda k: peers[k][2])  # as accurate as it gets
            best = max(peers, key=lambda k: peers[k][1])
            for label in variants:
                if label.startswith("netvitals"):
                    rate, precision = scores[label][0] / peers[near][0], scores[label][1] / peers[best][1]
                    print(
                        f"  {label}: {rate:.1f} × the effective draws a second of {near}, the most accurate; ", end=""
                    )
                    print(f"{precision:.1f} × the precision of {best} for the same time", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=("table", "errors", "speed", "minibatches", "readout", "show"))
    parser.add_argument("--only", default="", help="posteriors whose names match")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    if options.task == "table":
        table(options.seeds, options.out, options.only)
    elif options.task == "errors":
        errors(options.seeds)
    elif options.task == "minibatches":
        minibatches(options.seeds, options.out)
        peer_on_minibatches(options.out)
    elif options.task == "readout":
        readouts(options.out)
    elif options.task == "show":
        show(options.out)
    else:
        speed(options.rounds)


if __name__ == "__main__":
    main()
