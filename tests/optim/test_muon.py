"""Muon: orthogonal updates, its formula, blocks of a fused matrix, and a state that survives a round trip."""

import copy

import pytest
import torch
from torch import nn

from netvitals.optim import Muon, MuonAdamW, fused_parts, muon_split
from netvitals.optim.muon import newton_schulz


@pytest.mark.parametrize("shape", [(32, 64), (64, 32), (48, 48), (3, 16, 24)])
def test_singular_values_come_near_one(shape):
    values = torch.linalg.svdvals(newton_schulz(torch.randn(shape)))
    # the tuned quintic ends in about [0.7, 1.2]; the smallest singular values of a square Gaussian lag behind
    assert values.max() < 1.25
    assert values.median() > 0.65
    if shape[-1] != shape[-2]:
        assert values.min() > 0.65


def test_singular_vectors_are_kept():
    u, _, v = torch.linalg.svd(torch.randn(6, 9, dtype=torch.double), full_matrices=False)
    s = torch.linspace(1, 3, 6, dtype=torch.double)
    x = newton_schulz(u * s @ v)
    inner = u.T @ x @ v.T
    assert (inner - inner.diagonal().diag()).abs().max() < 1e-10
    assert ((inner.diagonal() > 0.65) & (inner.diagonal() < 1.25)).all()


def test_classical_coefficients_reach_the_polar_factor():
    matrix = torch.randn(5, 7, dtype=torch.double)
    u, _, v = torch.linalg.svd(matrix, full_matrices=False)
    # (15, −10, 3)/8 is the classical quintic, which converges to UVᵀ
    assert torch.allclose(newton_schulz(matrix, 40, (15 / 8, -10 / 8, 3 / 8)), u @ v, atol=1e-12)


@pytest.mark.parametrize("nesterov", [True, False])
def test_step_is_its_formula(nesterov):
    p = nn.Parameter(torch.randn(4, 6))
    optimizer = Muon([p], lr=0.1, momentum=0.9, nesterov=nesterov, scale="none", weight_decay=0.5)
    weight, buffer = p.detach().clone(), torch.zeros(4, 6)
    for _ in range(3):
        p.grad = torch.randn(4, 6)
        buffer = 0.9 * buffer + p.grad
        update = p.grad + 0.9 * buffer if nesterov else buffer
        weight = weight * (1 - 0.1 * 0.5) - 0.1 * newton_schulz(update)
        optimizer.step()
        assert torch.allclose(p, weight, atol=1e-6)


def test_scales():
    sizes = {}
    for scale in ("none", "max", "aspect", "adam"):
        p = nn.Parameter(torch.zeros(64, 16))
        p.grad = torch.randn(64, 16, generator=torch.Generator().manual_seed(0))
        Muon([p], lr=1.0, scale=scale).step()
        sizes[scale] = p.norm().item()
    for scale, factor in (("max", 8), ("aspect", 2), ("adam", 1.6)):
        assert sizes[scale] / sizes["none"] == pytest.approx(factor, rel=1e-5)
    rms = sizes["max"] / (64 * 16) ** 0.5
    assert 0.7 < rms < 1.2  # entries of about the learning rate


def test_fused_matrix_is_orthogonalised_in_parts():
    grad = torch.randn(24, 8) * torch.tensor([100.0] * 8 + [1.0] * 8 + [0.01] * 8).unsqueeze(1)
    together, apart = nn.Parameter(torch.zeros(24, 8)), nn.Parameter(torch.zeros(24, 8))
    for p, parts in ((together, 1), (apart, 3)):
        p.grad = grad.clone()
        Muon([p], lr=1.0, scale="max", parts=parts).step()
    expected = torch.cat([newton_schulz(g * 1.95) for g in grad.split(8)]) * -(8**0.5)
    assert torch.allclose(apart, expected, atol=1e-4)
    assert together[16:].norm() < 0.1 * apart[16:].norm()
    assert fused_parts("blocks.0.attention.qkv.weight", grad) == 3
    assert fused_parts("blocks.0.mlp.up.weight", grad) == 1


