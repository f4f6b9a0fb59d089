"""Training in bfloat16 under autocast is the same with and without netvitals, bit for bit."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv

STEPS = 12


def train(watch):
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(12, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    watching = watch(model, optimizer)
    outputs = []
    for _ in range(STEPS):
        x, y = torch.randn(8, 12), torch.randint(0, 4, (8,))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            output = model(x)
            loss = F.cross_entropy(output, y)
        assert output.dtype == torch.bfloat16
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        outputs.append(output.detach())
        if watching is not None:
            watching.step(loss)
    if watching is not None:
        watching.close()
    tensors = [*outputs, *model.state_dict().values(), *(p.grad for p in model.parameters()), torch.get_rng_state()]
    return tensors, watching


@pytest.mark.usefixtures("bfloat16_matmul")
def test_a_perceptron_under_autocast_trains_the_same_watched_on_every_step():
    bare, _ = train(lambda model, optimizer: None)
    watched, watching = train(lambda model, optimizer: nv.watch(model, optimizer=optimizer, every=1))
    assert all(torch.equal(a, b) for a, b in zip(bare, watched, strict=True))
    assert {r.step for r in watching.measurements if r.vital == "gates"} == set(range(STEPS))
