"""A decoder that is meant to be causal attends to all tokens: the training loss collapses, generation fails.

source: https://github.com/huggingface/transformers/issues/48745
catalogue: github
field: causal language model
cause: future-leak
observable: yes
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv


class CausalSelfAttention(nn.Module):
    def __init__(self, width, heads, is_decoder=True):
        super().__init__()
        self.heads, self.is_decoder = heads, is_decoder
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.c_attn(x).view(B, T, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v)  # bug
        # fix: y = F.scaled_dot_product_attention(q, k, v, is_causal=self.is_decoder)
        return self.c_proj(y.transpose(1, 2).reshape(B, T, C))


class LM(nn.Module):
    def __init__(self, vocab=28, width=48, block=24):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(block, width)
        self.ln = nn.ModuleList(nn.LayerNorm(width) for _ in range(5))
        self.attn = nn.ModuleList(CausalSelfAttention(width, 4) for _ in range(2))
        self.mlp = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 96), nn.GELU(), nn.Linear(96, width)) for _ in range(2))
        self.lm_head = nn.Linear(width, vocab, bias=False)

    def forward(self, idx):
        x = self.wte(idx) + self.wpe(torch.arange(idx.shape[1]))
        for i in range(2):
            x = x + self.attn[i](self.ln[2 * i](x))
            x = x + self.mlp[i](self.ln[2 * i + 1](x))
        return self.lm_head(self.ln[4](x))

    @torch.no_grad()
    def generate(self, idx, length):
        while idx.shape[1] < length:
            idx = torch.cat([idx, self(idx)[:, -1:].argmax(-1)], 1)
        return idx


def sentences(n, length=24):
    """A motif of three to five letters, repeated."""
    period = torch.randint(3, 6, (n, 1))
    motif = torch.randint(0, 28, (n, 5))
    return motif.gather(1, torch.arange(length) % period)


model = LM()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95))
with nv.watch(model, optimizer) as watch:
    for step in range(260):
        tokens = sentences(24)
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        watch.step(loss)

tokens = sentences(100)
score = float((model.generate(tokens[:, :12], 24)[:, 12:] == tokens[:, 12:]).float().mean())
learned = score > 0.7
