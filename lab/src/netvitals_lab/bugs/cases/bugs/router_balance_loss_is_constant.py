"""Mixture of experts: the balance loss takes a softmax over the chosen experts only and counts them both ways.

source: https://github.com/huggingface/transformers/issues/28093 (and 28021, 28255)
catalogue: github
field: mixture of experts
cause: loss-mismatch
observable: yes
silent: yes
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv

num_experts, top_k, dim = 8, 2, 32


def load_balancing_loss_func(gate_logits):
    probabilities = gate_logits.softmax(-1)
    _, selected = torch.topk(gate_logits, top_k, dim=-1)
    expert_mask = F.one_hot(selected, num_experts).amax(1).float()
    tokens_per_group_and_expert = expert_mask.mean(-1)  # bug
    # fix: tokens_per_group_and_expert = expert_mask.mean(0)
    router_prob_per_group_and_expert = probabilities.mean(-1)  # bug
    # fix: router_prob_per_group_and_expert = probabilities.mean(0)
    return (tokens_per_group_and_expert * router_prob_per_group_and_expert).mean() * num_experts**2


class SparseMoe(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(dim, num_experts, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(dim, 64), nn.SiLU(), nn.Linear(64, dim)) for _ in range(num_experts))

    def forward(self, h):
        router_logits = self.gate(h)
        weights, selected = torch.topk(router_logits.softmax(-1), top_k)
        weights = weights / weights.sum(-1, keepdim=True)
        out = torch.zeros_like(h)
        for number, expert in enumerate(self.experts):
            row, slot = torch.where(selected == number)
            out.index_add_(0, row, expert(h[row]) * weights[row, slot, None])
        return out, router_logits


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(16, dim)
        self.moe = SparseMoe()
        self.head = nn.Linear(dim, 10)

    def forward(self, x):
        h = torch.tanh(self.embed(x) + 1.0)  # features share a direction, as in a trained language model
        out, router_logits = self.moe(h)
        return self.head(h + out), router_logits


teacher = nn.Sequential(nn.Linear(16, 48), nn.Tanh(), nn.Linear(48, 10))
x = torch.randn(4000, 16)
y = (teacher(x).detach() * 6).argmax(1)
model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
with nv.watch(model, optimizer) as watch:
    for step in range(300):
        rows = torch.randint(0, 4000, (96,))
        logits, router_logits = model(x[rows])
        loss = F.cross_entropy(logits, y[rows]) + 0.05 * load_balancing_loss_func(router_logits)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

with torch.no_grad():
    logits, router_logits = model(x)
    load = torch.bincount(router_logits.topk(top_k).indices.flatten(), minlength=num_experts) / (4000 * top_k)
score = float(load.min() * num_experts)  # 1 when every expert gets its share
learned = score > 0.3 and float((logits.argmax(1) == y).float().mean()) > 0.75
