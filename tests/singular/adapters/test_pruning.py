"""What taking a unit out costs, read from its rate and measured."""

import pytest
import torch
from torch import nn

from netvitals.singular import pruning_plan

f64 = torch.float64


def net(activation=nn.ReLU, bias=False):
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(4, 7, bias=bias), activation(), nn.Linear(7, 5, bias=bias), activation(), nn.Linear(5, 3, bias=bias)
    ).double()


def divergence(plan, model, unit, x, kind):
    """K of the model without the unit from the model as it is, in nats per example."""
    was = model(x).detach()
    twin = net(type(model[1]), model[0].bias is not None)
    twin.load_state_dict(plan.without(model, [unit]))
    now = twin(x).detach()
    if kind == "mse":
        return float((now - was).square().sum(1).mean() / 2)
    return float((was.softmax(1) * (was.log_softmax(1) - now.log_softmax(1))).sum(1).mean())


def test_of_a_homogeneous_unit_the_predicted_cost_is_the_divergence_itself():
    model, x = net(), torch.randn(60, 4, dtype=f64)
    plan = pruning_plan(model, "mse", x)
    assert len(plan.units) == 12 and [u.cost for u in plan.units] == sorted(u.cost for u in plan.units)
    for unit in plan.units:
        last = unit.place == "2 → 4"  # nothing bends behind it, so that the outputs change as s² exactly
        if last and unit.cost:
            assert unit.order == pytest.approx(2, abs=1e-9)
            assert unit.cost == pytest.approx(divergence(plan, model, unit, x, "mse"), rel=1e-9)
            assert unit.regular_cost == pytest.approx(4 * unit.cost, rel=1e-9)


@pytest.mark.parametrize("kind", ["mse", "ce"])
def test_of_other_units_it_is_near_and_the_regular_guess_is_not(kind):
    model, x = net(nn.Tanh, bias=True), torch.randn(80, 4, dtype=f64)
    with torch.no_grad():
        for layer in model[::2]:
            layer.weight.mul_(1.5)
    plan = pruning_plan(model, kind, x)
    true = torch.tensor([divergence(plan, model, u, x, kind) for u in plan.units])
    told, regular = (torch.tensor([getattr(u, n) for u in plan.units]) for n in ("cost", "regular_cost"))
    assert float((told / true).log().abs().median()) < 0.25 < 0.6 < float((regular / true).log().abs().median())
    assert float(torch.corrcoef(torch.stack([told.log(), true.log()]))[0, 1]) > 0.8


def test_a_budget_takes_the_cheapest_and_nothing_is_touched():
    model, x = net(nn.Tanh), torch.randn(40, 4, dtype=f64)
    before = {n: p.clone() for n, p in model.state_dict().items()}
    plan = pruning_plan(model, "mse", x, only="0 → 2")
    budget = plan.units[0].cost + plan.units[1].cost
    assert (
        plan.under(budget * 1.0001) == plan.units[:2]
        and plan.under(0.0) == ()
        and {u.place for u in plan.units} == {"0 → 2"}
    )
    assert all(torch.equal(p, before[n]) for n, p in model.state_dict().items())
    assert "the cheapest to take out first" in str(plan) and plan.rows()[0]["order"] == plan.units[0].order


def test_wrong_input_gets_a_sentence():
    model = net()
    with pytest.raises(ValueError, match="no hidden units to prune"):
        pruning_plan(nn.Linear(4, 2), "mse", torch.randn(5, 4))
    with pytest.raises(ValueError, match="the batch is empty"):
        pruning_plan(model, "mse", torch.randn(0, 4, dtype=f64))
    with pytest.raises(ValueError, match="NaN"):
        pruning_plan(model, "mse", torch.full((3, 4), float("nan"), dtype=f64))
    plan = pruning_plan(model, "mse", torch.randn(9, 4, dtype=f64))
    with pytest.raises(ValueError, match="made for another model"):
        plan.without(nn.Linear(4, 2), plan.units[:1])
