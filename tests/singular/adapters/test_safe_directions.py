"""Safe directions and tangential adapters: models whose tangential space is known, and what is refused."""

import copy
import math

import pytest
import torch
from torch import nn

from netvitals.singular import kl_order, tangential_lora
from netvitals.singular.adapters.tangent import safe_spaces
from netvitals.singular.orders.order import directional_fisher, kl_along

f64 = {"dtype": torch.float64}


def test_tangential_and_singular_directions_of_a_mean_map_are_told_apart():
    # mean (u^3, u v, w): the fibre is u = w = 0; v is tangential, u singular, w regular
    def outputs(th):
        return torch.stack([th[0] ** 3, th[0] * th[1], th[2]])[None]

    found = safe_spaces(outputs, torch.zeros(3, **f64))
    assert (found.kernel, found.singular) == (2, 1) and len(found.spaces) == 1
    v = found.best.basis[:, 0]
    assert v.abs() == pytest.approx(torch.tensor([0.0, 1.0, 0.0], **f64), abs=1e-4)
    assert float(directional_fisher(outputs, torch.zeros(3, **f64), v)) == pytest.approx(0, abs=1e-12)


def test_the_gauge_space_of_a_linear_model_on_a_subspace_is_found_whole():
    gen = torch.Generator().manual_seed(0)
    x = torch.randn(60, 3, generator=gen, **f64) @ torch.randn(3, 5, generator=gen, **f64)
    theta = torch.randn(10, generator=gen, **f64)
    for family in ("gaussian", "categorical"):
        found = safe_spaces(lambda th: x @ th.reshape(5, 2), theta, likelihood=family, reach=2.0)
        # (5 − 3) inputs × 2 outputs are never seen; a softmax does not see a shift of both logits either
        assert found.best.dimension == found.kernel == (4 if family == "gaussian" else 7) and found.singular == 0
        for v in found.best.basis.T:
            assert float(kl_along(lambda th: x @ th.reshape(5, 2), theta, 2 * v, [1.0], family)) < 1e-20


def test_the_sheets_of_a_dead_unit_are_kept_apart():
    gen = torch.Generator().manual_seed(1)
    x = torch.randn(40, 3, generator=gen, **f64)

    def outputs(th):
        return torch.tanh(x @ th[:3])[:, None] * th[3:]

    theta = torch.zeros(5, **f64)
    found = safe_spaces(outputs, theta)
    assert sorted(s.dimension for s in found.spaces) == [2, 3] and "must not be mixed" in str(found)
    one, two = (s.basis[:, 0] for s in found.spaces)
    assert kl_order(outputs, theta, one).note.startswith("gauge")
    assert kl_order(outputs, theta, one + two).order == 2


def test_directions_are_ranked_by_the_new_task_and_followed_later():
    old, new = torch.eye(4, **f64)[:2], torch.diag(torch.tensor([1.0, 1, 3, 0], **f64))
    found = safe_spaces(lambda th: old @ th[:, None], torch.zeros(4, **f64), new=lambda th: new @ th[:, None])
    best = found.best
    assert best.basis[:, 0].abs() == pytest.approx(torch.eye(4, **f64)[2], abs=1e-12)
    assert best.useful == pytest.approx((1.0, 0.0), abs=1e-12)
    later = best.turned(lambda th: new @ th[:, None], torch.zeros(4, **f64))
    assert later.tolist() == pytest.approx([1.0, 0.0], abs=1e-12)


def test_a_regular_model_has_no_safe_direction_and_says_so():
    found = safe_spaces(lambda th: th[None], torch.zeros(3, **f64))
    assert found.kernel == 0 and "full rank 3" in str(found)
    with pytest.raises(ValueError, match="no direction that leaves the old task unchanged"):
        found.best.dimension  # noqa: B018


def test_a_curved_orbit_is_safe_only_nearby():
    def product(th):
        return (th[0] * th[1]).reshape(1, 1)

    theta = torch.ones(2, **f64)
    assert safe_spaces(product, theta, reach=1.0).singular == 1
    assert safe_spaces(product, theta, reach=1e-5).singular == 0


