"""Attention: queries, keys, values and output by what meets in the products, however they are written."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from netvitals.anatomy import chart

B, T, H, D = 3, 5, 4, 2
C = H * D


class Fused(nn.Module):
    """One matrix makes all three; ``order`` says how its rows lie."""

    def __init__(self, order="qkv", how="sdpa"):
        super().__init__()
        self.o, self.qkv, self.order, self.how = nn.Linear(C, C), nn.Linear(C, 3 * C), order, how

    def forward(self, x):
        b, t, _ = x.shape
        if self.order == "qkv":
            q, k, v = (p.view(b, t, H, D).transpose(1, 2) for p in self.qkv(x).split(C, -1))
        elif self.order == "unbound":
            q, k, v = self.qkv(x).view(b, t, 3, H, D).permute(2, 0, 3, 1, 4).unbind(0)
        else:  # by head
            q, k, v = self.qkv(x).view(b, t, H, 3 * D).transpose(1, 2).chunk(3, -1)
        if self.how == "sdpa":
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        elif self.how == "einsum":
            y = torch.einsum("bhts,bhsd->bhtd", torch.einsum("bhtd,bhsd->bhts", q, k).mul(0.25).softmax(-1), v)
        else:
            a = (q / math.sqrt(D)) @ k.transpose(-2, -1)
            a = a.masked_fill(torch.ones(t, t, dtype=torch.bool).triu(1), -torch.inf).softmax(-1)
            y = F.dropout(a, 0.1) @ v
        return self.o(y.transpose(1, 2).reshape(b, t, C))


@pytest.mark.parametrize("how", ["sdpa", "einsum", "matmul"])
@pytest.mark.parametrize("order", ["qkv", "unbound"])
def test_a_fused_matrix_is_taken_apart_by_rows(order, how):
    (block,) = chart(Fused(order, how), torch.randn(B, T, C)).heads
    assert [str(p) for p in (block.q, block.k, block.v)] == [f"qkv.weight[{i * C}:{(i + 1) * C}]" for i in range(3)]
    assert str(block.k.bias) == f"qkv.bias[{C}:{2 * C}]" and str(block.o) == "o.weight"
    assert (block.heads, block.kv_heads, block.head_dim, block.fused) == (H, H, D, how == "sdpa")
    assert block.scale == pytest.approx(0.25 if how == "einsum" else 1 / math.sqrt(D), rel=1e-6)
    assert block.causal == (how != "einsum") and not block.cross and not block.qk_norm
    assert [str(p) for p in block.q.heads] == [f"qkv.weight[{h * D}:{(h + 1) * D}]" for h in range(H)]
    assert [str(p) for p in block.o.heads] == [f"o.weight[:, {h * D}:{(h + 1) * D}]" for h in range(H)]


def test_rows_that_lie_head_by_head_are_found_and_taken():
    net = Fused("by head")
    (block,) = chart(net, torch.randn(B, T, C)).heads
    rows = net.qkv.weight.view(H, 3, D, C)
    for k, part in enumerate((block.q, block.k, block.v)):
        assert torch.equal(part.weight.of(net.qkv.weight), rows[:, k].reshape(C, C))
        assert torch.equal(part.heads[2].of(net.qkv.weight), rows[2, k])
        assert torch.equal(part.bias.of(net.qkv.bias), net.qkv.bias.view(H, 3, D)[:, k].flatten())


def test_logits_are_the_scale_times_query_and_key():
    for how in ("einsum", "matmul"):
        found = chart(Fused(how=how), torch.randn(B, T, C))
        (block,) = found.heads
        q, k = found.tensors[block.query], found.tensors[block.key]
        made = block.scale * q.reshape(B * H, T, D) @ k.reshape(B * H, T, D).transpose(1, 2)
        seen = found.tensors[block.logits].reshape(B * H, T, T)
        known = seen.isfinite()
        assert torch.allclose(made[known], seen[known], atol=1e-6)


class Grouped(nn.Module):
    def __init__(self, kv=2, repeat=True, norm=False):
        super().__init__()
        self.kv, self.repeat = kv, repeat
        self.q, self.k, self.v = nn.Linear(C, C), nn.Linear(C, kv * D), nn.Linear(C, kv * D)
        self.o, self.norm = nn.Linear(C, C, bias=False), nn.LayerNorm(D) if norm else nn.Identity()

    def forward(self, x):
        b, t, _ = x.shape
        split = lambda p, n: p.view(b, t, n, D).transpose(1, 2)
        q, k, v = self.norm(split(self.q(x), H)), split(self.k(x), self.kv), split(self.v(x), self.kv)
        if self.repeat:
            k, v = k.repeat_interleave(H // self.kv, 1), v.repeat_interleave(H // self.kv, 1)
        y = F.scaled_dot_product_attention(q, k, v, enable_gqa=not self.repeat)
        return self.o(y.transpose(1, 2).flatten(2))


@pytest.mark.parametrize("repeat", [True, False])
@pytest.mark.parametrize("kv", [1, 2, 4])
def test_grouped_heads_are_counted_by_what_they_hold(kv, repeat):
    (block,) = chart(Grouped(kv, repeat), torch.randn(B, T, C)).heads
    assert (block.heads, block.kv_heads) == (H, kv)
    assert [str(p) for p in block.k.heads] == [
        f"k.weight[{h * D}:{(h + 1) * D}]" if kv > 1 else "k.weight" for h in range(kv)
    ]
    assert block.q.whole and block.q.layer == "q" and block.o.bias is None


def test_a_norm_on_the_queries_is_known():
    assert chart(Grouped(norm=True), torch.randn(B, T, C)).heads[0].qk_norm
    assert not chart(Grouped(), torch.randn(B, T, C)).heads[0].qk_norm


@pytest.mark.parametrize("train", [True, False])
def test_torchs_own_attention_is_taken_apart_also_across_two_inputs_and_in_inference(train):
    net = nn.MultiheadAttention(C, H, batch_first=True).train(train)
    for p in net.parameters():
        p.requires_grad_(False)
    x, y = torch.randn(B, T, C), torch.randn(B, T + 1, C)
    (own,) = chart(net, (x, x, x)).heads
    (across,) = chart(net, (x, y, y)).heads
    for block in (own, across):
        weights = [str(p) for p in (block.q, block.k, block.v, block.o)]
        assert weights == ["in_proj_weight[0:8]", "in_proj_weight[8:16]", "in_proj_weight[16:24]", "out_proj.weight"]
        assert (block.heads, block.head_dim) == (H, D) and block.scale == pytest.approx(1 / math.sqrt(D))
    assert across.cross and not own.cross


def test_a_transformer_layer_shows_both_kinds_of_attention():
    net = nn.Transformer(C, H, 1, 2, 16, batch_first=True)
    found = chart(net, (torch.randn(B, T, C), torch.randn(B, T, C)))
    assert [h.cross for h in found.heads] == [False, False, True, False, True]
    assert [h.name.rpartition(".")[2] for h in found.heads] == ["self_attn"] * 2 + [
        "multihead_attn",
        "self_attn",
        "multihead_attn",
    ]


def test_attention_with_a_softmax_written_out_is_attention():
    class Written(Fused):
        def forward(self, x):
            b, t, _ = x.shape
            q, k, v = (p.view(b, t, H, D).transpose(1, 2) for p in self.qkv(x).split(C, -1))
            s = (q @ k.transpose(-2, -1)) / math.sqrt(D)
            e = torch.exp(s - s.amax(-1, keepdim=True))
            return self.o(((e / e.sum(-1, keepdim=True)) @ v).transpose(1, 2).reshape(b, t, C))

    found = chart(Written(), torch.randn(B, T, C))
    (block,) = found.heads
    assert str(block.q) == "qkv.weight[0:8]" and block.scale == pytest.approx(1 / math.sqrt(D))
    assert not found.activations and [n.kind for n in found.norms] == ["softmax"]


def test_language_models_show_their_heads():
    transformers = pytest.importorskip("transformers")
    ids = {"input_ids": torch.randint(1, 40, (2, 6))}
    gpt = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(n_layer=2, n_head=2, n_embd=16, vocab_size=40, bos_token_id=0, eos_token_id=0)
    )
    block = chart(gpt, ids).heads[1]
    assert str(block.v) == "transformer.h.1.attn.c_attn.weight[:, 32:48]"
    assert str(block.v.bias) == "transformer.h.1.attn.c_attn.bias[32:48]"
    assert [str(p) for p in block.o.heads] == [f"transformer.h.1.attn.c_proj.weight[{r}]" for r in ("0:8", "8:16")]
    t5 = transformers.T5ForConditionalGeneration(
        transformers.T5Config(
            d_model=16, d_kv=4, d_ff=24, num_layers=2, num_heads=4, vocab_size=40, decoder_start_token_id=0
        )
    )
    found = chart(t5, {**ids, "decoder_input_ids": ids["input_ids"][:, :4]})
    assert [h.cross for h in found.heads] == [False, False, False, True, False, True]
    assert {h.scale for h in found.heads} == {1.0} and {h.heads for h in found.heads} == {4}
    assert [h.causal for h in found.heads] == [False, False, True, False, True, False]
