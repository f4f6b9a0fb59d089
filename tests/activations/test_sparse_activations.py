"""Top-k and quantile activations: exact shares, who competes with whom, causality, running thresholds."""

import copy

import pytest
import torch
from torch import nn

from netvitals import activations as A
from netvitals.activations import QuantileReLU, TopK, kth, topk_mask

SHARES = (0.10, 0.25, 0.50, 0.75, 0.90)


@pytest.mark.parametrize("sparsity", SHARES)
@pytest.mark.parametrize("granularity", ["token", "sample", "channel", "batch", "global"])
def test_share_is_exact_in_every_competition(sparsity, granularity):
    x = torch.randn(20, 20, 20)
    zeros = ~topk_mask(x, sparsity, granularity)
    competition = {"token": (2,), "sample": (1, 2), "channel": (0, 1), "batch": (0,), "global": (0, 1, 2)}[granularity]
    assert (zeros.double().mean(dim=competition) - sparsity).abs().max() < 1e-6


def test_share_is_exact_with_ties():
    y = TopK(nn.Identity(), 0.75)(torch.ones(3, 8))
    assert (y != 0).sum(dim=-1).tolist() == [2, 2, 2]
    y = TopK(A.get("relu2:1"), 0.5)(torch.full((3, 8), 5.0))  # all clipped to the same value
    assert (y != 0).sum(dim=-1).tolist() == [4, 4, 4]


def test_selection_is_by_signed_value_and_keeps_the_large_side():
    x = torch.tensor([[-9.0, 1.0, 2.0, -3.0]])
    assert TopK(nn.Identity(), 0.5)(x).tolist() == [[0, 1, 2, 0]]
    assert TopK(nn.Identity(), 0.75)(x).tolist() == [[0, 0, 2, 0]]  # level s zeroes s, not 1 − s


def test_before_and_after():
    x = torch.tensor([[-2.0, -0.5, 0.1, 1.0]])
    after = TopK(nn.Sigmoid(), 0.5)(x)
    before = TopK(nn.Sigmoid(), 0.5, post=False)(x)
    assert torch.allclose(after, torch.tensor([[0, 0, 0.52498, 0.73106]]), atol=1e-5)
    assert torch.allclose(before, torch.tensor([[0.5, 0.5, 0.52498, 0.73106]]), atol=1e-5)


def test_edges_none_zero_and_one():
    x = torch.randn(4, 16)
    assert torch.equal(TopK(nn.GELU(), None)(x), nn.GELU()(x))
    assert torch.equal(TopK(nn.GELU(), 0.0)(x), nn.GELU()(x))
    assert (TopK(nn.GELU(), 1.0)(x) == 0).all()


def test_binary_fractions_do_not_lose_an_element():
    assert (topk_mask(torch.randn(1, 100), 0.29)).sum() == 71
    assert kth(torch.arange(100.0), 0.29, dim=0).item() == 29  # element number ⌊q n⌋+1


def test_gradient_flows_only_through_what_is_kept():
    x = torch.randn(6, 12, dtype=torch.float64, requires_grad=True)
    module = TopK(nn.GELU(), 0.5)
    (grad,) = torch.autograd.grad(module(x).sum(), x)
    assert torch.equal(grad != 0, module(x) != 0)
    assert torch.autograd.gradcheck(module, x)


@pytest.mark.parametrize("granularity", ["token", "sample"])
def test_only_token_granularity_keeps_the_past_blind_to_the_future(granularity):
    torch.manual_seed(1)
    block = nn.Sequential(nn.Linear(16, 64), TopK(nn.GELU(), 0.75, granularity), nn.Linear(64, 16))
    x = torch.randn(2, 10, 16)
    changed = x.clone()
    changed[:, 6:] += 3.0
    past = (block(x) - block(changed))[:, :6].abs().max().item()
    assert past == 0 if granularity == "token" else past > 0


def test_images_compete_over_channels_at_one_position():
    x = torch.randn(2, 8, 5, 5)
    y = TopK(nn.ReLU(), 0.75)(x + 10)
    assert ((y != 0).sum(dim=1) == 2).all()


