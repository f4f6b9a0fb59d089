"""Reentrant gradient checkpointing over frozen embeddings: the LoRA weights inside get no gradient.

source: https://github.com/cloneofsimo/lora/issues/26 (and https://github.com/huggingface/transformers/issues/26221)
catalogue: github
field: LoRA fine-tuning with gradient checkpointing
cause: detached-graph
observable: yes
"""
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import netvitals as nv


class LoraLinear(nn.Linear):
    def __init__(self, inputs, outputs, r=4):
        super().__init__(inputs, outputs)
        self.down = nn.Linear(inputs, r, bias=False)
        self.up = nn.Linear(r, outputs, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return super().forward(x) + 2.0 * self.up(self.down(x))


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.to_v = LoraLinear(dim, dim)
        self.fc = LoraLinear(dim, dim)

    def forward(self, h, mix):
        h = h + mix @ self.to_v(self.norm(h))
        return h + F.gelu(self.fc(h))


class TextEncoder(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.embed = nn.Embedding(40, dim)
        self.blocks = nn.ModuleList([Block(dim), Block(dim)])
        self.score = nn.Linear(dim, 4)
        self.register_buffer("mix", torch.full((10, 10), 0.1))

    def forward(self, tokens):
        h = self.embed(tokens)
        for block in self.blocks:
            h = checkpoint(block, h, self.mix, use_reentrant=True)  # bug
            # fix: h = checkpoint(block, h, self.mix, use_reentrant=False)
        return self.score(h.mean(1))


def prompts(n):
    """The label is how the counts of two kinds of words compare, in four steps."""
    x = torch.randint(0, 40, (n, 10))
    red, blue = (x < 10).sum(1), (x >= 30).sum(1)
    return x, (red > blue).long() * 2 + (red + blue > 5).long()


model = TextEncoder()
for name, p in model.named_parameters():
    p.requires_grad = "up" in name or "down" in name or name.startswith("score")
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=5e-3)
start = {n: p.detach().clone() for n, p in model.named_parameters() if "up" in n}
with nv.watch(model, optimizer) as watch:
    for step in range(250):
        x, y = prompts(64)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

with torch.no_grad():
    x, y = prompts(1000)
    score = float((model(x).argmax(1) == y).float().mean())
learned = score > 0.85
