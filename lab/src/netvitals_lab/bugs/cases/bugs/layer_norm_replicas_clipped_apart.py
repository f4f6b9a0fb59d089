"""Tensor parallel training: clipping skips the layer norms of rank 1, so the replicas drift apart.

source: https://github.com/microsoft/DeepSpeed/pull/1801
catalogue: traincheck
field: tensor parallel language model
cause: replicas-differ, clipping-misuse
observable: yes
silent: yes
"""
import torch
from torch import nn

import netvitals as nv

vocabulary, width, context = 32, 32, 8


class Shard(nn.Module):
    """What one of the two ranks holds: half of the hidden units, and copies of all the rest."""

    def __init__(self):
        super().__init__()
        self.input_layernorm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 32)
        self.down = nn.Linear(32, width, bias=False)
        self.up.weight.model_parallel = self.up.bias.model_parallel = self.down.weight.model_parallel = True

    def forward(self, h):
        return self.down(torch.nn.functional.gelu(self.up(self.input_layernorm(h))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.ranks = nn.ModuleList([Shard(), Shard()])
        self.head = nn.Linear(width * context, vocabulary)

    def forward(self, tokens):
        h = self.embed(tokens)
        h = h + sum(rank(h) for rank in self.ranks)
        return self.head(h.flatten(1))


def allreduce_replicated(ranks):
    for a, b in zip(ranks[0].parameters(), ranks[1].parameters()):
        if not hasattr(a, "model_parallel"):
            a.grad = a.grad + b.grad
            b.grad = a.grad.clone()


def clip(ranks, max_norm):
    grads = []
    for index, rank in enumerate(ranks):
        for p in rank.parameters():
            if index == 0 or hasattr(p, "model_parallel"):  # a replicated weight counts once
                grads.append(p.grad)
    norm = torch.stack([g.norm() for g in grads]).norm()
    # fix: grads = [p.grad for p in ranks.parameters()]
    for g in grads:
        g.mul_(min(1.0, float(max_norm / norm)))


sequences = (torch.randint(0, vocabulary, (2000, 1)) + 3 * torch.arange(context + 1)) % vocabulary
model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
with nv.watch(model, optimizer) as watch:
    for step in range(400):
        batch = sequences[torch.randint(0, 2000, (64,))]
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(batch[:, :-1]), batch[:, -1])
        loss.backward()
        allreduce_replicated(model.ranks)
        clip(model.ranks, 0.05)
        optimizer.step()
        watch.step(loss)

a, b = (rank.input_layernorm for rank in model.ranks)
score = -float((a.weight - b.weight).abs().max() + (a.bias - b.bias).abs().max())
learned = score > -1e-5 and float(loss) < 0.5
