"""Claims 7–14, 23 and 26: does the drift appear, where, and how long, judged on training runs."""

from __future__ import annotations

from collections.abc import Iterator

from netvitals.lab.engine.judges import matches
from netvitals.lab.studies import (
    Claim,
    Expected,
)
from netvitals.lab.studies.weight_drift import drift_judges
from netvitals.lab.studies.weight_drift.drift_judges import NONE, START

SIGNS, CONTROLS, ARCHITECTURES = "weight-drift-signs", "weight-drift-controls", "weight-drift-architectures"


def _claims() -> Iterator[Claim]:
    persistence = matches(check="persistence")
    random = matches(check="random data")
    yield Claim(
        "weight-drift/C7",
        SIGNS,
        "The covariance of gradient and input hardly counts in early training",
        Expected(direction=f"|cov| ≤ {START:g} |prod| at step 0, then small with changing sign"),
        drift_judges.covariance,
        "Remark A.2, Fig. 4",
        persistence,
    )
    yield Claim(
        "weight-drift/C8",
        SIGNS,
        "Weights after positive activations drift negative in early training",
        Expected(direction="negative"),
        drift_judges.early_drift,
        "abstract",
        persistence,
    )
    yield Claim(
        "weight-drift/C9",
        CONTROLS,
        "Drift needs no structure in the data: it is there on random data",
        Expected(direction="negative"),
        drift_judges.intrinsic,
        "announcement",
        lambda c: c["check"] == "source" or (c["check"] == "random data" and c["act"] == "relu"),
    )
    yield Claim(
        "weight-drift/C10",
        CONTROLS,
        "Drift appears with ReLU, GELU and SiLU",
        Expected(direction="negative"),
        drift_judges.activations,
        "abstract",
        matches(check="random data", act=("relu", "gelu", "silu")),
    )
    yield Claim(
        "weight-drift/C11",
        ARCHITECTURES,
        "Drift appears in MLP, ResNet, ViT, GPT and a speech denoiser",
        Expected(direction="pre-activations sink"),
        drift_judges.architectures,
        "abstract",
    )
    yield Claim(
        "weight-drift/C12",
        CONTROLS,
        "Drift depends on the optimiser and grows with the learning rate",
        Expected(direction="monotone"),
        drift_judges.optimisers,
        "paragraph on optimisers",
        matches(check="sweep"),
        drift_judges.sweep_plot,
    )
    yield Claim(
        "weight-drift/C13",
        CONTROLS,
        "Symmetric activations do not drift, nor does a layer with centred input",
        Expected(0.0, tolerance=NONE),
        drift_judges.symmetric,
        "beyond the paper",
        random,
    )
    yield Claim(
        "weight-drift/C14",
        CONTROLS,
        "Sign rule: alternating ReLU and −ReLU(−x) drift positive",
        Expected(direction="positive"),
        drift_judges.sign_rule,
        "beyond the paper",
        random,
    )
    yield Claim(
        "weight-drift/C23",
        SIGNS,
        "The sign of the gradient persists over the first ten epochs",
        Expected(direction="g_pos > 0"),
        drift_judges.persistence,
        "rebuttal",
        persistence,
        drift_judges.flip_plot,
    )
    yield Claim(
        "weight-drift/C26",
        CONTROLS,
        "BatchNorm removes the drift of the weights; its shift takes it",
        Expected(direction="weights near 0, last β negative"),
        drift_judges.batch_norm,
        "beyond the paper",
        lambda c: c["check"] == "batch norm" or (c["check"] == "random data" and c["act"] == "relu"),
    )
    yield Claim(
        "weight-drift/E2",
        SIGNS,
        "At initialisation the gradient on positive pre-activations is positive in "
        "every hidden layer; tanh has none on average",
        Expected(direction="positive"),
        drift_judges.gradient_sign,
        "Theorem 1.2",
        matches(check="init"),
    )
    yield Claim(
        "weight-drift/P10",
        SIGNS,
        "The first step of the mean weight is −η c_l E[a x] (D6)",
        Expected(1.0, tolerance=0.1),
        drift_judges.first_step,
        "beyond the paper",
        matches(check="first step"),
    )


CLAIMS = tuple(_claims())
