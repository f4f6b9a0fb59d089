"""Claims 15–22 and the tools: what drift does to sparsity, where sparsity costs accuracy, squares and their spikes."""

from __future__ import annotations

from collections.abc import Iterator

from netvitals.lab.studies import Claim, Expected
from netvitals.lab.studies.weight_drift import cost_judges
from netvitals.lab.studies.weight_drift.cost_judges import COST, NEAR

CLIFF, GPT, STEERING = "weight-drift-cliff", "weight-drift-gpt", "weight-drift-steering"


def _claims() -> Iterator[Claim]:
    yield Claim(
        "weight-drift/C15",
        GPT,
        "With ReLU, drift makes GPT activations sparse, up to 90 %",
        Expected(direction="sparsity grows"),
        cost_judges.grown(cost_judges.growth),
        "abstract",
        lambda c: c["act"] == "relu",
        cost_judges.growth_plot,
    )
    yield Claim(
        "weight-drift/C16",
        CLIFF,
        "Sparsity can be set by the point a norm centres on",
        Expected(0.0, tolerance=0.1),
        cost_judges.controllable,
        "quantile shift",
        lambda c: c["architecture"] == "mlp" and c["mechanism"] == "quantile norm",
    )
    yield Claim(
        "weight-drift/C17",
        CLIFF,
        "Accuracy is flat up to about 70 % sparsity and falls off a cliff beyond",
        Expected(direction=f"breakpoint in {NEAR[0]:g}–{NEAR[1]:g}"),
        cost_judges.cliff_verdict,
        "79 configurations",
        None,
        cost_judges.cliff_plot,
    )
    yield Claim(
        "weight-drift/C18",
        STEERING,
        "ReLUfication recovers sparsity at negligible cost (digits)",
        Expected(direction=f"at most {COST:g} of accuracy lost"),
        cost_judges.relufication,
        "§4.1",
        lambda c: c["check"] == "relufication",
    )
    yield Claim(
        "weight-drift/C18-gpt",
        GPT,
        "ReLUfication of a trained GPT recovers sparsity at negligible cost",
        Expected(direction="at most 2 % more loss after fine-tuning"),
        cost_judges.grown(cost_judges.relufied_gpt),
        "§4.1",
        lambda c: c["act"] in ("relu", "gelu"),
    )
    yield Claim(
        "weight-drift/C19",
        GPT,
        "ReLU² has a good ratio of sparsity and accuracy in GPT",
        Expected(direction="as sparse and as good as ReLU"),
        cost_judges.grown(cost_judges.squared_ratio),
        "abstract",
        lambda c: c["act"] in ("relu", "relu2"),
    )
    yield Claim(
        "weight-drift/C20",
        GPT,
        "ReLU² amplifies activation spikes in intermediate layers about 25 times",
        Expected(direction="about 25 times"),
        cost_judges.grown(cost_judges.spikes),
        "announcement",
        lambda c: c["act"] in ("relu", "relu2"),
        cost_judges.spike_plot,
    )
    yield Claim(
        "weight-drift/C21",
        GPT,
        "Clipping removes the spikes of ReLU² and lowers its loss",
        Expected(direction="lower loss in every seed"),
        cost_judges.grown(cost_judges.clipping),
        "abstract",
        lambda c: c["act"].startswith(("relu2", "gelu2")),
    )
    yield Claim(
        "weight-drift/C22",
        GPT,
        "GELU² has the lowest validation loss of the GPT configurations",
        Expected(direction="lowest"),
        cost_judges.grown(cost_judges.lowest),
        "abstract",
    )
    yield Claim(
        "weight-drift/F23",
        STEERING,
        "The readout's scale sets ⟨o, ∇ℓ⟩ and with it the sparsity that follows",
        Expected(0.0, tolerance=0.05),
        cost_judges.dial_verdict,
        "beyond the paper",
        lambda c: c["check"] == "dial",
        cost_judges.dial_plot,
    )
    yield Claim(
        "weight-drift/F24",
        STEERING,
        "Centred weights, projected gradients and centred activations each remove the drift of hidden weights",
        Expected(direction="less than a quarter is left"),
        cost_judges.suppression,
        "beyond the paper",
        lambda c: c["check"] == "suppression",
    )


CLAIMS = tuple(_claims())
