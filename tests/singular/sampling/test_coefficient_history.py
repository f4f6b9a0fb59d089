"""The learning coefficient over checkpoints: known at the ends of a deep linear net's training, words for the rest."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from netvitals.singular import coefficient_by_part, coefficient_history, rlct_reduced_rank
from netvitals.singular.sampling.history import parts_of


def linear_net(rank):
    """A 4-3-4 linear net at an exact minimum of the given rank."""
    net = nn.Sequential(nn.Linear(4, 3, bias=False), nn.Linear(3, 4, bias=False)).double()
    with torch.no_grad():
        net[0].weight.copy_(torch.eye(3, 4))
        net[1].weight.copy_(torch.eye(4, 3))
        net[0].weight[rank:], net[1].weight[:, rank:] = 0, 0
    return net


def half_mse(out, y):
    return 0.5 * (out - y).square().sum(1).mean()


def test_a_checkpoint_at_the_truth_reads_the_closed_form_and_the_history_is_in_order():
    gen = torch.Generator().manual_seed(0)
    net = linear_net(3)
    x = torch.randn(100, 4, generator=gen, dtype=torch.float64)
    y = net(x).detach()  # without noise the truth is the sample's own minimum
    moved = copy.deepcopy(net.state_dict())
    far = {k: v + 0.3 * torch.randn(v.shape, generator=gen, dtype=v.dtype) for k, v in moved.items()}
    before, rng = copy.deepcopy(net.state_dict()), torch.get_rng_state()
    ticks = []
    found = coefficient_history(
        net,
        half_mse,
        (x, y),
        checkpoints={500: moved, 0: far},
        chains=4,
        draws=200,
        nbeta=300.0,
        rungs=1,
        progress=lambda done, all_: ticks.append((done, all_)),
    )
    assert found.steps == (0, 500) and ticks == [(1, 2), (2, 2)] and found.loss[1] < found.loss[0]
    last = found.coefficients[1]
    lam = rlct_reduced_rank(4, 3, 4, 3)[0]
    assert abs(last.mean - lam) < max(4 * last.stderr, 0.1 * lam) and last.stderr < 0.1 * lam
    row = found.rows()[1]
    assert {"r_hat", "effective_draws", "well", "below", "ok", "note"} <= set(row) and row["lambda"] == last.mean
    assert found.change[0] == pytest.approx(last.mean - found.coefficients[0].mean) and found.change[1] > 0
    assert all(torch.equal(before[k], v) for k, v in net.state_dict().items())
    assert torch.equal(rng, torch.get_rng_state()) and net.training


def test_a_checkpoint_that_is_no_minimum_is_called_so():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    x = torch.randn(300, 6)
    y = x[:, :3].argmax(1)
    found = coefficient_history(net, F.cross_entropy, (x, y), checkpoints={7: net.state_dict()}, chains=2, draws=60)
    assert found.coefficients[0].mean < 0 and "not a minimum" in str(found) and "step 7" in str(found)


def test_chains_that_never_move_are_said_in_words():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    x, y = torch.randn(100, 6), torch.randint(0, 3, (100,))
    found = coefficient_history(
        net,
        F.cross_entropy,
        (x, y),
        checkpoints={0: net.state_dict()},
        chains=2,
        draws=20,
        step_size=1e6,
        batch_size=10,
    )
    assert not found.coefficients[0].ok and "no move was accepted" in str(found)


def test_a_history_draws_what_is_believed_apart_from_what_is_not():
    net = linear_net(2)
    x = torch.randn(200, 4, dtype=torch.float64)
    batch = (x, net(x).detach())
    state = net.state_dict()
    off = {name: value + 1.0 for name, value in state.items()}
    found = coefficient_history(net, "mse", batch, checkpoints={0: off, 5: state}, chains=2, draws=60)
    believed = [s for s, c in zip(found.steps, found.coefficients) if c.ok]
    drawn = {s.name: list(s.x) for s in found.plot().series}
    assert drawn.get("λ", []) == believed and 0 in drawn["λ, not to be believed"]


def test_wrong_checkpoints_get_a_sentence():
    net = linear_net(2)
    x = torch.randn(50, 4, dtype=torch.float64)
    with pytest.raises(ValueError, match="at least one entry"):
        coefficient_history(net, half_mse, (x, x), checkpoints={})
    before = copy.deepcopy(net.state_dict())
    with pytest.raises(ValueError, match="step 3 does not fit Sequential"):
        coefficient_history(net, half_mse, (x, x), checkpoints={3: {"0.weight": torch.zeros(2, 2)}})
    assert all(torch.equal(before[k], v) for k, v in net.state_dict().items())


@pytest.mark.slow
def test_later_checkpoints_start_warm_and_agree_with_cold_ones():
    net = nn.Linear(3, 1, bias=False).double()
    x = torch.randn(60, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    states, batch = {0: net.state_dict(), 1: net.state_dict()}, (x, net(x).detach())
    options = {"draws": 200, "rungs": 1, "nbeta": 300.0}
    warm = coefficient_history(net, half_mse, batch, checkpoints=states, **options)
    cold = coefficient_history(net, half_mse, batch, checkpoints=states, warm=False, **options)
    first, second = warm.coefficients
    assert first.ok and second.cost < 0.85 * first.cost and cold.coefficients[1].cost == cold.coefficients[0].cost
    assert abs(second.mean - 1.5) < 3 * second.stderr and first.trace[0, 0] > 0
    assert second.step_size != cold.coefficients[1].step_size  # tuned twice over


def test_the_parts_of_a_model_have_curves_of_their_own():
    net = nn.Sequential(nn.Linear(3, 2, bias=False), nn.Linear(2, 2, bias=False)).double()
    x = torch.randn(40, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = net(x).detach()
    found = coefficient_by_part(net, half_mse, (x, y), draws=60, localization=0.0, nbeta=100.0)
    assert [h.part for h in found] == ["0", "1"] and [h.coefficients[0].parameters for h in found] == [6, 4]
    assert [r["part"] for r in found.rows()] == ["0", "1"] and "0, step 0" in str(found)
    named = coefficient_by_part(
        net, half_mse, (x, y), parts={"all": None, "head": "1.*"}, checkpoints={3: net.state_dict()}, draws=4
    )
    assert [(h.part, h.steps, h.coefficients[0].parameters) for h in named] == [("all", (3,), 10), ("head", (3,), 4)]
    with pytest.raises(ValueError, match="no submodules with parameters"):
        coefficient_by_part(nn.Linear(3, 2).double(), half_mse, (x, y))


def test_the_blocks_of_a_language_model_are_its_parts():
    block = lambda: nn.Sequential(nn.Linear(4, 4))
    model = nn.Module()
    model.transformer = nn.Module()
    model.transformer.wte, model.transformer.h = nn.Embedding(5, 4), nn.ModuleList([block(), block()])
    model.head = nn.Linear(4, 5, bias=False)
    model.head.weight = model.transformer.wte.weight
    found = parts_of(model)  # the head is tied to the table, so that the only part with names of its own is opened
    assert list(found) == [f"transformer.{n}" for n in ("wte", "h.0", "h.1")]
    assert found["transformer.h.1"] == ["transformer.h.1.0.weight", "transformer.h.1.0.bias"]


@pytest.mark.slow
def test_a_language_model_of_hugging_face_has_a_curve_a_block():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=16, n_positions=8, n_embd=8, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0
    )
    model = transformers.GPT2LMHeadModel(config)
    ids = torch.randint(0, 16, (6, 8))
    found = coefficient_by_part(model, None, {"input_ids": ids, "labels": ids}, draws=2, chains=2)
    assert [h.part for h in found] == [f"transformer.{n}" for n in ("wte", "wpe", "h.0", "h.1", "ln_f")]
    assert all(math.isfinite(h.coefficients[0].mean) for h in found)
    assert sum(h.coefficients[0].parameters for h in found) == sum(p.numel() for p in model.parameters())
