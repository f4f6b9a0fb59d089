"""Scores of channels on any network, and channels that are silenced by them."""

import numpy as np
import pytest
import torch
from torch import nn

import reader_models
from netvitals import gates

MAKERS = {
    "mlp": {"1": "0", "3": "2"},
    "cnn": {"act1": "conv1"},
    "gpt": {f"transformer.h.{i}.mlp.gelu": f"transformer.h.{i}.mlp.c_fc" for i in range(2)},
    "llama": {f"model.layers.{i}.mlp.act_fn": f"model.layers.{i}.mlp.gate_proj" for i in range(2)},
    "vit": None,
}


@pytest.mark.parametrize("name", MAKERS)
def test_the_layer_behind_every_activation_is_found(name):
    model, _, batch = reader_models.make(name)
    state = {k: v.clone() for k, v in model.state_dict().items()}
    for score in gates.SCORES:
        found = gates.channel_scores(model, batch, score=score)
        if MAKERS[name] is not None:
            assert found.layers == MAKERS[name]
        for site, values in found.sites.items():
            weight = model.get_submodule(found.layers[site]).weight
            assert values.shape == (weight.shape[0],) and np.isfinite(values).all()
            if score == "magnitude":
                assert values == pytest.approx(weight.detach().flatten(1).norm(dim=1).numpy(), rel=1e-6)
            if score == "gate":
                assert values == pytest.approx(gates.measure(model, batch).sites[site].channel_densities[0.01])
        assert found.plot().svg() and len(found.to_frame()) == sum(map(len, found.sites.values()))
        assert len(str(found).splitlines()) <= 45
    assert all(torch.equal(v, state[k]) for k, v in model.state_dict().items())
    if name == "cnn":
        assert "a sum" in found.skipped["act2"]


def test_channels_of_tied_layers_are_refused():
    model, _, batch = reader_models.make("tied")
    with pytest.raises(ValueError, match="act: inner is used 2 times: its channels feed several places"):
        gates.channel_scores(model, batch)


def test_the_lowest_channels_are_silenced_and_the_network_is_left_as_it_was():
    model, _, (x, _) = reader_models.make("cnn")
    model.eval()
    before, seen = model(x), []
    found = gates.channel_scores(model, x, score="magnitude")
    with found.silenced(model, 0.5) as cut:
        hook = cut.act1.register_forward_hook(lambda m, a, out: seen.append(out.detach()))
        assert not torch.equal(cut(x), before)
        hook.remove()
    scores = found.sites["act1"]
    silent = (seen[0].abs().amax((0, 2, 3)) == 0).numpy()
    assert silent[scores <= np.sort(scores)[2]].all() and not silent[scores > np.sort(scores)[2]].all()
    assert torch.equal(model(x), before) and not model.act1._forward_hooks


def test_equal_scores_are_cut_in_a_random_order():
    net = nn.Sequential(nn.Linear(3, 64), nn.Softplus(), nn.Linear(64, 1))
    found = gates.channel_scores(net, torch.randn(20, 3), theta=0.0)
    assert set(found.sites["1"]) == {1.0}
    low = [found.lowest(0.25, seed)["1"] for seed in (0, 0, 1)]
    assert low[0].sum() == 16 and (low[0] == low[1]).all() and (low[0] != low[2]).any()


def test_bad_input_gets_a_sentence():
    model, _, batch = reader_models.make("mlp")
    with pytest.raises(ValueError, match="there is no score 'taste'; there are gate, magnitude, random"):
        gates.channel_scores(model, batch, score="taste")
    with pytest.raises(ValueError, match=r"in \[0, 1\), got 1"):
        gates.channel_scores(model, batch).lowest(1.0)
    with pytest.raises(ValueError, match=r"there is no activation 'act\*'"):
        gates.channel_scores(model, batch, only="act*")

    class Functional(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(3, 4)

        def forward(self, x):
            return torch.relu(self.a(x))

    net = Functional()
    found = gates.channel_scores(net, torch.randn(5, 3))
    assert list(found.layers.values()) == ["a"]
    with pytest.raises(ValueError, match="not a module"):
        found.silenced(net, 0.5).__enter__()
