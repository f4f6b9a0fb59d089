"""The dial reaches its target and touches nothing else; each suppression tool holds what it says it holds."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from netvitals.drift.dial import push, set_drift
from netvitals.drift.suppression import centre_activations, centre_weights, centred, project_gradients
from netvitals.optim import MuonAdamW, muon_split
from netvitals_lab import models
from netvitals_lab.theory.drift_signs import cross_entropy_inner


@pytest.fixture
def net():
    return models.build("mlp:16-32x3-10,bias=false,init=he", seed=0)


@pytest.fixture(scope="module")
def batch():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(256, 16, generator=generator), torch.randint(10, (256,), generator=generator)


@pytest.mark.parametrize("target", [0.05, 0.5, 3.0, 20.0])
def test_dial_reaches_its_target(net, batch, target):
    was = copy.deepcopy(net.state_dict())
    dial = set_drift(net, F.cross_entropy, batch, target=target, mode="train")
    x, y = batch
    assert cross_entropy_inner(net(x), y).mean().item() == pytest.approx(target, rel=1e-3)
    assert dial.after == pytest.approx(target, rel=1e-3)
    for name, value in net.state_dict().items():
        expected = was[name] * dial.scale if name == "head.weight" else was[name]
        torch.testing.assert_close(value, expected, rtol=1e-6, atol=0)


def test_dial_by_scale_and_at_zero(net, batch):
    assert set_drift(net, F.cross_entropy, batch, scale=3.0, mode="train").scale == 3.0
    assert set_drift(net, F.cross_entropy, batch, target=0.0, mode="train").after == 0
    assert not net.head.weight.any()


def test_dial_refuses_what_it_cannot_do(net, batch):
    with pytest.raises(ValueError, match="exactly one of target"):
        set_drift(net, F.cross_entropy, batch, mode="train")
    with pytest.raises(ValueError, match="non-negative"):
        set_drift(net, F.cross_entropy, batch, target=-1.0, mode="train")
    with pytest.raises(ValueError, match="no linear or convolution layer 'tail'"):
        set_drift(net, F.cross_entropy, batch, scale=2.0, readout="tail", mode="train")


def lm(o, y):
    return F.cross_entropy(o.flatten(0, 1), y.flatten())


def test_a_tied_readout_is_turned_by_its_logits():
    gpt, tokens = models.build("gpt-micro,depth=1,width=16,context=8", seed=0), torch.randint(256, (4, 8))
    was, before = copy.deepcopy(gpt.state_dict()), gpt(tokens)
    dial = set_drift(gpt, lm, (tokens, tokens), target=2.0)
    assert (dial.by, dial.readout) == ("logits", "head") and dial.after == pytest.approx(2.0, rel=1e-3)
    torch.testing.assert_close(gpt(tokens), dial.scale * before)
    assert all(torch.equal(value, was[name]) for name, value in gpt.state_dict().items())
    assert "its weight is tied" in str(dial)
    dial.remove()
    assert torch.equal(gpt(tokens), before)


def hugging_face(name):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    if name == "gpt2":
        sizes = {"n_layer": 2, "n_head": 2, "n_embd": 16, "vocab_size": 20, "n_positions": 8}
        return transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, vocab_size=20, tie_word_embeddings=False))


@pytest.mark.parametrize(("name", "by"), [("gpt2", "logits"), ("llama", "weight")])
def test_dial_and_suppression_run_on_hugging_face_models(name, by):
    """Tied head, Conv1D, ModelOutput, gated MLP: the push is set, and no hidden row mean moves in training."""
    net, tokens = hugging_face(name), torch.randint(0, 20, (4, 8))
    dial = set_drift(net, lm, (tokens, tokens), target=1.5, mode="eval")
    assert (dial.readout, dial.by) == ("lm_head", by) and dial.after == pytest.approx(1.5, rel=1e-3)
    assert push(net, lm, (tokens, tokens), mode="eval").mean().item() == pytest.approx(1.5, rel=1e-3)
    optimizer = torch.optim.AdamW(net.parameters(), 1e-2, weight_decay=0.0)
    layers = dict(net.named_modules())
    with project_gradients(net, optimizer, batch=(tokens, tokens)) as held:
        inputs = {n: 0 if type(layers[n]).__name__ == "Conv1D" else 1 for n in held.names}
        assert len(held.names) >= 8 and "lm_head" not in held.names
        before = {n: layers[n].weight.detach().mean(d) for n, d in inputs.items()}
        for _ in range(3):
            optimizer.zero_grad()
            lm(net(tokens).logits, tokens).backward()
            optimizer.step()
        for n, d in inputs.items():
            torch.testing.assert_close(layers[n].weight.detach().mean(d), before[n], atol=1e-6, rtol=0)
    with centre_weights(net, (tokens, tokens)) as held:
        assert max(float(layers[n].weight.detach().mean(d).abs().max()) for n, d in inputs.items()) < 1e-6
        lm(net(tokens).logits, tokens).backward()


def test_dial_on_a_model_that_has_learned_leaves_it_as_it_was(batch):
    x, y = batch
    net = nn.Linear(16, 10, bias=False)
    centres = torch.randn(10, 16, generator=torch.Generator().manual_seed(1))
    x = centres[y] * 3
    with torch.no_grad():
        net.weight.copy_(centres)
    was = net.weight.detach().clone()
    assert push(net, F.cross_entropy, (x, y), mode="train").mean() < 0
    with pytest.raises(ValueError, match="has learned"):
        set_drift(net, F.cross_entropy, (x, y), target=5.0, mode="train")
    assert torch.equal(net.weight, was)


def _train(net: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 10) -> None:
    generator = torch.Generator().manual_seed(2)
    for _ in range(steps):
        x, y = torch.randn(64, 16, generator=generator), torch.randint(10, (64,), generator=generator)
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()


def _row_means(net: nn.Module) -> torch.Tensor:
    return torch.cat([block.linear.weight.detach().mean(1) for block in net.blocks])


def test_centred_rows_stay_centred_and_come_off_again(net):
    free = copy.deepcopy(net)
    suppression = centre_weights(net)
    assert suppression.names == ("blocks.0.linear", "blocks.1.linear", "blocks.2.linear")
    _train(net, torch.optim.Adam(net.parameters(), 1e-2))
    assert float(_row_means(net).abs().max()) < 1e-7
    with pytest.raises(ValueError, match="already"):
        centre_weights(net)
    suppression.remove()
    assert {n for n, _ in net.named_parameters()} == {n for n, _ in free.named_parameters()}
    assert float(_row_means(net).abs().max()) < 1e-7


def test_projected_gradients_hold_the_means(net):
    before = _row_means(net)
    free = copy.deepcopy(net)
    with project_gradients(net):
        _train(net, torch.optim.SGD(net.parameters(), 0.1, momentum=0.9))
    assert float((_row_means(net) - before).abs().max()) < 1e-6
    _train(free, torch.optim.SGD(free.parameters(), 0.1, momentum=0.9))
    assert float((_row_means(free) - before).abs().max()) > 1e-3  # without it they move
    held = _row_means(net)
    _train(net, torch.optim.SGD(net.parameters(), 0.1))
    assert float((_row_means(net) - held).abs().max()) > 1e-4  # and after it was removed


@pytest.mark.parametrize("kind", ["adam", "muon"])
def test_optimisers_that_put_the_mean_back_are_held_too(net, kind):
    def optimiser(model: nn.Module) -> torch.optim.Optimizer:
        if kind == "adam":
            return torch.optim.Adam(model.parameters(), 1e-2)
        matrices, rest = muon_split(model)
        return MuonAdamW([{"params": list(matrices.values()), "lr": 1e-2}], [{"params": list(rest.values())}])

    before = _row_means(net)
    twin = copy.deepcopy(net)
    optimizer = optimiser(net)
    with project_gradients(net, optimizer):
        _train(net, optimizer)
    assert float((_row_means(net) - before).abs().max()) < 1e-6
    with project_gradients(twin):
        _train(twin, optimiser(twin))
    gradient_only = float((_row_means(twin) - before).abs().max())
    assert gradient_only > (1e-4 if kind == "adam" else -1), gradient_only


def test_convolutions_have_rows_too():
    weight = torch.randn(4, 3, 3, 3)
    assert float(centred(weight).mean((1, 2, 3)).abs().max()) < 1e-7
    assert centre_weights(models.build("resnet-mini,width=4")).names[0] == "stem.0"


def test_centred_activations_have_no_mean(net):
    suppression = centre_activations(net)
    z = torch.randn(200_000, generator=torch.Generator().manual_seed(0))
    assert all(abs(float(net.get_submodule(name)(z).mean())) < 5e-3 for name in suppression.names)
    assert len(suppression.names) == 3
    suppression.remove()
    assert all(type(net.get_submodule(name)) is nn.ReLU for name in suppression.names)
    encoder = nn.TransformerEncoderLayer(8, 2, 16, activation="gelu", batch_first=True)
    with centre_activations(encoder):
        assert isinstance(encoder.activation, nn.Module)
    assert encoder.activation is F.gelu
    with pytest.raises(ValueError, match="no activation"):
        centre_activations(nn.Linear(2, 2))


def test_parameters_by_pattern(net):
    assert centre_weights(net, only="blocks.1.*").names == ("blocks.1.linear",)
    with pytest.raises(ValueError, match="nosuch"):
        project_gradients(net, only="nosuch*")


class HeadFirst(nn.Module):
    """A readout that is registered before the hidden layers."""

    def __init__(self):
        super().__init__()
        self.head, self.a, self.b = nn.Linear(16, 5), nn.Linear(8, 16), nn.Linear(16, 16)

    def forward(self, x):
        return self.head(torch.relu(self.b(torch.relu(self.a(x)))))


def test_the_readout_is_found_by_dataflow_and_not_by_the_order_of_registration():
    torch.manual_seed(0)
    net, x, y = HeadFirst(), torch.randn(64, 8), torch.randint(5, (64,))
    hidden = {n: p.clone() for n, p in net.named_parameters() if not n.startswith("head")}
    assert set_drift(net, "ce", (x, y), target=1.5).readout == "head"
    assert all(torch.equal(p, hidden[n]) for n, p in net.named_parameters() if n in hidden)
    with centre_weights(net, (x, y)) as held:
        assert held.names == ("a", "b") and "readout" in held.skipped["head"]
    with project_gradients(net, batch=(x, y)) as held:
        assert held.names == ("a", "b")
    with centre_weights(net) as held:
        assert "registered last" in held.skipped["b"]


def test_layers_of_a_hugging_face_gpt2_are_centred_by_output():
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        n_layer=1, n_head=2, n_embd=8, vocab_size=20, n_positions=6, bos_token_id=0, eos_token_id=0
    )
    gpt = transformers.GPT2LMHeadModel(config)
    batch = {"input_ids": torch.randint(0, 20, (2, 6))}
    with centre_weights(gpt, batch) as held:
        assert "transformer.h.0.mlp.c_fc" in held.names and "lm_head" not in held.names
        weight = gpt.transformer.h[0].mlp.c_fc.weight  # stored (inputs, outputs)
        assert float(weight.mean(0).abs().max()) < 1e-7 < float(weight.mean(1).abs().max())
        gpt(**batch).logits.square().mean().backward()


def test_the_dial_scales_the_bias_with_the_weight(batch):
    net, (x, _) = models.build("mlp:16-32x2-10,init=default", seed=0), batch
    with torch.no_grad():
        net.head.bias.add_(1.0)
        before = net(x)
        set_drift(net, F.cross_entropy, batch, scale=0.5, mode="train")
        torch.testing.assert_close(net(x), 0.5 * before)


def test_the_dials_error_is_that_of_a_mean_over_examples(net, batch):
    dial = set_drift(net, F.cross_entropy, batch, scale=2.0, mode="train")
    single = cross_entropy_inner(net(batch[0]), batch[1]).detach().double()
    assert dial.stderr == pytest.approx(float(single.std(correction=1)) / 256**0.5, rel=1e-6)
