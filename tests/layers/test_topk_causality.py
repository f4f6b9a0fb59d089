"""Sparsity chosen inside a language model must not let the past see the future."""

import pytest
import torch

from netvitals_lab import models as lab


@pytest.mark.parametrize(
    ("spec", "causal"), [("topk:gelu:0.75", True), ("topk:gelu:0.75:sample", False), ("quantile_relu:0.75", True)]
)
def test_changing_the_future_of_a_gpt(spec, causal):
    torch.manual_seed(0)
    model = lab.build("gpt-micro", act=spec).eval()
    tokens = torch.randint(0, 256, (2, 32))
    changed = tokens.clone()
    changed[:, 20:] = torch.randint(0, 256, (2, 12))
    with torch.no_grad():
        gap = (model(tokens) - model(changed))[:, :20].abs().max().item()
    assert (gap < 1e-6) is causal, gap
