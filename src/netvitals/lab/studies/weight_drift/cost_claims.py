"""Claims 15–22 and the tools: what drift does to sparsity, where sparsity costs accuracy, squares and their spikes."""

from __future__ import annotations

from collections.abc import Iterator

from netvitals.lab.studies import Claim, Expected
from netvitals.lab.studies.weight_drift import cost_judges
from netvitals.lab.studies.weight_drift.cost_judges import COST, NEAR

CLIFF, GPT, STEERING = "weight-drift-cliff", "weight-drift-gpt", "weight-drift-steering"


def _claims() -> Iterator[Claim]:
    yield Claim(
        id="weight-drift/C15",
        study=GPT,
        statement="With ReLU, drift makes GPT activations sparse, up to 90 %",
        expected=Expected(direction="sparsity grows"),
        judge=cost_judges.grown(cost_judges.growth),
        section="abstract",
        uses=lambda c: c["act"] == "relu",
        plot=cost_judges.growth_plot,
    )
    yield Claim(
        id="weight-drift/C16",
        study=CLIFF,
        statement="Sparsity can be set by the point a norm centres on",
        expected=Expected(0.0, tolerance=0.1),
        judge=cost_judges.controllable,
        section="quantile shift",
        uses=lambda c: c["architecture"] == "mlp" and c["mechanism"] == "quantile norm",
    )
    yield Claim(
        id="weight-drift/C17",
        study=CLIFF,
        statement="Accuracy is flat up to about 70 % sparsity and falls off a cliff beyond",
        expected=Expected(direction=f"breakpoint in {NEAR[0]:g}–{NEAR[1]:g}"),
        judge=cost_judges.cliff_verdict,
        section="79 configurations",
        uses=None,
        plot=cost_judges.cliff_plot,
    )
    yield Claim(
        id="weight-drift/C18",
        study=STEERING,
        statement="ReLUfication recovers sparsity at negligible cost (digits)",
        expected=Expected(direction=f"at most {COST:g} of accuracy lost"),
        judge=cost_judges.relufication,
        section="§4.1",
        uses=lambda c: c["check"] == "relufication",
    )
    yield Claim(
        id="weight-drift/C18-gpt",
        study=GPT,
        statement="ReLUfication of a trained GPT recovers sparsity at negligible cost",
        expected=Expected(direction="at most 2 % more loss after fine-tuning"),
        judge=cost_judges.grown(cost_judges.relufied_gpt),
        section="§4.1",
        uses=lambda c: c["act"] in ("relu", "gelu"),
    )
    yield Claim(
        id="weight-drift/C19",
        study=GPT,
        statement="ReLU² has a good ratio of sparsity and accuracy in GPT",
        expected=Expected(direction="as sparse and as good as ReLU"),
        judge=cost_judges.grown(cost_judges.squared_ratio),
        section="abstract",
        uses=lambda c: c["act"] in ("relu", "relu2"),
    )
    yield Claim(
        id="weight-drift/C20",
        study=GPT,
        statement="ReLU² amplifies activation spikes in intermediate layers about 25 times",
        expected=Expected(direction="about 25 times"),
        judge=cost_judges.grown(cost_judges.spikes),
        section="announcement",
        uses=lambda c: c["act"] in ("relu", "relu2"),
        plot=cost_judges.spike_plot,
    )
    yield Claim(
        id="weight-drift/C21",
        study=GPT,
        statement="Clipping removes the spikes of ReLU² and lowers its loss",
        expected=Expected(direction="lower loss in every seed"),
        judge=cost_judges.grown(cost_judges.clipping),
        section="abstract",
        uses=lambda c: c["act"].startswith(("relu2", "gelu2")),
    )
    yield Claim(
        id="weight-drift/C22",
        study=GPT,
        statement="GELU² has the lowest validation loss of the GPT configurations",
        expected=Expected(direction="lowest"),
        judge=cost_judges.grown(cost_judges.lowest),
        section="abstract",
    )
    yield Claim(
        id="weight-drift/F23",
        study=STEERING,
        statement="The readout's scale sets ⟨o, ∇ℓ⟩ and with it the sparsity that follows",
        expected=Expected(0.0, tolerance=0.05),
        judge=cost_judges.dial_verdict,
        section="beyond the paper",
        uses=lambda c: c["check"] == "dial",
        plot=cost_judges.dial_plot,
    )
    yield Claim(
        id="weight-drift/F24",
        study=STEERING,
        statement="Centred weights, projected gradients and centred activations each remove the drift "
        "of hidden weights",
        expected=Expected(direction="less than a quarter is left"),
        judge=cost_judges.suppression,
        section="beyond the paper",
        uses=lambda c: c["check"] == "suppression",
    )


CLAIMS = tuple(_claims())
