"""Checks of the batches: values, scale, balance, overlap with a second loader, workers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from netvitals.preflights.loader import repeated_noise
from netvitals.preflights.loop import NORMS
from netvitals.preflights.setup import parts_of

if TYPE_CHECKING:
    from netvitals.preflights.run import Bench

LARGE = 30.0  # root mean square of a feature; standardised ones have 1
UNEQUAL = 1000.0  # between the standard deviations of features that vary
RARE = 0.05  # share of the positive labels of a binary loss
OVERLAP = 0.01  # share of the second loader's examples that the first one has as well


def feature_table(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, standard deviation and root mean square of each feature: columns of a table, channels of an image."""
    x = x.detach().double()
    rows = x.reshape(-1, 1) if x.ndim < 2 else x.reshape(-1, x.shape[-1]) if x.ndim < 4 else x.movedim(1, -1)
    rows = rows.reshape(-1, rows.shape[-1])
    mean = rows.mean(0)
    return mean, (rows - mean).square().mean(0).sqrt(), rows.square().mean(0).sqrt()


def first_input(bench: Bench) -> Tensor | None:
    """The first floating input of all batches, one after the other; of the first batch where shapes differ."""
    found = []
    for batch in bench.batches:
        inputs = [x for x in parts_of(bench.setup, batch)[0] if x.is_floating_point() and x.ndim]
        if inputs:
            found.append(inputs[0])
    same = [x for x in found if x.shape[1:] == found[0].shape[1:]]
    return torch.cat([x.float() for x in same]) if found else None


def input_not_finite(bench: Bench) -> None:
    """NaN and infinity in inputs."""
    bad = total = 0
    for batch in bench.batches:
        for x in parts_of(bench.setup, batch)[0]:
            if x.is_floating_point():
                total += x.numel()
                bad += int((~torch.isfinite(x)).sum())
    if not total:
        return bench.skip("not applicable", "no input has floating-point numbers")
    bench.answer(
        bad > 0,
        f"{bad} of {total} input values are NaN or infinite" if bad else f"all {total} input values are finite",
        healthy="none",
        fix="Drop these rows when loading the data, or replace the values: x = torch.nan_to_num(x).",
    )


def unnormalised_input(bench: Bench) -> None:
    """Features that are far larger than 1, or than each other."""
    x = first_input(bench)
    if x is None:
        return bench.skip("not applicable", "no input has floating-point numbers")
    mean, spread, size = feature_table(x[torch.isfinite(x.reshape(len(x), -1)).all(1)])
    bench.features = tuple(zip(mean.tolist(), spread.tolist()))[:512]
    first = bench.loop.first_layer
    varying = spread[spread > 1e-6 * size.clamp_min(1e-30)]
    if not len(varying):
        return bench.skip("not enough data", "no feature varies")
    at, largest = int(size.argmax()), float(size.max())
    apart = float(varying.max() / varying.min())
    words = f"input feature {at} is the largest: root mean square {largest:.3g}, mean {float(mean[at]):.3g}"
    if isinstance(first, NORMS):
        return bench.answer(False, f"{words}; the model begins with {type(first).__name__}", healthy=f"< {LARGE:g}")
    unequal = apart > UNEQUAL and x.ndim == 2 and largest > 3
    bench.answer(
        largest > LARGE or unequal,
        words + (f"; standard deviations differ by a factor of {apart:.3g}" if len(varying) > 1 else ""),
        healthy=f"root mean square < {LARGE:g}, factor < {UNEQUAL:g}",
        why="Gradients grow with the inputs, and one learning rate cannot suit features of very different scale.",
        fix="Normalise each feature: x = (x - x_train.mean(0)) / x_train.std(0).",
    )


def imbalanced_labels(bench: Bench) -> None:
    """A binary loss without weights where one label is rare."""
    labels = bench.loop.facts.get("targets") or {}
    loss = bench.loop.loss
    if loss is None or loss.kind not in ("bce", "bce_logits") or loss.target is None:
        return bench.skip("not applicable", "it needs a binary cross-entropy without weights")
    share = float(labels.get("mean", math.nan))
    if not math.isfinite(share) or labels.get("columns", 1) > 1 or not {labels["low"], labels["high"]} <= {0.0, 1.0}:
        return bench.skip("not applicable", "it needs one label of 0 or 1 for each example")
    rare = min(share, 1 - share)
    bench.answer(
        rare < RARE,
        f"{share:.2%} of the labels are 1",
        healthy=f"{RARE:.0%} to {1 - RARE:.0%}, or a pos_weight",
        why="A constant prediction already has a low loss, so the model can ignore the rare class.",
        fix=f"BCEWithLogitsLoss(pos_weight=torch.tensor({(1 - share) / max(share, 1e-9):.3g})), and evaluate by "
        f"recall.",
    )


def overlap(bench: Bench) -> None:
    """Examples of the second loader that the first one has."""
    if bench.validation is None:
        return bench.skip("not applicable", "no second loader was given")
    ours: set[bytes] = set()
    theirs: list[bytes] = []
    for batch in bench.batches:
        ours.update(_rows(parts_of(bench.setup, batch)[0]))
    for batch in bench.validation:
        theirs += _rows(parts_of(bench.setup, batch)[0])
    if len(set(theirs)) < 8 or _few_values(list(ours)):
        return bench.skip("not enough data", "it needs eight different examples")
    shared = sum(row in ours for row in theirs) / len(theirs)
    bench.answer(
        shared > OVERLAP,
        f"{shared:.1%} of {len(theirs)} examples of the second loader also occur in the first",
        healthy=f"≤ {OVERLAP:.0%}",
        why="Scores on examples from the training set do not measure generalisation.",
        fix="Split once, before augmentation: train, test = torch.utils.data.random_split(dataset, [0.9, 0.1]).",
    )


def workers_repeat(bench: Bench) -> None:
    """Workers that draw the same random numbers."""
    found = repeated_noise(bench.loader)
    if found is None:
        return bench.skip("not applicable", "it needs two workers and a random augmentation")
    bench.answer(
        found["same"] > 1,
        f"{found['same']} of {found['workers']} workers apply the same random augmentation to an example",
        healthy="1",
        why="Each worker gets a copy of the dataset's random generator in the same state.",
        fix="Seed the generator in each worker: worker_init_fn=lambda i: setattr(get_worker_info().dataset, 'rng', "
        "np.random.default_rng(torch.initial_seed() % 2**32)).",
    )


def _rows(parts: list[Tensor]) -> list[bytes]:
    n = max((len(x) for x in parts if x.ndim), default=0)
    parts = [x for x in parts if x.ndim and len(x) == n]
    return [
        b"".join(x[i].contiguous().cpu().reshape(-1).view(torch.uint8).numpy().tobytes() for x in parts)
        for i in range(n)
    ]


def _few_values(rows: list[bytes]) -> bool:
    """Whether examples are so short that chance repeats them."""
    return not rows or max(map(len, rows)) < 12
