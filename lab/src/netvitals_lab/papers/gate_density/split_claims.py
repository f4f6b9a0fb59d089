"""The split of activations and what explains it: claims C4, C6, C8, C12, C13 and experiments E5, E12.

A verdict on a trend names its pooling: every element, every site, or every channel may count alike, and sites behind a
norm and behind an addition are read apart. Changes are since before training, in points of density.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from netvitals_lab import Claim, Expected, Plot, Row, Verdict
from netvitals_lab.engine.claim import PAIRS
from netvitals_lab.engine.judges import matches
from netvitals_lab.papers.gate_density import _pictures as pictures
from netvitals_lab.papers.gate_density import split_judges
from netvitals_lab.papers.gate_density._training import SMOOTH
from netvitals_lab.papers.gate_density.split_judges import AIM
from netvitals_lab.papers.gate_density.trajectories import TEACHER

MLP, IMAGES = "gate-density-trajectories", "gate-density-images"


def _per_data(name: str) -> Iterator[Claim]:
    data, tag = (TEACHER, "-teacher") if name == "teacher" else ("digits", "-digits")
    where = f"BatchNorm perceptron, {name}"
    sgd = matches(data=data, optimizer="sgd")
    epoch = partial(pictures.density_by_epoch, theta=0.1)
    yield Claim(
        id=f"gate-density/C4{tag}",
        study=MLP,
        seeds=PAIRS,
        statement=f"Under SGD with decay density falls for ReLU and rises for GELU, SiLU and Mish ({where})",
        expected=Expected(direction="ReLU down, smooth up, every seed"),
        judge=split_judges.perceptron_split,
        section="§4.1",
        uses=sgd,
        plot=epoch,
    )
    yield Claim(
        id=f"gate-density/C6{tag}",
        study=MLP,
        seeds=PAIRS,
        statement=f"The sign of the change is the same at five thresholds ({where})",
        expected=Expected(0.0, tolerance=0.0),
        judge=split_judges.thresholds,
        section="§4.3",
        uses=sgd,
        plot=pictures.by_threshold,
    )
    yield Claim(
        id=f"gate-density/E5{tag}",
        study=MLP,
        seeds=PAIRS,
        statement=f"Smooth activations rise by less at θ = .01 than at .10, and the mean gate falls for all ({where})",
        expected=Expected(direction="0 < rise at .01 < rise at .10; mean gate falls"),
        judge=split_judges.magnitudes,
        section="§4.3",
        uses=sgd,
        plot=partial(pictures.quantile_bands, act="gelu"),
    )
    yield Claim(
        id=f"gate-density/C8{tag}",
        study=MLP,
        seeds=PAIRS,
        statement=f"γ and σ collapse under SGD with coupled decay and not under AdamW at the paper's decay ({where})",
        expected=Expected(direction="σ below half under SGD, within 15 % under AdamW"),
        judge=split_judges.collapse,
        section="§5, Table 1",
        uses=matches(data=data),
        plot=pictures.sigma_by_optimizer,
    )
    yield Claim(
        id=f"gate-density/C12{tag}",
        study=MLP,
        seeds=PAIRS,
        statement=f"By channel the raw margin fails for smooth activations and the normalised one works ({where})",
        expected=Expected(direction="normalised above raw and half, every cell"),
        judge=split_judges.channels,
        section="§5.2",
        uses=sgd,
        plot=pictures.correlations,
    )
    yield Claim(
        id=f"gate-density/C13{tag}",
        study=MLP,
        seeds=PAIRS,
        statement=f"The same margin, not refitted, tells the trend of channels under AdamW ({where})",
        expected=Expected(direction="most channels agree, in every cell"),
        judge=split_judges.transfer,
        section="§5.3",
        uses=matches(data=data, optimizer=("adam", "adamw")),
        plot=pictures.margins,
    )
    yield Claim(
        id=f"gate-density/E12-adam{tag}",
        study=MLP,
        seeds=PAIRS,
        statement=f"Under Adam the split is that of SGD ({where})",
        expected=Expected(direction="ReLU down, smooth up"),
        judge=partial(split_judges.optimizer, name="adam", falls=("relu",)),
        section="§4.5",
        uses=matches(data=data, optimizer="adam"),
    )
    yield Claim(
        id=f"gate-density/E12-adamw{tag}",
        study=MLP,
        seeds=PAIRS,
        statement=f"Under AdamW density falls for all four ({where})",
        expected=Expected(direction="all down"),
        judge=partial(split_judges.optimizer, name="adamw", falls=("relu", *SMOOTH)),
        section="§4.5",
        uses=matches(data=data, optimizer="adamw"),
    )
    yield Claim(
        id=f"gate-density/X-law{tag}",
        study=MLP,
        seeds=PAIRS,
        statement="Beyond the paper: the interval-union law gives the final density "
        f"of a site within 2 points in the median ({where})",
        expected=Expected(0.0, tolerance=AIM),
        judge=split_judges.law,
        uses=sgd,
        plot=pictures.predicted,
    )


def _image(
    name: str,
    statement: str,
    expected: Expected,
    judge: Callable[[Sequence[Row]], Verdict],
    plot: Callable[[Sequence[Row]], Plot],
    section: str = "",
) -> Claim:
    return Claim(
        id=f"gate-density/{name}",
        study=IMAGES,
        seeds=PAIRS,
        statement=statement,
        expected=expected,
        judge=judge,
        section=section,
        plot=plot,
        uses=matches(optimizer="sgd"),
    )


def _image_claims() -> Iterator[Claim]:
    both = Expected(direction="ReLU down, smooth up, every seed, θ = .01 and .10")
    yield _image(
        "C4",
        "Under SGD with decay density falls for ReLU and rises for GELU, SiLU and Mish (ResNet-18 skeleton on images)",
        both,
        split_judges.split_verdict,
        partial(pictures.density_by_epoch, beside="rank_entropy"),
        "§4.1",
    )
    for pooling in ("element", "site", "channel"):
        yield _image(
            f"C4-by-{pooling}",
            f"The same, every {pooling} counting alike",
            both,
            partial(split_judges.pooled, pooling=pooling, kind="all"),
            partial(pictures.density_by_epoch, theta=0.01, pooling=pooling),
        )
    for kind, words in (("bn_direct", "directly behind a norm"), ("post_add", "behind a residual addition")):
        yield _image(
            f"C4-{kind}",
            f"The same, only sites {words}, by channel",
            both,
            partial(split_judges.pooled, pooling="channel", kind=kind),
            partial(pictures.density_by_epoch, theta=0.01, pooling="channel", kind=kind),
        )
    yield _image(
        "X-pooling",
        "Beyond the paper: under some pooling the density of ReLU falls in every seed",
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
        "§4.3",
    )
    yield _image(
        "C8",
        "γ and σ collapse under SGD with coupled decay (images)",
        Expected(direction="σ and γ below half"),
        split_judges.collapse,
        pictures.sigma_by_optimizer,
        "§5, Table 1",
    )
    yield _image(
        "C12",
        "By channel the raw margin fails for smooth activations and the normalised one works (images)",
        Expected(direction="normalised above raw and above half in every cell"),
        split_judges.channels,
        pictures.correlations,
        "§5.2",
    )
    yield Claim(
        id="gate-density/C13",
        study=IMAGES,
        seeds=PAIRS,
        statement="The same margin, not refitted, tells the trend of channels under AdamW (images, S matched to SGD)",
        expected=Expected(direction="most channels agree, in every cell"),
        judge=split_judges.transfer,
        section="§5.3",
        uses=matches(optimizer=("adam", "adamw")),
        plot=pictures.margins,
    )
    yield _image(
        "X-law",
        "Beyond the paper: the interval-union law gives the final density of a site within 2 points "
        "in the median (images)",
        Expected(0.0, tolerance=AIM),
        split_judges.law,
        pictures.predicted,
    )


CLAIMS = (*_image_claims(), *_per_data("digits"), *_per_data("teacher"))