def test_linear_and_convolution_outputs():
    linear, conv = nn.Linear(6, 20), nn.Conv2d(3, 20, 3)
    x, image = torch.randn(2, 4, 6), torch.randn(2, 3, 6, 6)
    assert ((TopK(linear, 0.5)(x) != 0).sum(dim=-1) == 10).all()
    assert ((TopK(conv, 0.5)(image) != 0).sum(dim=1) == 10).all()
    assert ((TopK(conv, 0.5)(image[0]) != 0).sum(dim=0) == 10).all()
    assert ((TopK(nn.Conv1d(3, 20, 3), 0.5)(image[:, :, 0]) != 0).sum(dim=1) == 10).all()


def test_a_wrapped_linear_layer_is_no_activation_site():
    from netvitals.capture.engine.roles import role

    assert role(TopK(nn.GELU(), 0.5)) == "activation" and A.is_activation(TopK(nn.GELU(), 0.5))
    assert role(TopK(nn.Linear(3, 3), 0.5)) == "plain" and not A.is_activation(TopK(nn.Linear(3, 3), 0.5))


@pytest.mark.parametrize("granularity", ["channel", "batch", "global"])
def test_running_threshold_follows_freezes_and_serves_evaluation(granularity):
    module = TopK(nn.Identity(), 0.75, granularity, running=True, max_tracked=30)
    for _ in range(40):
        module(torch.randn(64, 10))
    assert int(module.threshold.batches) == 30
    frozen = module.threshold.value.clone()
    module(torch.randn(64, 10) + 5)
    assert torch.equal(module.threshold.value, frozen)
    module.eval()
    x = torch.randn(4000, 10)
    assert (module(x) == 0).float().mean().item() == pytest.approx(0.75, abs=0.04)
    assert torch.equal(module(x)[:1], module(x[:1]))  # one sample's answer does not depend on its neighbours
    twin = TopK(nn.Identity(), 0.75, granularity, running=True)
    twin.load_state_dict(module.state_dict())
    assert torch.equal(twin.eval()(x), module(x))
    assert torch.equal(copy.deepcopy(module)(x), module(x))


def test_a_running_threshold_starts_at_the_first_batch_and_moves_by_its_momentum():
    module = TopK(nn.Identity(), 0.5, "global", running=True)
    module(torch.arange(10.0).reshape(2, 5))
    module(torch.arange(10.0).reshape(2, 5) + 10)
    assert module.threshold.value.item() == pytest.approx(5 + 0.1 * 10)


def test_running_thresholds_need_a_shared_competition():
    with pytest.raises(ValueError, match="granularity channel, batch or global"):
        TopK(nn.ReLU(), 0.5, "token", running=True)
    with pytest.raises(ValueError, match=r"granularity= must be one of .* got 'row'"):
        TopK(nn.ReLU(), 0.5, "row")


@pytest.mark.parametrize("q", SHARES)
def test_quantile_relu_modes(q):
    x = torch.randn(40, 7)
    theta = x.sort(dim=0).values[int(q * 40 + 1e-9)]
    assert torch.equal(QuantileReLU(q)(x), x * (x >= theta))
    assert torch.allclose(QuantileReLU(q, "continuous")(x), (x - theta).clamp(min=0))
    assert torch.allclose(QuantileReLU(q, "shifted")(x), torch.maximum(x, theta), atol=1e-6)
    assert (QuantileReLU(q)(x) == 0).float().mean().item() == pytest.approx(q)


def test_unsigned_quantile_relu_restores_the_signs():
    x = torch.tensor([[-4.0], [3.0], [-2.0], [1.0]])
    assert QuantileReLU(0.5, signed=False)(x).ravel().tolist() == [-4, 3, 0, 0]
    assert QuantileReLU(0.5, "continuous", signed=False)(x).ravel().tolist() == [-1, 0, 0, 0]


def test_quantile_relu_without_q_is_relu_and_running_serves_evaluation():
    x = torch.randn(32, 5)
    assert torch.equal(QuantileReLU(None)(x), x.clamp(min=0))
    module = QuantileReLU(0.5, running=True)
    module(x)
    module.eval()
    assert torch.equal(module(x[:1]), module(x)[:1])
    assert torch.equal(module(x), QuantileReLU(0.5)(x))


@pytest.mark.parametrize("mode", ["mask", "continuous", "shifted"])
def test_quantile_relu_gradcheck(mode):
    x = torch.randn(9, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(QuantileReLU(0.5, mode), x)
    assert torch.autograd.gradcheck(QuantileReLU(0.5, mode, signed=False), x)
