"""Our Muon beside torch's own, where both can do the same."""

import pytest
import torch

from netvitals import optim

pytestmark = pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="this torch has no Muon")
ROUNDING = 2.0**-8  # torch orthogonalises in bfloat16, with eight bits; five steps each add a few such errors


@pytest.mark.parametrize("nesterov", [True, False])
@pytest.mark.parametrize(("ours", "theirs"), [("aspect", "original"), ("adam", "match_rms_adamw")])
@pytest.mark.parametrize("shape", [(12, 5), (6, 20), (8, 8)])
def test_steps_agree_with_torch_up_to_its_bfloat16(shape, ours, theirs, nesterov):
    gen = torch.Generator().manual_seed(0)
    start = torch.randn(shape, generator=gen, dtype=torch.float64)
    a, b = (torch.nn.Parameter(start.clone()) for _ in range(2))
    common = {"lr": 0.1, "momentum": 0.9, "nesterov": nesterov, "weight_decay": 0.3}
    first = optim.Muon([a], scale=ours, **common)
    second = torch.optim.Muon([b], adjust_lr_fn=theirs, **common)
    before = start
    for _ in range(4):
        # a spectrum away from zero: near zero the quintic amplifies what bfloat16 has rounded
        u, _, v = torch.linalg.svd(torch.randn(shape, generator=gen, dtype=torch.float64), full_matrices=False)
        gradient = u @ torch.diag(torch.linspace(0.5, 1, min(shape), dtype=torch.float64)) @ v
        a.grad, b.grad = gradient.clone(), gradient.clone()
        first.step()
        second.step()
        step = (b.detach() - before).norm()
        assert (a.detach() - b.detach()).norm() < 10 * ROUNDING * step, "steps differ by more than rounding"
        before = b.detach().clone()
        with torch.no_grad():
            a.copy_(b)  # each step is compared from one place; the momentum buffers run on


def test_torch_has_no_room_for_kernels_or_fused_projections():
    """Why ours is kept: kernels of convolutions, blocks of a fused matrix, and the model's own precision."""
    kernel = torch.nn.Parameter(torch.randn(4, 3, 2, 2))
    with pytest.raises(ValueError, match="2D"):
        torch.optim.Muon([kernel])
    kernel.grad = torch.randn(4, 3, 2, 2)
    before = kernel.detach().clone()
    optim.Muon([kernel], lr=0.1, scale="none").step()
    moved = ((before - kernel.detach()) / 0.1).flatten(1)
    assert torch.linalg.svdvals(moved) == pytest.approx(1.0, abs=0.4)
