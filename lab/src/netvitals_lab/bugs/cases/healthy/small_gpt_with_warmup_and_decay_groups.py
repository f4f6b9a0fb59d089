"""A small GPT on a synthetic language, as nanoGPT trains it.

source: https://github.com/karpathy/nanoGPT (train.py)
field: causal language model
unusual: tied embedding and head, two decay groups, rate starts at zero, some parameters have no decay, loss never near zero
"""
import math

import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(dim, bias=False), nn.LayerNorm(dim, bias=False)
        self.c_attn, self.c_proj = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim, bias=False), nn.GELU(), nn.Linear(4 * dim, dim, bias=False))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.c_attn(self.ln_1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, vocab=16, block=16, dim=48, depth=2):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, dim), nn.Embedding(block, dim)
        self.h = nn.ModuleList(Block(dim, 4) for _ in range(depth))
        self.ln_f = nn.LayerNorm(dim, bias=False)
        self.lm_head = nn.Linear(dim, vocab, bias=False)
        self.lm_head.weight = self.wte.weight
        for name, p in self.named_parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.01 if name.endswith(("c_proj.weight", "mlp.2.weight")) else 0.02)

    def forward(self, idx):
        x = self.wte(idx) + self.wpe(torch.arange(idx.shape[1]))
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))


grammar = torch.randint(0, 16, (16, 16))


def text(n, length=17):
    letters = [torch.randint(0, 16, (n,)), torch.randint(0, 16, (n,))]
    while len(letters) < length:
        rule = grammar[letters[-2], letters[-1]]
        letters.append(torch.where(torch.rand(n) < 0.1, torch.randint(0, 16, (n,)), rule))
    return torch.stack(letters, 1)


model = GPT()
groups = [{"params": [p for p in model.parameters() if p.dim() >= 2], "weight_decay": 0.1},
          {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0}]
optimizer = torch.optim.AdamW(groups, lr=4e-3, betas=(0.9, 0.95))
with nv.watch(model, optimizer) as watch:
    for it in range(280):
        lr = 4e-3 * (it / 40 if it < 40 else 0.1 + 0.45 * (1 + math.cos(math.pi * (it - 40) / 240)))
        for group in optimizer.param_groups:
            group["lr"] = lr
        batch = text(32)
        loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        watch.step(loss)

score = -float(loss)
learned = score > -1.6