@pytest.mark.parametrize(
    ("theta", "more", "words"),
    [
        (torch.zeros(2, 2), {}, "flat vector"),
        (torch.zeros(2), {"reach": 0.0}, "reach"),
        (torch.full((2,), math.nan), {}, "NaN or infinit"),
        (torch.zeros(3000), {}, "at most 2000"),
    ],
)
def test_bad_input_of_safe_spaces(theta, more, words):
    with pytest.raises(ValueError, match=words):
        safe_spaces(lambda th: th[None], theta, **more)


def subspace_net():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 12), nn.GELU(), nn.LayerNorm(12), nn.Linear(12, 5, bias=False))
    with torch.no_grad():
        net[2].weight.uniform_(0.5, 2)
        net[2].bias.normal_()
    flat = torch.randn(5, 8)
    return net, 3.0 + torch.randn(200, 5) @ flat, torch.randn(200, 8)


def test_an_adapter_in_the_kernel_never_changes_the_old_task():
    net, old, new = subspace_net()
    found = tangential_lora(net, old, rank=3, new=new, only=["0"])
    (place,) = found.placements
    assert place.exact and place.kernel == 3 and place.leak < 1e-10 and min(place.reach) > 0.1
    before_old, before_new = net(old).detach(), net(new).detach()
    train = found.attach(net)
    assert [p for p in net.parameters() if p.requires_grad] == train
    with torch.no_grad():
        train[0].normal_(0, 10)
    assert torch.allclose(net(old), before_old, atol=1e-3) and not torch.allclose(net(new), before_new, atol=0.1)
    merged = copy.deepcopy(net)
    merged.set_submodule("0", net[0].merged())
    assert torch.allclose(merged(new), net(new), atol=1e-3)
    with pytest.raises(ValueError, match="not a linear layer"):
        found.attach(net)


def test_the_leak_is_the_fisher_form_along_the_adapter():
    """With unit noise and one output direction moved, vᵀFv is the variance along the row."""
    _, old, _ = subspace_net()
    head = nn.Linear(8, 2).double()
    place = tangential_lora(nn.Sequential(head), old, rank=4).placements[0]
    assert not place.exact and "not exact" in str(place)
    x = old.double()
    v = torch.cat(
        [
            torch.outer(torch.tensor([1.0, 0.0], **f64), place.down[3]).flatten(),
            torch.tensor([-float(place.down[3] @ place.mean), 0.0], **f64),
        ]
    )
    outputs = lambda th: x @ th[:16].reshape(2, 8).T + th[16:]
    level = float(x.var(0, correction=0).mean())
    assert float(directional_fisher(outputs, torch.zeros(18, **f64), v)) == pytest.approx(place.leak * level, rel=1e-6)


def test_a_norm_gives_its_reader_one_free_direction_only_with_a_bias_to_take_the_mean():
    net, _, _ = subspace_net()
    with_bias = nn.Sequential(*list(net)[:3], nn.Linear(12, 5))
    many = torch.randn(400, 8)
    assert tangential_lora(with_bias, many, rank=1).placements[-1].exact
    assert not tangential_lora(net, many, rank=1).placements[-1].exact
    assert "3" in tangential_lora(net, many, rank=1, exact=True).skipped


def test_placing_leaves_the_model_as_it_was():
    net, old, new = subspace_net()
    before, rng = copy.deepcopy(net.state_dict()), torch.get_rng_state()
    tangential_lora(net.train(), old, rank=2, new=new)
    assert net.training and all(torch.equal(before[k], v) for k, v in net.state_dict().items())
    assert torch.equal(rng, torch.get_rng_state()) and not any(m._forward_pre_hooks for m in net.modules())


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"rank": 0}, "at least 1"),
        ({"only": ["1"]}, "no linear layer"),
        ({"new": torch.full((3, 8), math.nan)}, "NaN"),
    ],
)
def test_bad_input_of_the_adapter(more, words):
    net, old, _ = subspace_net()
    with pytest.raises(ValueError, match=words):
        tangential_lora(net, old, **more)
