"""Copies of a model run together: batched products, vmap and a plain loop give the same losses and gradients."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from netvitals.anatomy.copies.replicas import Replicas
from netvitals.singular import learning_coefficient


def mse(outputs, targets):
    return (outputs - targets.unsqueeze(1)).square().mean()


def used_twice():
    layer = nn.Linear(6, 6)
    return nn.Sequential(layer, nn.Tanh(), layer, nn.Linear(6, 3))


def tied():
    model = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6), nn.Linear(6, 3))
    model[2].weight = model[0].weight
    return model


def hooked():
    model = nn.Sequential(nn.Linear(6, 3))
    model[0].register_forward_hook(lambda module, args, output: 2 * output)
    return model


STACKS = {
    "tanh": lambda: nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)),
    "relu, no bias": lambda: nn.Sequential(nn.Linear(6, 5, bias=False), nn.ReLU(), nn.Linear(5, 3, bias=False)),
    "nested": lambda: nn.Sequential(nn.Sequential(nn.Linear(6, 5), nn.Sigmoid()), nn.Dropout(), nn.Linear(5, 3)),
    "gelu, then tanh": lambda: nn.Sequential(nn.GELU(), nn.Linear(6, 3), nn.Tanh()),
    "flattened": lambda: nn.Sequential(nn.Flatten(), nn.Linear(6, 4), nn.SiLU(), nn.Linear(4, 3)),
    "one layer": lambda: nn.Linear(6, 3),
}
OTHERS = {
    "used twice": used_twice,
    "tied": tied,
    "hooked": hooked,
    "in place": lambda: nn.Sequential(nn.Linear(6, 5), nn.ReLU(inplace=True), nn.Linear(5, 3)),
    "norm": lambda: nn.Sequential(nn.Linear(6, 5), nn.LayerNorm(5), nn.Linear(5, 3)),
}


def settings(make, copies=3, each=True, shape=(6,)):
    torch.manual_seed(0)
    model = make().double().eval()
    lead = (copies, 7) if each else (7,)
    return model, torch.randn(*lead, *shape, dtype=torch.float64), torch.randint(0, 3, lead)


def gradient_of(copies, w, x, y, each):
    out = torch.zeros_like(w)
    return copies.add_gradient(copies.parts(w), x, y, copies.parts(out), each=each), out


def loop(model, loss_fn, w, x, y, each):
    losses, gradients = [], []
    for c, row in enumerate(w):
        twin = copy.deepcopy(model)
        nn.utils.vector_to_parameters(row, twin.parameters())
        loss = loss_fn(twin(x[c] if each else x), y[c] if each else y)
        loss.backward()
        losses.append(loss.detach())
        gradients.append(torch.cat([p.grad.reshape(-1) for p in twin.parameters()]))
    return torch.stack(losses), torch.stack(gradients)


@pytest.mark.parametrize("each", [True, False])
@pytest.mark.parametrize("loss_fn", [F.cross_entropy, nn.CrossEntropyLoss(label_smoothing=0.1), mse])
@pytest.mark.parametrize("name", STACKS)
def test_batched_products_agree_with_vmap_and_with_a_loop(name, loss_fn, each):
    model, x, y = settings(STACKS[name], each=each, shape=(2, 3) if name == "flattened" else (6,))
    fast, general = Replicas(model, loss_fn), Replicas(model, loss_fn, batched=False)
    assert fast.layers is not None and general.layers is None
    w = fast.start + 0.1 * torch.randn(3, fast.size, dtype=torch.float64)
    truth = loop(model, loss_fn, w, x, y, each)
    for copies in (fast, general):
        for found, expected in zip(gradient_of(copies, w, x, y, each), truth):
            assert torch.allclose(found, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", OTHERS)
def test_what_has_no_batched_form_goes_through_vmap(name):
    model, x, y = settings(OTHERS[name])
    copies = Replicas(model, F.cross_entropy)
    assert copies.layers is None
    w = copies.start + 0.1 * torch.randn(3, copies.size, dtype=torch.float64)
    before = copy.deepcopy(model.state_dict())
    for found, expected in zip(gradient_of(copies, w, x, y, True), loop(model, F.cross_entropy, w, x, y, True)):
        assert torch.allclose(found, expected, rtol=1e-10, atol=1e-12)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


def test_sequences_of_vectors_go_through_vmap_though_the_layers_could_be_batched():
    model, x, y = settings(STACKS["tanh"], shape=(4, 6))
    loss_fn = lambda out, target: F.cross_entropy(out.mean(1), target)
    copies = Replicas(model, loss_fn)
    w = copies.start.expand(3, -1).clone()
    for found, expected in zip(gradient_of(copies, w, x, y, True), loop(model, loss_fn, w, x, y, True)):
        assert torch.allclose(found, expected, rtol=1e-10, atol=1e-12)


def test_many_copies_and_ignored_labels():
    model, x, y = settings(STACKS["tanh"], copies=12)
    y[:, 0] = -100
    for loss_fn in (F.cross_entropy, lambda out, target: F.cross_entropy(out, target.clamp_min(0))):
        copies = Replicas(model, loss_fn)
        w = copies.start + 0.1 * torch.randn(12, copies.size, dtype=torch.float64)
        for found, expected in zip(gradient_of(copies, w, x, y, True), loop(model, loss_fn, w, x, y, True)):
            assert torch.allclose(found, expected, rtol=1e-10, atol=1e-12)


def test_only_some_parameters_take_part():
    model, x, y = settings(STACKS["tanh"])
    found = [
        gradient_of(copies, copies.start.expand(3, -1).clone(), x, y, True)[1]
        for copies in (Replicas(model, F.cross_entropy, "2.*"), Replicas(model, F.cross_entropy, "2.*", False))
    ]
    whole = Replicas(model, F.cross_entropy)
    full = gradient_of(whole, whole.start.expand(3, -1).clone(), x, y, True)[1]
    assert torch.allclose(found[0], found[1], rtol=1e-10) and torch.allclose(found[0], full[:, -18:], rtol=1e-10)


def test_a_chain_on_minibatches_does_not_depend_on_the_others_and_gradients_are_counted():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2)).double()
    data = (torch.randn(200, 3, dtype=torch.float64), torch.randint(0, 2, (200,)))
    run = lambda chains: learning_coefficient(
        model, F.cross_entropy, data, chains=chains, draws=30, burn_in=0, step_size=1e-3, batch_size=20
    )
    four, one = run(4), run(1)
    assert np.allclose(four.trace[:1], one.trace, rtol=1e-9)
    # a move is three gradients of its batch, one of them at w*, and a draw is ten moves
    assert four.cost - one.cost == pytest.approx(3 * 30 * 10 * 3 * 20 / 200)


def test_a_pull_that_swallows_the_whole_distance_is_still_a_step():
    model = nn.Linear(3, 1).double()
    data = (torch.randn(50, 3, dtype=torch.float64), torch.zeros(50, 1, dtype=torch.float64))
    llc = learning_coefficient(
        model, F.mse_loss, data, chains=2, draws=5, step_size=2e-3, localization=1000.0, batch_size=10, nbeta=1.0
    )
    assert np.isfinite(llc.trace).all()
