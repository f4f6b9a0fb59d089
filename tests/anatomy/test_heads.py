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


def test_a_sink_beside_the_logits_and_a_bias_in_the_product_hide_no_attention():
    class Sink(Fused):
        def __init__(self):
            super().__init__()
            self.sink = nn.Parameter(torch.randn(H))

        def forward(self, x):
            b, t, _ = x.shape
            q, k, v = (p.view(b, t, H, D).transpose(1, 2).reshape(b * H, t, D) for p in self.qkv(x).split(C, -1))
            ahead = torch.full((t, t), -torch.inf).triu(1).expand(b * H, t, t)
            s = torch.baddbmm(ahead, q, k.transpose(1, 2), beta=1.0, alpha=0.3)
            s = torch.cat([s.view(b, H, t, t), self.sink.view(1, H, 1, 1).expand(b, H, t, 1)], -1)
            y = s.softmax(-1)[..., :-1] @ v.view(b, H, t, D)
            return self.o(y.transpose(1, 2).reshape(b, t, C))

    (block,) = chart(Sink(), torch.randn(B, T, C)).heads
    assert (block.heads, block.head_dim, block.causal, block.scale) == (H, D, True, pytest.approx(0.3))
    assert [str(p) for p in (block.q, block.k, block.v)] == [f"qkv.weight[{i * C}:{(i + 1) * C}]" for i in range(3)]


def test_learned_latents_that_ask_the_data_are_cross_attention():
    class Latents(nn.Module):
        def __init__(self):
            super().__init__()
            self.latents, self.norm = nn.Parameter(torch.randn(3, C)), nn.LayerNorm(C)
            self.q, self.k, self.v, self.o = (nn.Linear(C, C) for _ in range(4))

        def forward(self, x):
            b, t, _ = x.shape
            q = self.q(self.norm(self.latents)).view(1, 3, H, D).transpose(1, 2).expand(b, H, 3, D)
            k, v = (f(x).view(b, t, H, D).transpose(1, 2) for f in (self.k, self.v))
            return self.o(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, 3, C))

    found = chart(Latents(), torch.randn(B, T, C))
    (block,) = found.heads
    assert block.cross and [str(p) for p in (block.q, block.k, block.v, block.o)] == [f"{n}.weight" for n in "qkvo"]
    assert sorted(x.name for x in found.layers) == ["k", "o", "q", "v"]


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


@pytest.mark.parametrize(
    ("mask", "causal"),
    [
        (torch.ones(T, T, dtype=torch.bool).tril(), True),
        (torch.zeros(T, T).masked_fill(torch.ones(T, T, dtype=torch.bool).triu(1), -torch.inf), True),
        (torch.zeros(B, 1, T, T).masked_fill(torch.ones(T, T, dtype=torch.bool).triu(1), -3e38), True),
        (torch.ones(T, T, dtype=torch.bool).tril(1), False),
        (torch.ones(T, T, dtype=torch.bool).triu(), False),
        (-torch.rand(T, T), False),
        (torch.ones(1, T, dtype=torch.bool), False),
    ],
)
def test_a_mask_is_causal_if_it_forbids_exactly_what_lies_ahead(mask, causal):
    class Masked(Fused):
        def forward(self, x):
            b, t, _ = x.shape
            q, k, v = (p.view(b, t, H, D).transpose(1, 2) for p in self.qkv(x).split(C, -1))
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
            return self.o(y.transpose(1, 2).reshape(b, t, C))

    found = chart(Masked(), torch.randn(B, T, C), forward=lambda net, x: net(x))
    assert [h.causal for h in found.heads] == [causal]


def test_attention_without_layers_has_heads_by_its_shape():
    class Bare(nn.Module):
        def forward(self, x):
            return F.scaled_dot_product_attention(x, x, x)

    (block,) = chart(Bare(), torch.randn(B, H, T, D)).heads
    assert (block.heads, block.kv_heads, block.head_dim, block.q, block.o) == (H, H, D, None, None)


def test_attention_over_pixels_with_channels_first_is_taken_apart_too():
    class Pixels(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.out = nn.Conv2d(C, 3 * C, 1), nn.Conv2d(C, C, 1)

        def forward(self, x):
            b, c, h, w = x.shape
            q, k, v = self.qkv(x).view(b, 3, H, D, h * w).unbind(1)
            weights = torch.einsum("bhcn,bhcm->bhnm", q, k).mul(0.5).softmax(-1)
            return x + self.out(torch.einsum("bhnm,bhcm->bhcn", weights, v).reshape(b, c, h, w))

    (block,) = chart(Pixels(), torch.randn(B, C, 3, 4)).heads
    assert [str(p) for p in (block.q, block.k, block.v)] == [f"qkv.weight[{i * C}:{(i + 1) * C}]" for i in range(3)]
    assert (block.heads, block.kv_heads, block.head_dim, block.scale) == (H, H, D, pytest.approx(0.5))
    assert [str(p) for p in block.o.heads] == [f"out.weight[:, {h * D}:{(h + 1) * D}]" for h in range(H)]
    assert [str(p) for p in block.v.heads] == [f"qkv.weight[{2 * C + h * D}:{2 * C + (h + 1) * D}]" for h in range(H)]


def test_keys_that_two_layers_write_side_by_side_are_made_by_both():
    class Latent(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.v, self.o = (nn.Linear(C, C) for _ in range(3))
            self.own, self.shared = nn.Linear(C, H), nn.Linear(C, 1)

        def forward(self, x):
            b, t, _ = x.shape
            q, v = (f(x).view(b, t, H, D).transpose(1, 2) for f in (self.q, self.v))
            k = x.new_empty(b, H, t, D)
            k[..., :1] = self.own(x).view(b, t, H, 1).transpose(1, 2)
            k[..., 1:] = self.shared(x).view(b, t, 1, 1).transpose(1, 2)
            return self.o(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, C))

    (block,) = chart(Latent(), torch.randn(B, T, C)).heads
    assert str(block.k) == "own.weight + shared.weight" and block.kv_heads == H and not block.cross
    assert [str(p) for p in block.k.heads] == [f"own.weight[{h}:{h + 1}]" for h in range(H)]
    assert [str(p) for p in block.k.also[0].heads] == ["shared.weight"] * H
