"""What the comparison of BalancedAdam with Adam and AdamW says, as it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from netvitals_lab import Claim, Expected, Row, Verdict, decide, not_run
from netvitals_lab.engine.judges import some, together
from netvitals_lab.papers.dead_directions.ddcadam import OPTIMIZERS, best
from netvitals_lab.papers.dead_directions.ddcadam import _rates as _rates

Judge = Callable[[Sequence[Row]], Verdict]
NAMES = {
    "mlp": "an MLP on digits",
    "resnet": "a small ResNet on digits",
    "gpt": "a small GPT on text",
    "finetune": "an MLP on digits, tuned on 200 turned ones",
    "images": "a small ResNet on natural images",
}


def _loss(architecture: str) -> Callable[[Sequence[Row]], Verdict]:
    def judge(rows: Sequence[Row]) -> Verdict:
        runs = {o: [r for r in best(rows, architecture, o) if not r["rescaled"]] for o in OPTIMIZERS}
        if min(map(len, runs.values())) < 2:
            return not_run("needs several seeds: run it at a larger scale")
        mean = {o: float(np.mean([r["test"] for r in v])) for o, v in runs.items()}
        gaps = [d["test"] - a["test"] for d, a in zip(runs["ddcadam"], runs["adam"])]  # the same seeds
        gap, error = float(np.mean(gaps)), float(np.std(gaps, ddof=1) / len(gaps) ** 0.5)
        text = ", ".join(f"{o} {mean[o]:.4f} at rates {_rates(runs[o])}" for o in OPTIMIZERS)
        words = (
            "no difference beyond two standard errors"
            if abs(gap) <= 2 * error
            else "BalancedAdam is better"
            if gap < 0
            else "BalancedAdam is worse"
        )
        return decide(
            gap <= 2 * error,
            gap,
            error,
            note=f"{words}: test loss {text}; each seed at the rate that its validation data chose, {len(gaps)} seeds",
        )

    return judge


def _start(architecture: str) -> Callable[[Sequence[Row]], Verdict]:
    def judge(rows: Sequence[Row]) -> Verdict:
        change = {}
        for o in OPTIMIZERS:
            runs = best(rows, architecture, o)
            pairs = [
                (r["test"], next(p["test"] for p in runs if p["seed"] == r["seed"] and not p["rescaled"]))
                for r in runs
                if r["rescaled"]
            ]
            change[o] = max(abs(a - b) / b if a is not None and b else float("inf") for a, b in pairs)
        text = ", ".join(f"{o} {v:.2g}" for o, v in change.items())
        return decide(
            change["ddcadam"] < change["adam"],
            change["ddcadam"],
            note=f"relative change of the test loss from a start moved along its gauges, largest over seeds: {text}",
        )

    return judge


def _moved(architecture: str) -> Callable[[Sequence[Row]], Verdict]:
    def judge(rows: Sequence[Row]) -> Verdict:
        far = {o: max(r["moved"] for r in best(rows, architecture, o) if not r["rescaled"]) for o in OPTIMIZERS}
        return decide(
            far["ddcadam"] < far["adam"],
            far["ddcadam"],
            note="way along the gauges, largest: " + ", ".join(f"{o} {v:.2g}" for o, v in far.items()),
        )

    return judge


def _over(judge: Callable[[str], Judge], networks: tuple[str, ...]) -> Judge:
    """One verdict over the networks of a study."""
    return lambda rows: together({a: judge(a)(rows) for a in networks if some(rows, architecture=a)})


CLAIMS = tuple(
    Claim(
        id=f"dead-directions/ddcadam-{kind}{tag}",
        study=study,
        statement=f"{statement}: {'; '.join(NAMES[a] for a in networks)}",
        expected=Expected(direction=expected),
        judge=_over(judge, networks),
    )
    for study, tag, networks in (
        ("ddcadam", "", tuple(a for a in NAMES if a != "images")),
        ("ddcadam-images", "-images", ("images",)),
    )
    for kind, statement, expected, judge in (
        ("loss", "BalancedAdam is at least as good as Adam, each at the rate validation chose", "not worse", _loss),
        ("start", "BalancedAdam minds a rescaled start less than Adam", "smaller change", _start),
        ("drift", "BalancedAdam goes less far along the gauges than Adam", "shorter way", _moved),
    )
)