def test_kernels_are_matrices_too():
    p = nn.Parameter(torch.zeros(4, 3, 3, 3))
    p.grad = torch.randn_like(p)
    Muon([p], lr=1.0, scale="none").step()
    assert torch.linalg.svdvals(p.detach().flatten(1)).min() > 0.6


def model_and_optimizer():
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2))
    matrices, rest = muon_split(model)
    optimizer = MuonAdamW(
        [{"params": list(matrices.values()), "lr": 0.01}],
        [{"params": list(rest.values()), "lr": 0.02, "betas": (0.9, 0.95), "weight_decay": 0.1}],
    )
    return model, optimizer


def advance(model, optimizer, steps, seed):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        x = torch.randn(16, 6, generator=generator)
        loss = (model(x) - x[:, :2].sin()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def test_state_round_trip_through_a_file(tmp_path):
    model, optimizer = model_and_optimizer()
    advance(model, optimizer, 5, 0)
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "state.pt")
    advance(model, optimizer, 5, 1)
    again, other = model_and_optimizer()
    saved = torch.load(tmp_path / "state.pt", weights_only=True)
    again.load_state_dict(saved["model"])
    other.load_state_dict(saved["optimizer"])
    advance(again, other, 5, 1)
    for a, b in zip(model.parameters(), again.parameters()):
        assert torch.equal(a, b)


def test_muon_alone_round_trip():
    p = nn.Parameter(torch.randn(4, 6))
    optimizer = Muon([p], lr=0.1)
    p.grad = torch.randn(4, 6)
    optimizer.step()
    q = nn.Parameter(p.detach().clone())
    other = Muon([q], lr=0.3)
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    p.grad = torch.randn(4, 6)
    q.grad = p.grad.clone()
    optimizer.step()
    other.step()
    assert torch.equal(p, q)


def test_pair_equals_its_two_halves():
    model, pair = model_and_optimizer()
    twin, _ = model_and_optimizer()
    matrices, rest = muon_split(twin)
    halves = [
        Muon(list(matrices.values()), lr=0.01),
        torch.optim.AdamW(list(rest.values()), lr=0.02, betas=(0.9, 0.95), weight_decay=0.1),
    ]

    class Both:
        def zero_grad(self):
            [h.zero_grad() for h in halves]

        def step(self):
            [h.step() for h in halves]

    advance(model, pair, 4, 0)
    advance(twin, Both(), 4, 0)
    for a, b in zip(model.parameters(), twin.parameters()):
        assert torch.equal(a, b)
    for group in pair.param_groups:  # a schedule that edits the groups reaches both halves
        group["lr"] = 0.0
    before = [p.detach().clone() for p in model.parameters()]
    advance(model, pair, 1, 2)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters()))


def test_it_learns():
    model, optimizer = model_and_optimizer()
    first = advance(model, optimizer, 1, 0)
    assert advance(model, optimizer, 150, 0) < 0.3 * first


def test_closure_is_called_once():
    p = nn.Parameter(torch.eye(3))
    calls = []

    def closure():
        calls.append(1)
        p.grad = torch.eye(3)
        return torch.tensor(2.5)

    assert Muon([p]).step(closure).item() == 2.5
    assert calls == [1]


def test_split_leaves_embeddings_readout_and_vectors_to_adamw():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.hidden, self.head = nn.Embedding(9, 4), nn.Linear(4, 4), nn.Linear(4, 9, bias=False)
            self.norm = nn.LayerNorm(4)
            self.head.weight = self.embed.weight

    matrices, rest = muon_split(Tied())
    assert list(matrices) == ["hidden.weight"]
    assert set(rest) == {"embed.weight", "hidden.bias", "norm.weight", "norm.bias"}


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: Muon([nn.Parameter(torch.zeros(3))]), "AdamW"),
        (lambda: Muon([nn.Parameter(torch.zeros(4, 4))], parts=3), "multiple of parts"),
        (lambda: Muon([nn.Parameter(torch.zeros(4, 4))], scale="big"), "aspect"),
        (lambda: Muon([nn.Parameter(torch.zeros(4, 4))], momentum=1.0), "momentum"),
    ],
)
def test_wrong_use_gets_a_sentence(build, words):
    with pytest.raises(ValueError, match=words):
        build()
