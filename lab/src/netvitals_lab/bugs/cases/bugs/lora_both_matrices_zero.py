"""LoRA layers with both A and B at zero: neither ever receives a gradient.

source: https://github.com/circle-hit/SAPT/issues/11 (and https://github.com/Guitaricet/relora/issues/18)
catalogue: github
field: LoRA fine-tuning
cause: init-symmetric
observable: yes
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv


class LoRALayer(nn.Module):
    def __init__(self, in_features, out_features, r=8, alpha=16):
        super().__init__()
        self.lora_A = nn.Parameter(torch.zeros(in_features, r))  # bug
        # fix: self.lora_A = nn.Parameter(torch.randn(in_features, r) / r**0.5)
        self.lora_B = nn.Parameter(torch.zeros(r, out_features))
        self.scaling = alpha / r

    def forward(self, x):
        return (x @ self.lora_A @ self.lora_B) * self.scaling


class Adapted(nn.Module):
    def __init__(self, linear):
        super().__init__()
        self.linear = linear.requires_grad_(False)
        self.lora = LoRALayer(linear.in_features, linear.out_features)

    def forward(self, x):
        return self.linear(x) + self.lora(x)


class SequenceTagger(nn.Module):
    def __init__(self, words=30, dim=48):
        super().__init__()
        self.embed = nn.Embedding(words, dim)
        self.q, self.v, self.o = (nn.Linear(dim, dim) for _ in range(3))
        self.position = nn.Embedding(12, dim)
        self.head = nn.Linear(dim, words)

    def forward(self, x):
        h = self.embed(x) + self.position(torch.arange(x.shape[1]))
        query = self.q(h)
        h = h + self.o(F.scaled_dot_product_attention(query, h, self.v(h)))
        return self.head(h)


def train(model, optimizer, task, steps, watch=None):
    for _ in range(steps):
        x = torch.randint(0, 30, (48, 12))
        loss = F.cross_entropy(model(x).transpose(1, 2), task(x))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if watch:
            watch.step(loss)


model = SequenceTagger()  # pretrained to say the left neighbour
train(model, torch.optim.Adam(model.parameters(), lr=5e-3), lambda x: x.roll(1, 1), 200)
for p in model.parameters():
    p.requires_grad = False
model.q, model.v, model.o = Adapted(model.q), Adapted(model.v), Adapted(model.o)
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=8e-3)
with nv.watch(model, optimizer) as watch:  # fine-tuned to say the right neighbour
    train(model, optimizer, lambda x: x.roll(-1, 1), 300, watch)

with torch.no_grad():
    x = torch.randint(0, 30, (200, 12))
    score = float((model(x).argmax(-1) == x.roll(-1, 1)).float().mean())
learned = score > 0.5
