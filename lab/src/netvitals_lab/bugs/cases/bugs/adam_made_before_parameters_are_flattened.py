"""The optimizer is made before a sharding wrapper flattens the parameters: it steps on tensors nobody uses.

source: https://github.com/huggingface/accelerate/issues/2665
catalogue: traincheck
field: sequence to sequence with sharded parameters
cause: stale-parameters
observable: yes
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv


class FlatShard(nn.Module):
    """Holds all parameters of a block as one flat vector and hands out views of it."""

    def __init__(self, block):
        super().__init__()
        self.shapes = [(name, p.shape) for name, p in block.named_parameters()]
        self.flat = nn.Parameter(torch.cat([p.detach().flatten() for p in block.parameters()]))
        for name, _ in self.shapes:
            owner, _, leaf = name.rpartition(".")
            delattr(block.get_submodule(owner), leaf)
        self.block = block
        self.unflatten()

    def unflatten(self):
        pieces = self.flat.split([shape.numel() for _, shape in self.shapes])
        for (name, shape), piece in zip(self.shapes, pieces):
            owner, _, leaf = name.rpartition(".")
            setattr(self.block.get_submodule(owner), leaf, piece.view(shape))

    def forward(self, x):
        self.unflatten()
        return self.block(x)


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.mix = nn.Linear(10, 10)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, h):
        h = h + self.mix(h.transpose(1, 2)).transpose(1, 2)
        return h + self.mlp(self.norm(h))


class Summarizer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(16, 32)
        self.blocks = nn.ModuleList([Block(32) for _ in range(2)])
        self.head = nn.Linear(32, 16)

    def forward(self, tokens):
        h = self.embed(tokens)
        for block in self.blocks:
            h = block(h)
        return self.head(h)


model = Summarizer()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
model.blocks = nn.ModuleList(FlatShard(block) for block in model.blocks)  # what the wrapping policy names
# fix: optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
with nv.watch(model, optimizer) as watch:
    for step in range(220):
        tokens = torch.randint(0, 16, (64, 10))
        loss = F.cross_entropy(model(tokens).transpose(1, 2), tokens.sort(1).values)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        watch.step(loss)

score = -float(loss)
learned = score > -1.2
