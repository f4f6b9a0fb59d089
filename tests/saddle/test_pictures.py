"""Pictures of flows, escape times and exponents, and the imbalance of a run over time."""

import numpy as np
import pytest
import torch
from torch import nn

import netvitals as nv
import reader_models
from netvitals import saddle


def test_pictures_of_the_papers_figures_hold_the_numbers():
    eps = np.array([0.02, 0.04, 0.08])
    chains = np.repeat(eps[:, None], 3, axis=1)
    times = saddle.escape_time(chains, "tanh", 64, method="leading")
    drawn = times.plot(eps)
    assert drawn.svg() and drawn.series[0].y == pytest.approx(times.t.tolist())
    with pytest.raises(ValueError, match="one scale for each of the 3 escape times"):
        times.plot(eps[:2])
    one, many = (saddle.reduced_flow(x, "tanh", width=64, threshold=0.3) for x in (chains[2], chains))
    assert [s.name for s in one.plot().series] == ["layer 1", "layer 2", "layer 3"] and one.plot().svg()
    assert one.plot().series[0].y == pytest.approx(one.x[:, 0].tolist())
    assert len(many.plot().series) == 3 and many.plot().svg()
    fit = saddle.fit_exponent(eps, np.stack([eps**-1.0, 1.01 * eps**-1.0], 1), r=3)
    picture = fit.plot()
    assert picture.log_x and picture.log_y and picture.svg()
    assert picture.series[0].y == pytest.approx(list(fit.times)) and picture.series[1].y == pytest.approx(
        list(fit.times)
    )


@pytest.mark.parametrize(("optimizer", "closes"), [("sgd", True), ("adam", False)])
def test_the_imbalance_of_a_run_and_what_plain_descent_leaves(tmp_path, optimizer, closes):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    made = {"sgd": lambda p: torch.optim.SGD(p, lr=0.1), "adam": lambda p: torch.optim.Adam(p, lr=0.01)}[optimizer]
    opt, x, y = made(net.parameters()), torch.randn(32, 4), torch.arange(32) % 3
    delta = lambda: float(net[2].weight.square().sum() - net[0].weight.square().sum() - net[0].bias.square().sum())
    truth = []
    with nv.watch(net, opt, every=1, run=tmp_path / "run", vitals=["accounting"]) as watch:
        for _ in range(6):
            loss = nn.functional.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            watch.step(loss)
            with torch.no_grad():
                truth.append(delta())
    found = saddle.imbalance_over_time(nv.open_run(tmp_path / "run"))
    (pair,) = found.steps
    assert found.delta[pair] == pytest.approx(truth[: len(found.delta[pair])], rel=1e-4)
    share = np.abs(found.gap[pair]).sum() / np.abs(found.change[pair]).sum()
    assert (share < 0.02) == closes, share
    picture = found.plot()
    assert picture.svg() and [s.right for s in picture.series] == [False, True]
    assert pair in str(found) and len(found.to_frame()) == len(found.steps[pair])
    with nv.watch(net, opt, every=1, run=tmp_path / "other", vitals=["gates"]) as watch:
        nn.functional.cross_entropy(net(x), y).backward()
        opt.step()
        watch.step()
    with pytest.raises(ValueError, match="holds no step accounting"):
        saddle.imbalance_over_time(nv.open_run(tmp_path / "other"))
    with pytest.raises(TypeError, match="got a Sequential"):
        saddle.imbalance_over_time(net)


@pytest.mark.parametrize("name", ["mlp", "gpt", "llama", "vit"])
def test_imbalance_names_conserved_where_that_has_the_answer(name):
    model, loss_fn, batch = reader_models.make(name)
    try:
        text = str(found := saddle.imbalance(model, loss_fn, batch))
        assert found.plot().svg()
    except ValueError as error:
        text = str(error)
    assert ("saddle.conserved" in text) == (name != "mlp"), text
