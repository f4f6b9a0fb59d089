"""Claims 7–14, 23 and 26: does the drift appear, where, and how long, judged on training runs."""

from __future__ import annotations

from collections.abc import Iterator

from netvitals_lab import Claim, Expected
from netvitals_lab.engine.claim import PAIRS
from netvitals_lab.engine.judges import matches
from netvitals_lab.papers.weight_drift import drift_judges
from netvitals_lab.papers.weight_drift.drift_judges import HARDLY

CHOSEN = (
    "a bias-free MLP of four hidden layers on random data, 300 steps",
    "two optimisers: SGD with momentum at 0.02 and Adam at 0.001",
)
SIGNS, CONTROLS, ARCHITECTURES = "weight-drift-signs", "weight-drift-controls", "weight-drift-architectures"


def _claims() -> Iterator[Claim]:
    persistence = matches(check="persistence")
    yield Claim(
        id="weight-drift/C7",
        study=SIGNS,
        statement="The covariance of gradient and input hardly counts in early training",
        expected=Expected(direction=f"|cov| at most {HARDLY:g} of |prod|, with changing sign"),
        judge=drift_judges.covariance,
        uses=persistence,
        effect="largest |cov| over |prod| of a hidden layer, at step 0 and after",
        choices=("0.06, the most of a reference run of ours, counts as hardly; the paper has no number",),
    )
    yield Claim(
        id="weight-drift/C8",
        study=SIGNS,
        statement="Weights after positive activations drift negative in early training",
        expected=Expected(direction="negative"),
        judge=drift_judges.early_drift,
        uses=persistence,
        seeds=PAIRS,
        effect="hidden drift_z after 3, 6, 12, 24 and 60 steps and at the end",
        choices=("digits, a ReLU MLP without biases", "early is no number in the paper: six horizons"),
        question="How many steps are early training? With cross-entropy on digits the sign turns in the first epoch.",
    )
    yield Claim(
        id="weight-drift/C9",
        study=CONTROLS,
        statement="Drift needs no structure in the data: it is there on random data",
        expected=Expected(direction="negative"),
        judge=drift_judges.intrinsic,
        uses=lambda c: c["check"] == "source" or (c["check"] == "random data" and c["act"] == "relu"),
        seeds=PAIRS,
        effect="hidden drift_z on fresh random data",
        choices=CHOSEN,
    )
    yield Claim(
        id="weight-drift/C10",
        study=CONTROLS,
        statement="Drift appears with ReLU, GELU and SiLU",
        expected=Expected(direction="negative"),
        judge=drift_judges.activations,
        uses=matches(check="random data", act=("relu", "gelu", "silu")),
        seeds=PAIRS,
        effect="hidden drift_z on fresh random data, the weakest activation and optimiser",
        choices=CHOSEN,
    )
    yield Claim(
        id="weight-drift/C11",
        study=ARCHITECTURES,
        statement="Drift appears in MLP, ResNet, ViT, GPT and a speech denoiser",
        expected=Expected(direction="pre-activations sink"),
        judge=drift_judges.architectures,
        seeds=PAIRS,
        effect="change of the mean input of activations, in its standard deviations",
        choices=(
            "small networks, 120 steps",
            "two optimisers: SGD with momentum and Adam; for the GPT Muon and Adam",
            "the residual network with and without BatchNorm; the paper does not say which",
        ),
        question="Does the residual network have BatchNorm, and which statistic drifts there?",
    )
    yield Claim(
        id="weight-drift/C12",
        study=CONTROLS,
        statement="Drift depends on the optimiser and grows with the learning rate",
        expected=Expected(direction="monotone"),
        judge=drift_judges.optimisers,
        uses=matches(check="sweep"),
        seeds=PAIRS,
        effect="hidden drift_z by learning rate, mean over seeds",
        choices=("a bias-free MLP on random data, 200 steps", "six optimisers with three rates each, ours"),
        plot=drift_judges.sweep_plot,
    )
    yield Claim(
        id="weight-drift/C23",
        study=SIGNS,
        statement="The sign of the gradient persists over the first ten epochs",
        expected=Expected(direction="g_pos > 0"),
        judge=drift_judges.persistence,
        uses=persistence,
        plot=drift_judges.flip_plot,
        seeds=PAIRS,
        effect="first step at which g_pos is not positive",
        choices=("digits, a ReLU MLP, two losses",),
    )
    yield Claim(
        id="weight-drift/C26",
        study=CONTROLS,
        statement="BatchNorm removes the drift of the weights; its shift takes it",
        expected=Expected(direction="weights near 0, last β negative"),
        judge=drift_judges.batch_norm,
        uses=lambda c: c["check"] == "batch norm" or (c["check"] == "random data" and c["act"] == "relu"),
        seeds=PAIRS,
        effect="hidden drift_z with BatchNorm over without",
        choices=CHOSEN,
    )
    yield Claim(
        id="weight-drift/E2",
        study=SIGNS,
        statement="At initialisation the gradient on positive pre-activations is positive in "
        "every hidden layer; tanh has none on average",
        expected=Expected(direction="positive"),
        judge=drift_judges.gradient_sign,
        uses=matches(check="init"),
    )
    yield Claim(
        id="weight-drift/P10",
        study=SIGNS,
        statement="The first step of the mean weight is −η c_l E[a x] (D6)",
        expected=Expected(1.0, tolerance=0.1),
        judge=drift_judges.first_step,
        uses=matches(check="first step"),
    )


CLAIMS = tuple(_claims())
