"""Sparsity on a batch, over a data set in one pass, and what it saves."""

import gc

import numpy as np
import pytest
import torch
from torch import nn

from netvitals.drift import sparsity as measure
from netvitals.vitals import Sparsity


def shares(p, a, dim, tau=0.01, tau_abs=1e-3):
    p, a = p.double().numpy(), np.abs(a.double().numpy())
    zero = np.moveaxis(a == 0, dim, -1).reshape(-1, a.shape[dim])
    return {
        "hard": zero.mean(),
        "soft": (a <= tau * a.max()).mean(),
        "soft_abs": (a <= tau_abs).mean(),
        "neg_preact": (p <= 0).mean(),
        "dead_units": zero.all(0).mean(),
        "always_on": (~zero.any(0)).mean(),
    }


def lopsided(shape, dim, seed=0):
    """Inputs with a dead channel, one that is always on, and a zero exactly."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed)) - 0.2
    channels = x.movedim(dim, -1)
    channels[..., 0] = -channels[..., 0].abs() - 1
    channels[..., 1] = channels[..., 1].abs() + 1
    x.view(-1)[-1] = 0.0
    return x


@pytest.mark.parametrize("op", ["ReLU", "GELU", "Hardshrink"])
@pytest.mark.parametrize(("shape", "dim"), [((40, 9), 1), ((5, 6, 9), -1), ((4, 9, 5, 3), 1)])
def test_every_share_equals_its_definition(made, op, shape, dim):
    x = lopsided(shape, dim)
    f = getattr(nn, op)()
    out = made.shown(Sparsity(), made.activation(x, f, op=op, channel_dim=dim))
    for metric, value in shares(x, f(x), dim).items():
        assert out["act", metric] == pytest.approx(value, abs=1e-6), metric


def test_several_sites_read_what_each_reads_alone(made):
    views = [made.activation(lopsided((16, 8), 1, i), torch.relu, op="relu", name=f"a{i}") for i in range(3)]
    together = made.shown(Sparsity(), *views)
    for view in views:
        for key, value in made.shown(Sparsity(), view).items():
            if key[0] != "model":
                assert together[key] == pytest.approx(value, abs=1e-6), key


def net_and_data(activation=nn.ReLU):
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(2, 6, 3),
        activation(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(6 * 9, 30),
        activation(),
        nn.Dropout(0.5),
        nn.Linear(30, 4),
    )
    net[4].bias.data[:5] = -50.0  # five units that never fire
    net[4].bias.data[5] = 50.0  # one that always does
    return net, torch.randn(50, 2, 8, 8)


@pytest.mark.parametrize("activation", [nn.ReLU, nn.GELU])
def test_streaming_is_the_whole_at_once(activation):
    net, x = net_and_data(activation)
    parts = measure(net, [(part, None) for part in x.split(7)], mode="eval")
    whole = measure(net, [x], mode="eval")
    assert parts.examples == 50 and parts.batches == 8
    assert parts.sites.keys() == whole.sites.keys() and parts.layers.keys() == whole.layers.keys()
    for name, site in whole.sites.items():
        found = parts.sites[name]
        assert (found.site, found.dead, found.always_on, found.units, found.elements) == (
            site.site,
            site.dead,
            site.always_on,
            site.units,
            site.elements,
        )
        for share in ("hard", "soft", "soft_tau", "soft_abs", "neg_preact"):  # an entry may round across a threshold
            assert getattr(found, share) == pytest.approx(getattr(site, share), abs=2 / site.elements), share
    for name, layer in whole.layers.items():
        assert parts.layers[name].input_sparsity == pytest.approx(layer.input_sparsity, abs=2e-3)
        assert parts.layers[name].dense == layer.dense


@pytest.mark.parametrize("activation", [nn.ReLU, nn.GELU])
def test_the_meter_equals_the_definition_over_all_samples(activation):
    net, x = net_and_data(activation)
    net.eval()
    captured = []
    with torch.no_grad():
        h = x
        for layer in net:
            before, h = h, layer(h)
            if isinstance(layer, activation):
                captured.append((before, h))
    report = measure(net.train(), iter(x.split(7)), mode="eval")
    for site, (p, a) in zip(report.sites.values(), captured):
        expected = shares(p, a, 1, tau=site.soft_tau)
        assert site.soft_tau == pytest.approx(0.01, rel=0.008)
        assert (site.hard, site.neg_preact, site.soft) == pytest.approx(
            (expected["hard"], expected["neg_preact"], expected["soft"]), abs=1e-9
        )
        assert site.dead / site.units == pytest.approx(expected["dead_units"])
        assert site.always_on / site.units == pytest.approx(expected["always_on"])
        near = [(np.abs(a.numpy()) <= 1e-3 * s).mean() for s in (0.99, 1.01)]
        assert near[0] <= site.soft_abs <= near[1]


def test_a_unit_that_fires_once_in_the_last_batch_is_not_dead():
    net = nn.Sequential(nn.Linear(1, 3, bias=False), nn.ReLU())
    net[0].weight.data = torch.tensor([[1.0], [-1.0], [0.0]])
    batches = [-torch.ones(4, 1)] * 3 + [torch.ones(1, 1)]
    site = measure(net, iter(batches)).sites["1"]
    assert (site.dead, site.always_on) == (1, 0)
    assert measure(net, iter(batches[:3])).sites["1"].dead == 2


def test_model_level_sparsity_and_operations():
    net, x = net_and_data()
    report = measure(net, x, mode="eval")
    s = [site.hard for site in report.sites.values()]
    assert report.mean == pytest.approx(np.mean(s))
    assert report.numel_weighted == pytest.approx(np.average(s, weights=[6 * 36, 30]))
    conv, hidden, head = report.layers.values()
    assert (conv.dense, hidden.dense, head.dense) == (2 * 6 * 2 * 9 * 36, 2 * 54 * 30, 2 * 30 * 4)
    assert [f.after_activation for f in (conv, hidden, head)] == [False, True, True]
    assert head.input_sparsity == pytest.approx(s[1])
    assert head.sparse == pytest.approx(head.dense * (1 - s[1]))
    assert report.ffn == pytest.approx((hidden.input_sparsity + head.input_sparsity) / 2)
    assert report.all_layers == pytest.approx(2 / 3 * report.ffn)
    assert report.flop_weighted == pytest.approx(
        np.average([hidden.input_sparsity, head.input_sparsity], weights=[hidden.dense, head.dense])
    )
    assert report.flops_dense == conv.dense + hidden.dense + head.dense
    assert report.flops_sparse == pytest.approx(conv.dense + hidden.sparse + head.sparse)
    assert f"{report.sites['5'].dead} of 30 units dead" in str(report) and report.sites["5"].dead >= 5


def test_a_transformer_tells_its_feed_forward_layers_apart():
    torch.manual_seed(0)
    block = nn.TransformerEncoderLayer(16, 2, 64, activation="relu", batch_first=True, norm_first=True)
    report = measure(block, [torch.randn(4, 10, 16)], mode="eval")
    fed = {name for name, layer in report.layers.items() if layer.after_activation}
    assert fed == {"linear2"}
    assert report.ffn == pytest.approx(report.mean)
    assert report.all_layers < report.ffn


def test_memory_does_not_grow_with_the_data():
    net, x = net_and_data()

    def live():
        gc.collect()
        return sum(t.numel() for t in gc.get_objects() if type(t) is torch.Tensor)

    sizes = []

    def progress(done, planned):
        assert planned is None  # a generator does not say how much it has
        if done in (3, 60):
            sizes.append(live())

    measure(net, (x[:10] + i for i in range(60)), progress=progress)
    assert sizes[1] <= sizes[0] * 1.01


def test_the_model_and_the_random_numbers_are_left_alone():
    net, x = net_and_data()
    net = nn.Sequential(*net, nn.BatchNorm1d(4)).train()
    state = {k: v.clone() for k, v in net.state_dict().items()}
    rng = torch.get_rng_state()
    measure(net, [x], mode="eval")
    assert net.training and all(torch.equal(v, state[k]) for k, v in net.state_dict().items())
    assert torch.equal(torch.get_rng_state(), rng)


def test_wrong_input_gets_a_sentence():
    net, x = net_and_data()
    with pytest.raises(ValueError, match="yields no batches"):
        measure(net, iter(()))
    with pytest.raises(TypeError, match="must be a torch"):
        measure("net", x)
    bad = x.clone()
    bad[0, 0, 0, 0] = float("nan")
    with pytest.raises(ValueError, match="batch 1 of the loader has 1 of 6400 values that are NaN"):
        measure(net, iter([x, bad]))
    with pytest.raises(ValueError, match="no activation that can be measured"):
        measure(nn.Linear(2, 2), [torch.zeros(3, 2)])
    with pytest.raises(ValueError, match=r"in \[0, 1\), got 1.5"):
        measure(net, [x], tau=1.5)
    with pytest.raises(ValueError, match=r"in \[0, 1\), got -1"):
        Sparsity(tau=-1)


def test_layers_of_a_hugging_face_gpt2_are_counted_and_its_zeros_found():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        n_layer=2,
        n_head=2,
        n_embd=16,
        vocab_size=40,
        n_positions=8,
        activation_function="relu",
        bos_token_id=0,
        eos_token_id=0,
    )
    gpt = transformers.GPT2LMHeadModel(config).eval()
    ids = torch.randint(0, 40, (3, 8))
    found = measure(gpt, {"input_ids": ids})
    down = found.layers["transformer.h.0.mlp.c_proj"]
    assert down.after_activation and not found.layers["transformer.h.0.mlp.c_fc"].after_activation
    assert down.dense == 2 * 64 * 16 * 8  # per example: 8 tokens
    seen = []
    handle = gpt.transformer.h[0].mlp.c_proj.register_forward_hook(lambda m, a, o: seen.append(a[0]))
    gpt(ids)
    handle.remove()
    zeros = float((seen[0] == 0).float().mean())
    assert 0.3 < zeros < 0.7 and down.input_sparsity == pytest.approx(zeros, abs=1e-6)
    assert found.ffn == pytest.approx(
        sum(found.layers[f"transformer.h.{i}.mlp.c_proj"].input_sparsity for i in (0, 1)) / 2, abs=1e-12
    )


def test_a_gated_mlp_and_a_fork_behind_a_relu_read_zeros_and_a_residual_input_does_not():
    class Gated(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate, self.up, self.down, self.a, self.b = (nn.Linear(6, 6) for _ in range(5))

        def forward(self, x):
            h = self.down(torch.relu(self.gate(x)) * self.up(x))
            z = torch.relu(h + x)
            return self.a(z) + self.b(z) + self.up(x + z)

    found = measure(Gated(), torch.randn(20, 6))
    after = {name for name, layer in found.layers.items() if layer.after_activation}
    assert after == {"down", "a", "b"}
    assert 0 < found.ffn < 1


def test_the_text_says_what_share_of_the_operations_reads_a_zero():
    net = nn.Sequential(nn.Linear(4, 8, bias=False), nn.ReLU(), nn.Linear(8, 2))
    with torch.no_grad():
        net[0].weight.copy_(torch.cat([torch.ones(6, 4), -torch.ones(2, 4)]))
    found = measure(net, torch.ones(5, 4))
    assert found.flops_dense == 2 * (32 + 16) and found.flops_sparse == 2 * (32 + 12)
    assert "8.3% of the operations read a zero" in str(found)


@pytest.mark.parametrize(
    "layer",
    [nn.Conv2d(3, 5, 3, stride=2, bias=False), nn.ConvTranspose2d(3, 5, 3, stride=2, bias=False)],
    ids=["convolution", "transposed convolution"],
)
def test_dense_operations_are_those_that_torch_counts(layer):
    """A transposed convolution multiplies once for every *input* position, an ordinary one for every output."""
    from torch.utils.flop_counter import FlopCounterMode

    net, x = nn.Sequential(nn.ReLU(), layer), torch.randn(2, 3, 9, 9)
    with FlopCounterMode(display=False) as counter:
        net(x)
    assert measure(net, x).flops_dense == counter.get_total_flops() / len(x)  # of one example
