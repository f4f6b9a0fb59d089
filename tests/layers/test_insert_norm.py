"""A quantile norm in front of activations sets their sparsity, on the models a reader brings."""

import pytest
import torch
from torch import nn

import reader_models
from netvitals import drift, layers

WHERE = {
    "mlp": {"1", "3"},
    "cnn": {"act2"},
    "gpt": {f"transformer.h.{i}.mlp.gelu" for i in range(2)},
    "llama": {f"model.layers.{i}.mlp.act_fn" for i in range(2)},
    "vit": {2},
    "tied": set(),
}


@pytest.mark.parametrize("name", reader_models.NAMES)
def test_the_share_of_negative_inputs_is_the_quantile(name):
    model, _, batch = reader_models.make(name)
    parameters = {n: p.detach().clone() for n, p in model.named_parameters()}
    done = layers.insert_norm(model, batch, to="quantile:0.75")
    assert len(done) == 2 if name == "vit" else {r.name for r in done} == WHERE[name]
    assert all(torch.equal(dict(model.named_parameters())[n], p) for n, p in parameters.items())
    if name == "tied":
        assert "several places" in done.skipped["act"]
        return
    if name == "cnn":
        assert done.skipped["act1"] == "it follows the norm bn1: use replace_norm"
    for r in done:
        assert any(p.requires_grad for p in r.new.norm.parameters())
    found = drift.sparsity(model.train(), batch, mode="as_is")
    inserted = [s for n, s in found.sites.items() if any(n.startswith(r.name) for r in done)]
    assert len(inserted) == len(done)
    for s in inserted:
        assert s.neg_preact == pytest.approx(0.75, abs=0.13)


def test_what_cannot_be_reached_is_listed():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.act, self.unused = nn.Conv1d(2, 3, 3), nn.ReLU(), nn.GELU()

        def forward(self, x):
            return torch.relu(self.act(self.conv(x)).mean(-1))

    net = Net()
    done = layers.insert_norm(net, torch.randn(4, 2, 9))
    assert not done and "(N, C, T)" in done.skipped["act"] and "not called" in done.skipped["unused"]
    assert any("called as a function" in why for why in done.skipped.values())
    with pytest.raises(ValueError, match="there is no norm 'quantil'"):
        layers.insert_norm(net, torch.randn(4, 2, 9), to="quantil:0.5")
    with pytest.raises(ValueError, match="the model itself"):
        layers.insert_norm(nn.ReLU(), torch.randn(4, 2))


def test_only_and_twice():
    net, x = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU()).double().eval(), torch.randn(6, 4)
    x = x.double()
    assert [r.name for r in layers.insert_norm(net, x, only="3")] == ["3"]
    assert net[3].norm.weight.dtype == torch.float64 and not net[3].norm.training
    assert [r.name for r in layers.insert_norm(net, x)] == ["1"]  # the one inside Normed is left alone
    assert net(x).shape == (6, 8)
