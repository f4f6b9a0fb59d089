"""The split of activations and what explains it: claims C4, C6, C8, C12, C13 and experiments E5, E12.

A verdict on a trend names its pooling: every element, every site, or every channel may count alike, and sites behind a
norm and behind an addition are read apart. Changes are since before training, in points of density.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from netvitals_lab import Claim, Expected, Plot, Row, Verdict
from netvitals_lab.engine.claim import PAIRS
from netvitals_lab.engine.judges import at_level, by_factor, matches
from netvitals_lab.papers.gate_density import _pictures as pictures
from netvitals_lab.papers.gate_density import split_judges
from netvitals_lab.papers.gate_density._training import FOUR
from netvitals_lab.papers.gate_density.split_judges import AIM
from netvitals_lab.papers.gate_density.table_claims import images
from netvitals_lab.papers.gate_density.trajectories import SCHEDULED

MLP, IMAGES, CNN = "gate-density-trajectories", "gate-density-images", "gate-density-cnn"


def _perceptrons() -> Iterator[Claim]:
    """On a BatchNorm perceptron; the data, digits and a teacher, are a factor."""
    where = "BatchNorm perceptron"
    sgd = matches(optimizer="sgd")
    asked = partial(by_factor, factor="data")
    drawn = partial(at_level, factor="data", level="digits")
    epoch = partial(pictures.density_by_epoch, theta=0.1)
    yield Claim(
        id="gate-density/C4-perceptron",
        study=MLP,
        seeds=PAIRS,
        statement=f"Under SGD with decay density falls for ReLU and rises for GELU, SiLU and Mish ({where})",
        expected=Expected(direction="ReLU down, smooth up, every seed"),
        judge=asked(split_judges.perceptron_split),
        uses=sgd,
        plot=drawn(epoch),
    )
    yield Claim(
        id="gate-density/C6-perceptron",
        study=MLP,
        seeds=PAIRS,
        statement=f"The sign of the change is the same at five thresholds ({where})",
        expected=Expected(0.0, tolerance=0.0),
        judge=asked(split_judges.thresholds),
        uses=sgd,
        plot=drawn(pictures.by_threshold),
    )
    yield Claim(
        id="gate-density/C8-perceptron",
        study=MLP,
        seeds=PAIRS,
        statement=f"γ and σ collapse under SGD with coupled decay and not under AdamW at the paper's decay ({where})",
        expected=Expected(direction="σ below half under SGD, within 15 % under AdamW"),
        judge=asked(split_judges.collapse),
        uses=None,
        plot=drawn(pictures.sigma_by_optimizer),
    )
    yield Claim(
        id="gate-density/C12-perceptron",
        study=MLP,
        seeds=PAIRS,
        statement=f"By channel the raw margin fails for smooth activations and the normalised one works ({where})",
        expected=Expected(direction="normalised above raw and half, every cell"),
        judge=asked(split_judges.channels),
        uses=sgd,
        plot=drawn(pictures.correlations),
    )
    yield Claim(
        id="gate-density/C13-perceptron",
        study=MLP,
        seeds=PAIRS,
        statement=f"The same margin, not refitted, tells the trend of channels under AdamW ({where})",
        expected=Expected(direction="most channels agree, in every cell"),
        judge=asked(split_judges.transfer),
        uses=matches(optimizer=("adam", "adamw")),
        plot=drawn(pictures.margins),
    )
    yield Claim(
        id="gate-density/X-law-perceptron",
        study=MLP,
        seeds=PAIRS,
        statement=f"The interval-union law gives the final density of a site within 2 points in the median ({where})",
        expected=Expected(0.0, tolerance=AIM),
        judge=asked(split_judges.law),
        uses=sgd,
        plot=drawn(pictures.predicted),
    )


def _image(
    name: str,
    statement: str,
    expected: Expected,
    judge: Callable[[Sequence[Row]], Verdict],
    plot: Callable[[Sequence[Row]], Plot] | None = None,
    optimizer: str = "sgd",
    study: str = IMAGES,
) -> Claim:
    """A claim on the paper's four activations, at the decay that the paper's schedule sums to."""
    return Claim(
        id=f"gate-density/{name}",
        study=study,
        seeds=PAIRS,
        statement=statement,
        expected=expected,
        judge=judge,
        plot=plot,
        uses=images(optimizer=optimizer, S=SCHEDULED[optimizer]),
    )


def _image_claims() -> Iterator[Claim]:
    both = Expected(direction="ReLU down, smooth up, every seed, θ = .01 and .10")
    yield _image(
        "C4",
        "Under SGD with decay density falls for ReLU and rises for GELU, SiLU and Mish (ResNet-18 skeleton on images)",
        both,
        split_judges.split_verdict,
        partial(pictures.density_by_epoch, beside="rank_entropy"),
    )
    yield _image(
        "C4-vgg",
        "Under SGD with decay density falls for ReLU and rises for GELU, SiLU and Mish (VGG-11 skeleton on images)",
        both,
        split_judges.split_verdict,
        partial(pictures.density_by_epoch, theta=0.1),
        study=CNN,
    )
    yield _image(
        "X-pooling",
        "Under some pooling the density of ReLU falls in every seed",
        Expected(direction="about −13 points"),
        split_judges.declining_pooling,
        partial(pictures.density_by_epoch, theta=0.01, pooling="channel"),
    )
    yield _image(
        "C6",
        "The sign of the change is the same at five thresholds (images)",
        Expected(0.0, tolerance=0.0),
        split_judges.thresholds,
        pictures.by_threshold,
    )
    yield _image(
        "C8",
        "γ and σ collapse under SGD with coupled decay (images)",
        Expected(direction="σ and γ below half"),
        split_judges.collapse,
        pictures.sigma_by_optimizer,
    )
    yield _image(
        "C12",
        "By channel the raw margin fails for smooth activations and the normalised one works (images)",
        Expected(direction="normalised above raw and above half in every cell"),
        split_judges.channels,
        pictures.correlations,
    )
    yield _image(
        "C13",
        "The same margin, not refitted, tells the trend of channels under AdamW (images)",
        Expected(direction="most channels agree, in every cell"),
        split_judges.transfer,
        pictures.margins,
        "adamw",
        CNN,
    )
    yield _image(
        "E12-adam",
        "Under Adam the split is that of SGD (images)",
        Expected(direction="ReLU down, smooth up"),
        partial(split_judges.optimizer, name="adam", falls=("relu",)),
        plot=partial(pictures.density_by_epoch, theta=0.01),
        optimizer="adam",
        study=CNN,
    )
    yield _image(
        "E12-adamw",
        "Under AdamW density falls for all four (images)",
        Expected(direction="all down"),
        partial(split_judges.optimizer, name="adamw", falls=FOUR),
        plot=partial(pictures.density_by_epoch, theta=0.01),
        optimizer="adamw",
        study=CNN,
    )
    yield _image(
        "E5",
        "Smooth activations rise by less at θ = .01 than at .10, and the mean gate falls for all (images)",
        Expected(direction="0 < rise at .01 < rise at .10; mean gate falls"),
        split_judges.magnitudes,
        partial(pictures.quantile_bands, act="gelu"),
        study=CNN,
    )
    yield _image(
        "X-law",
        "The interval-union law gives the final density of a site within 2 points in the median (images)",
        Expected(0.0, tolerance=AIM),
        split_judges.law,
        pictures.predicted,
    )


CLAIMS = (*_image_claims(), *_perceptrons())
