"""Claims 15–22 and the tools: what drift does to sparsity, where sparsity costs accuracy, squares and their spikes."""

from __future__ import annotations

from collections.abc import Iterator

from netvitals_lab import Claim, Expected
from netvitals_lab.engine.claim import PAIRS
from netvitals_lab.papers.weight_drift import cost_judges, language_judges
from netvitals_lab.papers.weight_drift.cost_judges import COST, NEAR

CLIFF, GPT, STEERING = "weight-drift-cliff", "weight-drift-gpt", "weight-drift-steering"


def _claims() -> Iterator[Claim]:
    yield Claim(
        id="weight-drift/C15",
        study=GPT,
        statement="With ReLU, drift makes GPT activations sparse, up to 90 %",
        expected=Expected(direction="sparsity grows, in some layer to 90 %"),
        judge=language_judges.grown(language_judges.growth),
        uses=lambda c: c["act"] == "relu",
        plot=language_judges.growth_plot,
        seeds=PAIRS,
        effect="share of exact zeros after training minus before, by recipe",
        choices=(
            "a GPT of 4 blocks and width 64 on bytes, 200 steps",
            "two recipes: Muon with AdamW as in the paper, AdamW alone",
        ),
        question="Which recipe and how many steps give 90 %? With other recipes the level differs.",
    )
    yield Claim(
        id="weight-drift/C16",
        study=CLIFF,
        statement="Sparsity can be set by the point a norm centres on",
        expected=Expected(0.0, tolerance=0.1),
        judge=cost_judges.controllable,
        uses=lambda c: c["mechanism"] == "quantile norm",
        effect="largest |measured − q| over architectures, data and budgets",
        choices=(
            "that a miss at some budgets is underspecified and not a failure was decided after the fact",
            "norms with a trained shift directly before every activation",
            "0.1 as tolerance; the paper has none",
        ),
    )
    yield Claim(
        id="weight-drift/C17",
        study=CLIFF,
        statement="Accuracy is flat up to about 70 % sparsity and falls off a cliff beyond",
        expected=Expected(direction=f"breakpoint in {NEAR[0]:g}–{NEAR[1]:g}"),
        judge=cost_judges.cliff_verdict,
        uses=None,
        plot=cost_judges.cliff_plot,
        effect="breakpoint of two segments through (sparsity, relative metric)",
        seeds=PAIRS,
        choices=(
            "an MLP and a plain convolutional network, digits and, where they are at hand, photographs",
            "quantile norms and top-k",
            "budgets of 1, 3 and 10 times a short run",
            "0.60 to 0.85 counts as about 70 %",
            "a group without a fall counts against it: in the judge from the start, in the text only afterwards",
            "top-k at 0.95 and longer runs of the convolutional network were left out midway, for lack of computing",
        ),
        question="How long was each configuration trained, and does the cliff stay when they train longer?",
    )
    yield Claim(
        id="weight-drift/C18",
        study=STEERING,
        statement="ReLUfication recovers sparsity at negligible cost (digits)",
        expected=Expected(direction=f"at most {COST:g} of accuracy lost"),
        judge=cost_judges.relufication,
        uses=lambda c: c["check"] == "relufication",
        seeds=PAIRS,
        effect="accuracy lost by training with ReLU instead",
        choices=("digits, an MLP", "0.01 as negligible; the paper has no number"),
    )
    yield Claim(
        id="weight-drift/C18-gpt",
        study=GPT,
        statement="ReLUfication of a trained GPT recovers sparsity at negligible cost",
        expected=Expected(direction="at most 2 % more loss than a control that is trained on equally long"),
        judge=language_judges.grown(language_judges.relufied),
        uses=lambda c: c["act"] == "gelu",
        seeds=PAIRS,
        effect="relative loss of the ReLU network above an equally trained control",
        choices=(
            "a GPT of 4 blocks and width 64 on bytes of one book, 200 steps, Muon as in the paper",
            "2 % as negligible; the paper has no number",
        ),
    )
    yield Claim(
        id="weight-drift/C19",
        study=GPT,
        statement="ReLU² has a good ratio of sparsity and accuracy in GPT",
        expected=Expected(direction="as sparse and as good as ReLU"),
        judge=language_judges.grown(language_judges.squared_ratio),
        uses=lambda c: c["act"] in ("relu", "relu2") and c["optimizer"] == "muon",
        seeds=PAIRS,
        effect="relative loss of ReLU² above ReLU, and its zeros",
        choices=(
            "a GPT of 4 blocks and width 64 on bytes of one book, 200 steps, Muon as in the paper",
            "1 % as equally good",
        ),
    )
    yield Claim(
        id="weight-drift/C20",
        study=GPT,
        statement="ReLU² amplifies activation spikes in intermediate layers about 25 times",
        expected=Expected(direction="25 times, within a factor of 2"),
        judge=language_judges.grown(language_judges.spikes),
        uses=lambda c: c["act"] in ("relu", "relu2"),
        plot=language_judges.spike_plot,
        seeds=PAIRS,
        effect="mean layer maximum of ReLU² over that of ReLU",
        choices=(
            "a GPT of 4 blocks and width 64 on bytes, 200 steps",
            "two recipes: Muon and AdamW",
            "a factor of 2 as about",
        ),
        question="With which optimizer, and at which step, was 25 measured?",
    )
    yield Claim(
        id="weight-drift/C21",
        study=GPT,
        statement="Clipping removes the spikes of ReLU² and lowers its loss",
        expected=Expected(direction="lower loss, no activation above the clip"),
        judge=language_judges.grown(language_judges.clipping),
        uses=lambda c: c["act"].startswith(("relu2", "gelu2")) and c["optimizer"] == "muon",
        seeds=PAIRS,
        effect="validation loss saved by the clip, paired by seed",
        choices=("a GPT of 4 blocks and width 64 on bytes of one book, 200 steps, Muon as in the paper",),
    )
    yield Claim(
        id="weight-drift/C21-thresholds",
        study=GPT,
        statement="Clipped ReLU² has a lower loss than ReLU² wherever it is clipped: at 6, 15 or 50",
        expected=Expected(direction="lower at each"),
        judge=language_judges.grown(language_judges.thresholds),
        uses=lambda c: c["act"].startswith("relu2") and c["optimizer"] == "muon",
        seeds=PAIRS,
        effect="validation loss saved by the clip, paired by seed",
        choices=("a GPT of 4 blocks and width 64 on bytes of one book, 200 steps, Muon as in the paper",),
        question="Which thresholds were tried, and how far do their losses differ?",
    )
    yield Claim(
        id="weight-drift/C22",
        study=GPT,
        statement="GELU² has the lowest validation loss of the GPT configurations",
        expected=Expected(direction="lowest"),
        judge=language_judges.grown(language_judges.lowest),
        seeds=PAIRS,
        effect="validation loss of GELU² minus the best other, paired by seed",
        choices=("a GPT of 4 blocks and width 64 on bytes of one book, 200 steps, Muon as in the paper",),
        uses=lambda c: c["optimizer"] == "muon",
    )
    yield Claim(
        id="weight-drift/F23",
        study=STEERING,
        statement="The readout's scale sets ⟨o, ∇ℓ⟩ and with it the sparsity that follows",
        expected=Expected(0.0, tolerance=0.05),
        judge=cost_judges.dial_verdict,
        uses=lambda c: c["check"] == "dial",
        plot=cost_judges.dial_plot,
        seeds=PAIRS,
        effect="largest gap between the sparsity that the curve of scales foretells and the measured one",
        choices=("digits, a bias-free MLP of four hidden layers, Adam at 0.001, 400 steps", "0.05 as tolerance"),
    )
    yield Claim(
        id="weight-drift/F24",
        study=STEERING,
        statement="Centred weights, projected gradients and centred activations each remove the drift "
        "of hidden weights",
        expected=Expected(direction="less than a quarter is left"),
        judge=cost_judges.suppression,
        uses=lambda c: c["check"] == "suppression",
        seeds=PAIRS,
        effect="largest share of the hidden drift that is left, random data, SGD",
        choices=("random data and digits, a bias-free MLP of four hidden layers, 300 steps", "a quarter as removed"),
    )


CLAIMS = tuple(_claims())
