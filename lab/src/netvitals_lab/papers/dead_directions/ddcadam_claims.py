"""What the comparison of BalancedAdam with Adam and AdamW says, as it is, one network at a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from netvitals_lab import Claims, Measured, Row, Verdict, not_run
from netvitals_lab.papers.dead_directions.ddcadam import OPTIMIZERS, best
from netvitals_lab.papers.dead_directions.ddcadam import _rates as _rates

NAMES = {
    "mlp": "an MLP on digits",
    "resnet": "a small ResNet on digits",
    "gpt": "a small GPT on text",
    "finetune": "an MLP on digits, tuned on 200 turned ones",
}
IMAGES = {"images": "a small ResNet on natural images"}

claim = Claims("dead-directions", study="ddcadam", factor="architecture")

for study, tag, names in (("ddcadam", "", NAMES), ("ddcadam-images", "-images", IMAGES)):
    networks = "; ".join(names.values())

    @claim(
        f"ddcadam-loss{tag}",
        "not worse",
        study=study,
        statement=f"BalancedAdam is at least as good as Adam, each at the rate validation chose: {networks}",
    )
    def loss(rows: Sequence[Row]) -> Measured | Verdict:
        runs = {o: [r for r in best(rows, rows[0]["architecture"], o) if not r["rescaled"]] for o in OPTIMIZERS}
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
        note = f"{words}: test loss {text}; each seed at the rate that its validation data chose, {len(gaps)} seeds"
        return Measured(gap, note, stderr=error, ok=gap <= 2 * error)

    @claim(
        f"ddcadam-start{tag}",
        "smaller change",
        study=study,
        statement=f"BalancedAdam minds a rescaled start less than Adam: {networks}",
    )
    def start(rows: Sequence[Row]) -> Measured:
        change = {}
        for o in OPTIMIZERS:
            runs = best(rows, rows[0]["architecture"], o)
            pairs = [
                (r["test"], next(p["test"] for p in runs if p["seed"] == r["seed"] and not p["rescaled"]))
                for r in runs
                if r["rescaled"]
            ]
            change[o] = max(abs(a - b) / b if a is not None and b else float("inf") for a, b in pairs)
        text = ", ".join(f"{o} {v:.2g}" for o, v in change.items())
        note = f"relative change of the test loss from a start moved along its gauges, largest over seeds: {text}"
        return Measured(change["ddcadam"], note, ok=change["ddcadam"] < change["adam"])

    @claim(
        f"ddcadam-drift{tag}",
        "shorter way",
        study=study,
        statement=f"BalancedAdam goes less far along the gauges than Adam: {networks}",
    )
    def drift(rows: Sequence[Row]) -> Measured:
        far = {
            o: max(r["moved"] for r in best(rows, rows[0]["architecture"], o) if not r["rescaled"]) for o in OPTIMIZERS
        }
        text = "way along the gauges, largest: " + ", ".join(f"{o} {v:.2g}" for o, v in far.items())
        return Measured(far["ddcadam"], text, ok=far["ddcadam"] < far["adam"])
