"""``torch.jit.script`` compiles hooks; a model whose next pass is measured can be scripted all the same."""

import copy
import io
import pickle
import subprocess
import sys

import pytest
import torch
from torch import nn

import netvitals as nv


def _net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Sequential(nn.Linear(4, 8), nn.ReLU()), nn.Linear(8, 2))


def _train(net: nn.Module, steps: int, watching=None, optimizer=None, meanwhile=lambda step: None) -> torch.Tensor:
    x = torch.linspace(-1, 1, 24).reshape(6, 4)
    optimizer = optimizer or torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(steps):
        meanwhile(step)
        loss = net(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if watching is not None:
            watching.step(loss)
    return torch.cat([p.detach().reshape(-1) for p in net.parameters()])


def test_an_armed_model_is_scripted_and_watching_goes_on(recwarn):
    net, x = _net(), torch.ones(3, 4)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with nv.watch(net, optimizer=optimizer, every=1) as watching:

        def script(step: int) -> None:
            if step in (0, 3):
                scripted = torch.jit.script(net)
                assert torch.equal(scripted(x), net[1](torch.relu(net[0][0](x))))

        moved = _train(net, 6, watching, optimizer, script)
    steps = {r.step for r in watching.measurements if r.vital == "gates"}
    assert steps == {1, 2, 4, 5}
    assert "scripted" in watching.skipped["step 0"] and "scripted" in watching.skipped["step 3"]
    assert not [w for w in recwarn if "netvitals" in str(w.message)]
    assert torch.equal(moved, _train(_net(), 6))


def test_a_part_of_an_armed_model_is_scripted():
    net = _net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with nv.watch(net, optimizer=optimizer, every=1) as watching:
        assert "ReLU" in str(torch.jit.script(net[0]))
        _train(net, 3, watching, optimizer)
    assert {r.step for r in watching.measurements if r.vital == "gates"} == {1, 2}
    assert {s.name for s in watching.sites} == {"0.0", "0.1", "1", "output"}


@pytest.mark.parametrize("twice", [False, True])
def test_a_deep_copy_of_an_armed_model_is_scripted(twice):
    net = _net()
    with nv.watch(net, every=1):
        copied = copy.deepcopy(copy.deepcopy(net) if twice else net)
    assert torch.equal(torch.jit.script(copied)(torch.ones(1, 4)), net(torch.ones(1, 4)))
    assert "__prepare_scriptable__" not in vars(copied)


def test_nothing_stays_on_the_model():
    net = _net()
    before = [dict(vars(m)) for m in net.modules()]
    nv.watch(net, every=1).close()
    assert [vars(m).keys() for m in net.modules()] == [b.keys() for b in before]


def test_what_a_model_says_before_scripting_is_still_asked():
    class Prepared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 2)

        def __prepare_scriptable__(self) -> nn.Module:
            return self.inner

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x).relu()

    net = Prepared()
    with nv.watch(net, every=1):
        scripted = torch.jit.script(net)
    assert scripted.original_name == "Linear"


def test_an_armed_model_that_was_saved_loads_where_there_is_no_netvitals(tmp_path):
    net = _net()
    with nv.watch(net, every=1):
        torch.save(net, tmp_path / "net.pt")
        again = pickle.loads(pickle.dumps(net))
    assert torch.equal(again(torch.ones(1, 4)), net(torch.ones(1, 4)))
    program = (
        "import sys; sys.modules['netvitals'] = None\n"
        "import torch\n"
        f"net = torch.load({str(tmp_path / 'net.pt')!r}, weights_only=False)\n"
        "print(net(torch.ones(1, 4)).tolist())"
    )
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert out.returncode == 0, out.stderr[-500:]
    assert torch.allclose(torch.tensor(eval(out.stdout)), net(torch.ones(1, 4)).detach())
    torch.save(net.state_dict(), io.BytesIO())
