"""Claims 15 and 18–22 on language models: growth of sparsity, squares, their spikes, and clips, over paired seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from netvitals.drift import amplification, intermediate_peak
from netvitals_lab import Claims, Plot, Row, Series, Verdict, holds, not_judged, not_reproduced, underspecified
from netvitals_lab.engine.claim import PAIRS
from netvitals_lab.engine.judges import compared, difference, means, paired, some
from netvitals_lab.engine.judges.factors import together
from netvitals_lab.engine.verdict import Fact

ENOUGH = 200  # steps of a language model that claims may rest on
GAIN = 0.1  # zeros that ReLUfication must bring to be worth its name
GROWN = 0.05  # zeros that must have been added
NINETY = 0.9
ABOUT = 2.0  # "about 25 times" is within this factor
AMPLIFIED = 25.0
MUON, ADAMW = "muon", "adamw"


def too_short(rows: Sequence[Row]) -> str:
    """Runs too short to show anything."""
    steps = max(r["steps"] for r in rows)
    return f"{steps} steps are too few for this claim; run it at a larger scale" if steps < ENOUGH else ""


def losses(rows: Sequence[Row]) -> dict[str, dict[int, float]]:
    """Validation loss by activation and seed, of the runs with Muon that ended."""
    found: dict[str, dict[int, float]] = {}
    for r in some(rows, quantity="run", optimizer=MUON):
        if not r["stopped"]:
            found.setdefault(r["act"], {})[r["seed"]] = r["val_loss"]
    return found


def by_seed(found: dict[str, dict[int, float]]) -> dict[str, Fact]:
    """The losses as facts of a verdict."""
    return {f"loss of {act} by seed": list(of.values()) for act, of in found.items()}


def zeros(rows: Sequence[Row], **where: Any) -> dict[int, float]:
    """Mean share of exact zeros over the layers, by seed."""
    return means(rows, "hard", "seed", **where)


def growth_plot(rows: Sequence[Row]) -> Plot:
    series = []
    for optimizer in dict.fromkeys(r["optimizer"] for r in rows):
        mine = some(rows, quantity="layer", act="relu", optimizer=optimizer)
        share = dict(sorted(means(mine, "hard", "step").items()))
        series.append(Series(f"relu, {optimizer}", list(share), list(share.values()), line=True))
    return Plot("training step", "share of exact zeros", series)


def profiles(rows: Sequence[Row], act: str, key: str, optimizer: str = MUON) -> dict[int, list[float]]:
    """One number a layer, by seed."""
    mine = sorted(some(rows, quantity="final", act=act, optimizer=optimizer), key=lambda r: r["layer"])
    return {seed: [r[key] for r in mine if r["seed"] == seed] for seed in dict.fromkeys(r["seed"] for r in mine)}


def spike_plot(rows: Sequence[Row]) -> Plot:
    series = []
    for act in ("relu", "relu2"):
        for optimizer in (MUON, ADAMW):
            profile = np.mean(list(profiles(rows, act, "max_abs", optimizer).values()), axis=0).tolist()
            layers = list(range(1, len(profile) + 1))
            series.append(Series(f"{act}, {optimizer}", layers, profile, line=True, dashed=optimizer == ADAMW))
    return Plot("layer", "largest activation", series, log_y=True)


GPT = "weight-drift-gpt"


claim = Claims("weight-drift", study=GPT, seeds=PAIRS, obstacle=too_short)


@claim(
    "C15",
    "sparsity grows, in some layer to 90 %",
    uses={"act": "relu"},
    plot=growth_plot,
    effect="share of exact zeros after training minus before, by recipe",
    choices=(
        "a GPT of 4 blocks and width 64 on bytes, 200 steps",
        "two recipes: Muon with AdamW as in the paper, AdamW alone",
    ),
    question="Which recipe and how many steps give 90 %? With other recipes the level differs.",
)
def growth(rows: Sequence[Row]) -> Verdict:
    """With ReLU, drift makes GPT activations sparse, up to 90 %

    Zeros at the end minus at the start, by recipe; and whether any layer comes to 90 %.
    """
    facts: dict[str, Fact] = {}
    gains, most, ends = [], 0.0, []
    for optimizer in dict.fromkeys(r["optimizer"] for r in rows):
        mine = some(rows, quantity="layer", act="relu", optimizer=optimizer)
        first, last = (f(r["step"] for r in mine) for f in (min, max))
        before, after = zeros(mine, step=first), zeros(mine, step=last)
        if len(after) < 2:
            return not_judged(f"{len(after)} seed is no spread")
        gains.append(difference(paired(after, before)))
        layers = means(mine, "hard", "layer", step=last)
        ends.append(float(np.mean(list(after.values()))))
        most = max(most, *layers.values())
        facts |= {f"{optimizer}: zeros added": str(gains[-1]), f"{optimizer}: by layer": list(layers.values())}
    note = "zeros of the ReLU layers at the end, by recipe the mean over layers; most is of one layer"
    facts["most in a layer"] = most
    more: dict[str, Any] = {"note": note, "facts": facts, "seeds": min(g.pairs for g in gains)}
    grows = [g.low > GROWN for g in gains]
    if all(grows) and most >= NINETY:
        return holds(most, **more)
    if any(grows) and not all(grows):
        return underspecified((min(ends), max(ends)), max(ends), **more)
    return not_reproduced(most, max(g.power for g in gains), **more)


@claim(
    "C18-gpt",
    "at most 2 % more loss than a control that is trained on equally long",
    uses={"act": "gelu"},
    effect="relative loss of the ReLU network above an equally trained control",
    choices=(
        "a GPT of 4 blocks and width 64 on bytes of one book, 200 steps, Muon as in the paper",
        "2 % as negligible; the paper has no number",
    ),
)
def relufied(rows: Sequence[Row]) -> Verdict:
    """ReLUfication of a trained GPT recovers sparsity at negligible cost

    Loss after the swap and fine-tuning, over that of the control that was trained on equally long.
    """
    stages = {s: means(rows, "val_loss", "seed", quantity="relufied", stage=s) for s in ("trained", "control", "tuned")}
    swapped = means(rows, "val_loss", "seed", quantity="relufied", stage="swapped")
    gained = min(zeros(rows, quantity="relufied", stage="tuned").values())
    cost = [stages["tuned"][s] / stages["control"][s] - 1 for s in stages["tuned"] if s in stages["control"]]
    facts: dict[str, Fact] = {f"loss, {name}": float(np.mean(list(of.values()))) for name, of in stages.items()}
    facts |= {"loss, swapped": float(np.mean(list(swapped.values()))), "zeros": gained}
    note = "relative loss of the tuned network above the control, both trained on for 5 % of the steps"
    if gained <= GAIN:
        return not_reproduced(gained, GAIN, note="zeros that the swap brings", facts=facts, seeds=len(cost))
    return compared(cost, -1, margin=0.02, scaled=True, note=note, facts=facts)


@claim(
    "C19",
    "as sparse and as good as ReLU",
    uses=lambda c: c["act"] in ("relu", "relu2") and c["optimizer"] == "muon",
    effect="relative loss of ReLU² above ReLU, and its zeros",
    choices=(
        "a GPT of 4 blocks and width 64 on bytes of one book, 200 steps, Muon as in the paper",
        "1 % as equally good",
    ),
)
def squared_ratio(rows: Sequence[Row]) -> Verdict:
    """ReLU² has a good ratio of sparsity and accuracy in GPT

    As good as ReLU within 1 %, and as sparse.
    """
    found = {a: of for a, of in losses(rows).items() if a in ("relu", "relu2")}
    cost = [found["relu2"][s] / found["relu"][s] - 1 for s in found["relu2"] if s in found["relu"]]
    share = {a: zeros(rows, quantity="final", act=a, optimizer=MUON) for a in found}
    sparser = paired(share["relu2"], share["relu"])
    note = "relative loss of ReLU² above ReLU; the paper's model is a thousand times larger"
    facts: dict[str, Fact] = {**by_seed(found), "zeros of ReLU² minus ReLU by seed": sparser}
    verdict = compared(cost, -1, margin=0.01, scaled=True, note=note, facts=facts)
    if verdict.status == "holds" and difference(sparser).high < 0:
        fewer = difference(sparser)
        return not_reproduced(
            fewer.value, fewer.power, note="zeros of ReLU² minus ReLU", facts=facts, seeds=fewer.pairs
        )
    return verdict


@claim(
    "C20",
    "25 times, within a factor of 2",
    uses=lambda c: c["act"] in ("relu", "relu2"),
    plot=spike_plot,
    effect="mean layer maximum of ReLU² over that of ReLU",
    choices=(
        "a GPT of 4 blocks and width 64 on bytes, 200 steps",
        "two recipes: Muon and AdamW",
        "a factor of 2 as about",
    ),
    question="With which optimizer, and at which step, was 25 measured?",
)
def spikes(rows: Sequence[Row]) -> Verdict:
    """ReLU² amplifies activation spikes in intermediate layers about 25 times

    Mean layer maximum of ReLU² over that of ReLU, with both optimizers.
    """
    facts: dict[str, Fact] = {}
    centre, inside, powers, pairs = {}, [], [], []
    for optimizer in (MUON, ADAMW):
        plain, squared = (profiles(rows, a, "max_abs", optimizer) for a in ("relu", "relu2"))
        logs = [math.log(amplification(squared[s], plain[s])) for s in squared if s in plain]
        if len(logs) < 2:
            return not_judged(f"{len(logs)} pair of runs is no spread")
        found = difference(logs)
        centre[optimizer] = math.exp(found.value)
        inside.append(math.exp(found.low) >= AMPLIFIED / ABOUT and math.exp(found.high) <= AMPLIFIED * ABOUT)
        powers.append(math.exp(found.power))
        pairs.append(found.pairs)
        peaks = [intermediate_peak(p) for p in profiles(rows, "relu2", "max_over_mean", optimizer).values()]
        facts |= {
            f"{optimizer}: ratio [95 %]": [centre[optimizer], math.exp(found.low), math.exp(found.high)],
            f"{optimizer}: share of runs whose max/mean peaks in an intermediate layer": float(np.mean(peaks)),
            f"{optimizer}: largest activation by layer": next(iter(squared.values())),
        }
    note = "mean layer maximum of ReLU² over that of ReLU, geometric mean over seeds"
    more: dict[str, Any] = {"note": note, "facts": facts, "seeds": min(pairs)}
    value = centre[MUON]
    if all(inside):
        return holds(value, **more)
    low, high = min(centre.values()), max(centre.values())
    if any(inside) or low < AMPLIFIED < high:
        return underspecified((low, high), value, **more)
    return not_reproduced(value, max(powers), **more)


@claim(
    "C21",
    "lower loss, no activation above the clip",
    uses=lambda c: c["act"].startswith(("relu2", "gelu2")) and c["optimizer"] == "muon",
    effect="validation loss saved by the clip, paired by seed",
    choices=("a GPT of 4 blocks and width 64 on bytes of one book, 200 steps, Muon as in the paper",),
)
def clipping(rows: Sequence[Row]) -> Verdict:
    """Clipping removes the spikes of ReLU² and lowers its loss

    Loss that the clip saves, where no activation is above it.
    """
    found = losses(rows)
    height = max(v for p in profiles(rows, "relu2:15", "max_abs").values() for v in p)
    clips = {"largest activation": height, **by_seed({a: v for a, v in found.items() if a.startswith("gelu2")})}
    if height > 15:
        return not_judged(f"the clip at 15 lets {height:.3g} through")
    saved = paired(found["relu2"], found["relu2:15"])
    return compared(saved, 1, scaled=True, note="loss saved by the clip", facts={"by seed": saved, **clips})


@claim(
    "C21-thresholds",
    "lower at each",
    uses=lambda c: c["act"].startswith("relu2") and c["optimizer"] == "muon",
    effect="validation loss saved by the clip, paired by seed",
    choices=("a GPT of 4 blocks and width 64 on bytes of one book, 200 steps, Muon as in the paper",),
    question="Which thresholds were tried, and how far do their losses differ?",
)
def clip_heights(rows: Sequence[Row]) -> Verdict:
    """Clipped ReLU² has a lower loss than ReLU² wherever it is clipped: at 6, 15 or 50

    Loss that a clip saves, at each height of the clip.
    """
    found = losses(rows)
    clips = sorted((a for a in found if a.startswith("relu2:")), key=lambda a: float(a.split(":")[1]))
    saved = {a: paired(found["relu2"], found[a]) for a in clips}
    note = "loss saved by the clip"
    return together({f"clip {a.split(':')[1]}": compared(d, 1, scaled=True, note=note) for a, d in saved.items()})


@claim(
    "C22",
    "lowest",
    uses={"optimizer": "muon"},
    effect="validation loss of GELU² minus the best other, paired by seed",
    choices=("a GPT of 4 blocks and width 64 on bytes of one book, 200 steps, Muon as in the paper",),
)
def lowest(rows: Sequence[Row]) -> Verdict:
    """GELU² has the lowest validation loss of the GPT configurations

    Loss of GELU² minus that of the best other activation, seed by seed.
    """
    found = {a: of for a, of in losses(rows).items() if len(of) > 1 or a == "gelu2"}
    centre = {a: float(np.mean(list(v.values()))) for a, v in found.items() if a != "gelu2"}
    best = min(centre, key=lambda a: centre[a])
    above = paired(found["gelu2"], found[best])
    note = f"loss of GELU² minus that of the best other, {best}"
    return compared(above, -1, scaled=True, note=note, facts=by_seed(found))
