"""What gradient flow conserves in real networks: attention, gated MLPs, norms, forks, residual streams."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from netvitals import saddle


class Attention(nn.Module):
    """A residual block without norms: attention, then a SwiGLU MLP."""

    def __init__(self, bias=True):
        super().__init__()
        self.embed, self.head = nn.Linear(5, 8, bias=bias), nn.Linear(8, 3, bias=bias)
        self.q, self.k, self.v, self.o = (nn.Linear(8, 8, bias=bias) for _ in range(4))
        self.gate, self.up, self.down = nn.Linear(8, 12, bias=bias), nn.Linear(8, 12, bias=bias), nn.Linear(12, 8)

    def forward(self, x):
        x = self.embed(x)
        q, k, v = (f(x).view(*x.shape[:2], 2, 4).transpose(1, 2) for f in (self.q, self.k, self.v))
        x = x + self.o(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return self.head(x + self.down(F.silu(self.gate(x)) * self.up(x)))


def size(*tensors):
    return sum(float(t.detach().square().sum()) for t in tensors)


@pytest.mark.parametrize("bias", [True, False])
def test_laws_of_a_residual_attention_block_hold_to_rounding(bias):
    torch.manual_seed(0)
    net = Attention(bias).double()
    found = saddle.conserved(net, "mse", (torch.randn(3, 6, 5).double(), torch.randn(3, 6, 3).double()))
    kinds = {law.kind: law for law in found.laws}
    assert set(kinds) == {"query–key", "value–output", "gated", "stream"} and not found.skipped
    assert max(law.defect for law in found.laws) <= 1e-12
    b = lambda layer: [layer.bias] if layer.bias is not None else []
    wanted = {
        "query–key": size(net.q.weight, *b(net.q)) - size(net.k.weight, *b(net.k)),
        "value–output": size(net.o.weight) - size(net.v.weight, *b(net.v)),
        "gated": size(net.down.weight) - size(net.up.weight, *b(net.up)),
        "stream": size(*(getattr(net, n).weight for n in ("q", "k", "v", "gate", "up", "head")))
        - size(net.embed.weight, net.o.weight, net.down.weight, *b(net.embed), *b(net.o), net.down.bias),
    }
    for kind, delta in wanted.items():
        assert kinds[kind].delta == pytest.approx(delta, rel=1e-12), kind


def test_laws_of_hugging_face_models_hold_to_rounding():
    transformers = pytest.importorskip("transformers")
    ids = torch.randint(0, 40, (2, 8))
    own = {"input_ids": ids, "labels": ids}
    small = {"vocab_size": 40, "bos_token_id": 0, "eos_token_id": 0}
    gpt = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=2, n_head=2, n_embd=16, n_positions=8, **small))
    llama = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            hidden_size=16,
            intermediate_size=24,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            **small,
        )
    )
    for model, gated in ((gpt, 0), (llama, 2)):
        found = saddle.conserved(model.double().eval(), None, own)
        count = lambda kind, of=found: sum(law.kind == kind for law in of.laws)
        assert (count("query–key"), count("value–output"), count("gated")) == (2, 2, gated)
        assert count("norm") >= 4 and max(law.defect for law in found.laws) <= 1e-12
    assert "used more than once" in saddle.conserved(gpt, None, own).skipped["readers of transformer.ln_f"]
    fused = saddle.conserved(gpt, None, own)["transformer.h.0.attn Q − K"]
    weight = gpt.transformer.h[0].attn.c_attn.weight
    assert float(fused.value(dict(gpt.named_parameters()))) == pytest.approx(
        size(weight[:, :16], gpt.transformer.h[0].attn.c_attn.bias[:16])
        - size(weight[:, 16:32], gpt.transformer.h[0].attn.c_attn.bias[16:32]),
        rel=1e-12,
    )


class Fork(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(4, 6, bias=False), nn.Linear(6, 2), nn.Linear(6, 2)

    def forward(self, x):
        h = torch.relu(self.a(x))
        return self.b(h) + self.c(h)


def test_a_fork_conserves_the_sum_over_its_readers_and_no_single_pair():
    torch.manual_seed(1)
    net = Fork().double()
    x, y = torch.randn(16, 4).double(), torch.randn(16, 2).double()
    (law,) = saddle.conserved(net, "mse", (x, y)).laws
    assert law.kind == "fork" and {p.parameter for p in law.plus} == {"b.weight", "c.weight"}
    with pytest.raises(ValueError, match="it feeds b and c"):
        saddle.imbalance(net, "mse", (x, y))
    pair = lambda: size(net.b.weight) - size(net.a.weight)
    whole = lambda: float(law.value(dict(net.named_parameters())))
    before = pair(), whole()
    opt = torch.optim.SGD(net.parameters(), lr=1e-3)
    for _ in range(400):
        opt.zero_grad()
        F.mse_loss(net(x), y).backward()
        opt.step()
    assert abs(pair() - before[0]) > 1e-2 and abs(whole() - before[1]) < 1e-3  # what is left is of order lr


def test_what_cannot_be_conserved_is_named():
    net = Attention().double()
    batch = torch.randn(2, 4, 5).double(), torch.randn(2, 4, 3).double()
    net.k.weight.requires_grad_(False)
    assert "k.weight is frozen" in saddle.conserved(net, "mse", batch).skipped["the model Q − K"]
    net.k.weight.requires_grad_(True)
    net.v.weight = net.k.weight
    assert "used more than once" in saddle.conserved(net, "mse", batch).skipped["the model O − V"]


def test_a_layer_scaled_by_a_constant_after_it_is_a_pair_of_its_own():
    """Freed memory that is taken again must not be mistaken for a connection."""

    class Affine(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x):
            return self.b(self.a(x) * 2 + 1)

    found = saddle.imbalance(Affine().double(), "mse", (torch.randn(7, 3).double(), torch.randn(7, 3).double()))
    assert list(found.delta) == ["a → b"] and max(found.defect.values()) <= 1e-12
    assert abs(found.pairs[0].rhs) > 1e-3  # the constant breaks the conservation, and the identity says by how much


def test_a_frozen_layer_does_not_move_its_half():
    torch.manual_seed(2)
    net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2)).double()
    batch = torch.randn(9, 4).double(), torch.randn(9, 2).double()
    net[0].requires_grad_(False)
    found = saddle.imbalance(net, "mse", batch).pairs[0]
    F.mse_loss(net(batch[0]), batch[1]).backward()
    assert found.lhs == pytest.approx(-2 * float((net[2].weight * net[2].weight.grad).sum()), rel=1e-12)
    assert found.defect <= 1e-12


def test_tied_and_computed_weights_are_refused():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
            self.b.weight = self.a.weight
            self.c, self.d = nn.Linear(4, 4), nn.Linear(4, 2)

        def forward(self, x):
            return self.d(torch.tanh(self.c(torch.tanh(self.b(torch.tanh(self.a(x)))))))

    batch = torch.randn(5, 4).double(), torch.randn(5, 2).double()
    found = saddle.imbalance(Tied().double(), "mse", batch)
    assert list(found.delta) == ["c → d"] and "2 times" in found.skipped["a"]
    normed = torch.nn.utils.parametrizations.weight_norm(nn.Linear(4, 6))
    net = nn.Sequential(normed, nn.Tanh(), nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 2)).double()
    found = saddle.imbalance(net, "mse", batch)
    assert list(found.delta) == ["2 → 4"] and "computed from" in found.skipped["0"]


def test_pairs_of_the_whole_model_are_those_of_the_dataflow():
    """Neither the order of registration nor freed memory makes a pair."""

    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.second, self.first, self.side = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x):
            return self.side(self.second(torch.relu(self.first(x))) * 2 + 1)

    found = saddle.chain_imbalance(Odd(), torch.randn(5, 4))
    assert [(p.first, p.second) for p in found.pairs] == [("first", "second")]
    with pytest.raises(ValueError, match="no two linear"):
        saddle.chain_imbalance(Fork(), torch.randn(5, 4))


@pytest.mark.parametrize("bias", [True, False])
def test_neighbouring_layers_of_a_relu_network_conserve_their_imbalance(bias):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 6, bias), nn.ReLU(), nn.Dropout(0.0), nn.Linear(6, 5, bias), nn.LeakyReLU())
    net = net.append(nn.Linear(5, 2)).double()
    batch = torch.randn(9, 4).double(), torch.randn(9, 2).double()
    found = saddle.conserved(net, "mse", batch)
    assert {law.name: law.kind for law in found.laws} == {"0 → 3": "pair", "3 → 5": "pair"} and not found.skipped
    identity = saddle.imbalance(net, "mse", batch)
    assert [law.delta for law in found.laws] == pytest.approx(list(identity.delta.values()), rel=1e-12)
    assert max(law.defect for law in found.laws) <= 1e-12


@pytest.mark.parametrize(("act", "named"), [(nn.Tanh(), "tanh"), (nn.GELU(), "gelu"), (nn.LayerNorm(6), "norm")])
def test_neighbouring_layers_that_conserve_nothing_are_skipped_with_the_reason(act, named):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 6), act, nn.Linear(6, 2)).double()
    found = saddle.conserved(net, "mse", (torch.randn(9, 4).double(), torch.randn(9, 2).double()))
    assert not [law for law in found.laws if law.kind == "pair"]
    assert named in found.skipped["0 → 2"] and "not homogeneous" in found.skipped["0 → 2"]


def test_every_layer_has_a_law_or_a_reason():
    torch.manual_seed(0)
    alone = saddle.conserved(nn.Linear(4, 2).double(), "mse", (torch.randn(9, 4).double(), torch.randn(9, 2).double()))
    assert not alone.laws and "no other layer" in next(iter(alone.skipped.values()))

    class TwoUses(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2)

        def forward(self, x):
            return self.c(torch.relu(self.a(x)) * torch.tanh(self.b(x)) + 1)

    found = saddle.conserved(TwoUses().double(), "mse", (torch.randn(9, 4).double(), torch.randn(9, 2).double()))
    assert "sees b as well" in found.skipped["a"] and "Δ moves" in found.skipped["the model out − value"]


def test_conserved_and_imbalance_name_each_other_where_one_has_the_answer():
    torch.manual_seed(0)
    bent, batch = nn.Sequential(nn.Linear(3, 5), nn.GELU(), nn.Linear(5, 2)), (torch.randn(6, 3), torch.randn(6, 2))
    moving = saddle.conserved(bent, "mse", batch).skipped["0 → 2"]
    assert "saddle.imbalance has what moves it" in moving
    assert saddle.imbalance(bent, "mse", batch).defect["0 → 2"] < 1e-5

    class SwiGLU(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate, self.up, self.down = nn.Linear(3, 4), nn.Linear(3, 4), nn.Linear(4, 2)

        def forward(self, x):
            return self.down(torch.nn.functional.silu(self.gate(x)) * self.up(x))

    net = SwiGLU().double()
    double = tuple(t.double() for t in batch)
    with pytest.raises(ValueError, match=r"saddle\.conserved checks the laws .*out − value"):
        saddle.imbalance(net, "mse", double)
    assert any(law.kind == "gated" for law in saddle.conserved(net, "mse", double).laws)
