"""Checks before training on the scripts of the benchmark: ``netvitals.preflight`` beside torchtest2 and
neural-net-checklist, each on the model, loss, optimizer and first batches of the same scripts.

python bench/bugs/preflight.py [--half development] [--only NAME,NAME] [--rows rows.jsonl] [--jobs 2]

The peers run where they can be imported (``install_peers.sh``).
"""

from __future__ import annotations

import argparse
import copy
import json
import signal
import statistics
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from recorder import Given, Recorded, Recorder, given, plain_pair

from netvitals_lab.bugs import Case, cases
from netvitals_lab.bugs.runner import executed, in_fork, quiet
from netvitals_lab.bugs.scores import names_cause

SECONDS = 60.0
LIMITS = {"preflight": 240, "torchtest2": 40, "checklist": 40}
# which causes a failed check of torchtest2 names
TORCHTEST2 = {
    "params_change": ("parameters-not-in-optimizer", "stale-parameters", "frozen-by-mistake", "update-lost", "detached-graph", "layers-unused"),
    "optimizer_coverage": ("parameters-not-in-optimizer", "stale-parameters", "frozen-by-mistake"),
    "frozen_params": ("not-frozen",),
    "gradient_flow": ("detached-graph", "layers-unused", "frozen-by-mistake", "vanishing-gradients", "dead-units"),
    "gradient_magnitude": ("exploding-gradients", "vanishing-gradients", "init-too-large", "inputs-not-scaled", "targets-not-scaled"),
    "batch_independence": ("layout-mixed", "softmax-wrong-dimension"),
    "loss": ("broadcast-in-loss", "bad-values", "loss-mismatch"),
    "initial_loss": ("init-too-large", "double-softmax"),
    "output_finite": ("bad-values", "exploding-activations", "low-precision"),
    "output_varies": ("inputs-lost", "dead-units", "vanishing-gradients"),
    "input_dependency": ("inputs-lost", "dead-units"),
    "eval_determinism": ("dropout-train-eval",),
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--half", choices=["development", "published"], default="development")
    parser.add_argument("--only", default="")
    parser.add_argument("--rows", type=Path)
    parser.add_argument("--tools", default="preflight,torchtest2,checklist")
    parser.add_argument("--variants", default="bug,fixed,healthy")
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    only = set(filter(None, args.only.split(",")))
    chosen = [case for case in cases(args.half) if not only or case.name in only]
    tools = [t for t in args.tools.split(",") if t == "preflight" or _importable(t)]
    kinds = args.variants.split(",")
    work = [(c, v) for c in chosen for v in (("bug", "fixed") if c.kind == "bug" else ("healthy",)) if v in kinds]
    import torch

    import netvitals.preflights  # noqa: F401  before the first fork

    torch.set_num_threads(1)
    rows = []
    with ThreadPoolExecutor(args.jobs) as pool:
        for (case, variant), row in zip(work, pool.map(lambda w: in_fork(lambda: _row(*w, tools)), work)):
            row |= {"case": case.name, "variant": variant}
            rows.append(row)
            mine = row.get("preflight", {})
            print(
                f"{case.name:45.45s} {variant:8s} {'/'.join(case.causes):28.28s} {mine.get('seconds', 0):5.1f}s "
                f"{'named' if _named(case, mine) else '-':6s}{', '.join(mine.get('failed', [])[:4])} "
                f"{mine.get('error', '')}{row.get('error', '').strip().splitlines()[-1:] or ''}",
                flush=True,
            )
            if args.rows:
                with args.rows.open("a") as file:
                    file.write(json.dumps(row) + "\n")
    for line in summary(chosen, rows, tools):
        print(line)


def _importable(tool: str) -> bool:
    from importlib.util import find_spec

    return find_spec({"checklist": "neural_net_checklist"}.get(tool, tool)) is not None


def _row(case: Case, variant: str, tools: list[str]) -> dict[str, Any]:
    import netvitals as nv

    recorder = Recorder()
    nv.watch = recorder  # type: ignore[assignment]
    with quiet():
        try:
            executed(case, variant, 0)
        except Recorded:
            pass
        finally:
            if getattr(recorder, "model", None) is not None:
                recorder.close()
        found = given(recorder)
        out: dict[str, Any] = {"supervised": found.supervised}
        for tool in tools:
            begun = time.perf_counter()
            signal.signal(signal.SIGALRM, _too_long)
            signal.alarm(LIMITS[tool])
            try:
                out[tool] = {"preflight": _preflight, "torchtest2": _torchtest2, "checklist": _checklist}[tool](found)
            except Exception as error:  # a tool that cannot be used on this script
                out[tool] = {"failed": [], "error": f"{type(error).__name__}: {str(error)[:160]}"}
            signal.alarm(0)
            out[tool]["seconds"] = time.perf_counter() - begun
    return out


def _too_long(*_: Any) -> None:
    raise TimeoutError("it took too long")


def _preflight(found: Given) -> dict[str, Any]:
    import netvitals as nv

    report = nv.preflight(
        found.model, found.loss_fn, found.batches, found.optimizer, forward=found.forward, seconds=SECONDS
    )
    return {
        "failed": [c.name for c in report.failed],
        "measured": {c.name: c.measured for c in report.failed},
        "checks": {c.name: c.status for c in report},
        "missing": {c.name: c.why for c in report if c.status == "not enough data"},
        "step": report.step_seconds,
    }


def _torchtest2(found: Given) -> dict[str, Any]:
    import torchtest2

    if not found.supervised:
        return {"failed": [], "error": "needs one model, inputs and targets"}
    model, optimizer = copy.deepcopy((found.model, found.optimizer))
    x, target, loss_fn = plain_pair(found)
    report = torchtest2.check_model(
        model, x, target, loss_fn=loss_fn, optimizer=optimizer[0] if isinstance(optimizer, list) else optimizer
    )
    results = list(report.results)
    state = lambda r: str(getattr(r.status, "value", r.status)).lower()
    return {
        "states": {r.name: state(r) for r in results},
        "failed": [r.name for r in sorted(results, key=state) if state(r) in ("fail", "warn")],  # failures first
    }


def _checklist(found: Given) -> dict[str, Any]:
    from neural_net_checklist import torch_diagnostics as td
    from torch import Tensor

    if not found.supervised:
        return {"failed": [], "error": "needs one model, inputs and targets"}
    x, target = found.batches[0]
    labels = next((t for t in target if isinstance(t, Tensor)), None)
    if labels is None or labels.is_floating_point() or labels.ndim != 1 or not isinstance(x, Tensor):
        return {"failed": [], "error": "classification only"}
    make = lambda: copy.deepcopy(found.model)
    classes = int(make()(x).shape[-1])
    batch = (x, labels)
    asks = {
        "loss at init": lambda: td.assert_balanced_classification_cross_entropy_loss_at_init(make(), batch, num_classes=classes),
        "init calibrated": lambda: td.assert_balanced_classification_cross_entropy_init_calibrated(make(), batch, num_classes=classes),
        "forward independence": lambda: td.assert_forward_batch_independence(make, batch),
        "non-zero gradients": lambda: td.assert_non_zero_gradients(make(), batch),
        "backward independence": lambda: td.assert_backward_batch_independence(make, batch),
        "input-independent baseline": lambda: td.assert_input_independent_baseline_worse(make, batch),
        "overfit": lambda: td.assert_overfit_to_batch(make(), batch),
    }  # fmt: skip
    failed, errors = [], {}
    for name, ask in asks.items():
        try:
            ask()
        except AssertionError:
            failed.append(name)
        except Exception as error:
            errors[name] = f"{type(error).__name__}: {str(error)[:80]}"
    return {"failed": failed, "errors": errors}


CHECKLIST = {
    "loss at init": ("init-too-large", "exploding-activations"),
    "init calibrated": ("init-too-large",),
    "forward independence": ("layout-mixed", "softmax-wrong-dimension"),
    "non-zero gradients": ("detached-graph", "layers-unused", "dead-units", "vanishing-gradients"),
    "backward independence": ("layout-mixed", "softmax-wrong-dimension"),
    "input-independent baseline": ("inputs-lost",),
}


def _named(case: Case, row: dict[str, Any], causes: dict[str, tuple[str, ...]] | None = None) -> bool:
    if causes is None:
        return any(names_cause(case, name) for name in row.get("failed", ()))
    return any(set(causes.get(name, ())) & set(case.causes) for name in row.get("failed", ()))


def summary(chosen: list[Case], rows: list[dict[str, Any]], tools: list[str]) -> list[str]:
    known = {case.name: case for case in chosen}
    causes = {"preflight": None, "torchtest2": TORCHTEST2, "checklist": CHECKLIST}
    lines = ["", f"{'':14s}{'could run':>12s}{'cause named':>14s}{'cause first':>14s}{'any failure':>14s}{'fixed':>10s}{'healthy':>10s}{'seconds':>9s}"]  # fmt: skip
    for tool in tools:
        n: Counter[str] = Counter()
        for row in rows:
            case, mine = known[row["case"]], row.get(tool, {"error": row.get("error", "")})
            if row["variant"] == "bug" and not case.observable:
                continue
            kind = row["variant"]
            failed = mine.get("failed", [])
            n[kind] += 1
            n[f"{kind} ran"] += not mine.get("error")
            n[f"{kind} failed"] += bool(failed)
            n["named"] += kind == "bug" and _named(case, mine, causes[tool])
            n["first"] += kind == "bug" and bool(failed) and _named(case, {"failed": failed[:1]}, causes[tool])
        seconds = [r[tool]["seconds"] for r in rows if tool in r and not r[tool].get("error")]
        lines.append(
            f"{tool:14s}{n['bug ran']:>6d}/{n['bug']:<5d}{n['named']:>14d}{n['first']:>14d}{n['bug failed']:>14d}"
            f"{n['fixed failed']:>6d}/{n['fixed']:<3d}{n['healthy failed']:>6d}/{n['healthy']:<3d}"
            f"{statistics.median(seconds) if seconds else 0:>9.1f}"
        )
    mine = [r["preflight"] for r in rows if "preflight" in r and r["preflight"].get("step")]
    if mine:
        lines.append(
            f"preflight takes {statistics.median(r['seconds'] / r['step'] for r in mine):.0f} training steps (median)"
        )
    first: dict[str, Counter[str]] = {}
    for row in rows:
        failed = row.get("preflight", {}).get("failed", [])
        if failed:
            case = known[row["case"]]
            kind = row["variant"] if row["variant"] != "bug" else "right" if names_cause(case, failed[0]) else "bug"
            first.setdefault(failed[0], Counter())[kind] += 1
    lines.append("first failed check: scripts where it names the cause, other bugs, fixed, healthy")
    for name, c in sorted(first.items(), key=lambda item: -item[1]["right"]):
        lines.append(f"  {name:32s}{c['right']:4d}{c['bug']:4d}{c['fixed']:4d}{c['healthy']:4d}")
    return lines


if __name__ == "__main__":
    main()
