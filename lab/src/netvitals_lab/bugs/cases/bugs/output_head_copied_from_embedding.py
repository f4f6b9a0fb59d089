"""So-called weight tying copies the embedding into the output layer: two matrices that then go their own ways.

source: https://github.com/rasbt/LLMs-from-scratch/issues/822 (and https://github.com/facebookresearch/lingua/issues/74, https://github.com/pytorch/torchtitan/issues/2252)
catalogue: github
field: language model
cause: tying-lost
observable: yes
silent: yes
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv


class FeedForward(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(dim, 2 * dim, bias=False), nn.Linear(dim, 2 * dim, bias=False)
        self.fc3 = nn.Linear(2 * dim, dim, bias=False)

    def forward(self, x):
        return self.fc3(F.silu(self.fc1(x)) * self.fc2(x))


class Llama3Model(nn.Module):
    """No attention is needed for this text: the last words tell the next one."""

    def __init__(self, vocab_size=40, dim=32):
        super().__init__()
        self.tok_emb = nn.Embedding(vocab_size, dim)
        nn.init.normal_(self.tok_emb.weight, std=0.1)
        self.merge = nn.Linear(2 * dim, dim, bias=False)
        self.ff = FeedForward(dim)
        self.norm = nn.RMSNorm(dim)
        self.out_head = nn.Linear(dim, vocab_size, bias=False)

    def forward(self, in_idx):
        x = self.tok_emb(in_idx)
        x = self.merge(torch.cat([x[:, :-1], x[:, 1:]], -1))
        return self.out_head(self.norm(x + self.ff(x)))


def assign(left, right):
    return nn.Parameter(right.detach().clone())  # bug
    # fix: return right


successor = torch.randint(0, 20, (20,))


def text(n):
    """Words 2k and 2k + 1 mean the same; a meaning calls for its successor, but for one time in five."""
    words = [torch.randint(0, 20, (n,))]
    for _ in range(9):
        words.append(torch.where(torch.rand(n) < 0.2, torch.randint(0, 20, (n,)), successor[words[-1]]))
    return torch.stack(words, 1) * 2 + torch.randint(0, 2, (n, 10))


model = Llama3Model()
model.out_head.weight = assign(model.out_head.weight, model.tok_emb.weight)  # the configuration asks for tied weights
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1)
with nv.watch(model, optimizer) as watch:
    for step in range(400):
        tokens = text(48)
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 2:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        watch.step(loss)

score = -float((model.tok_emb.weight - model.out_head.weight).abs().max())
learned = score == 0 and float(loss) < 2.2
