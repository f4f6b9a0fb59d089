"""A selective state-space layer sets its time steps with care, then the language model's init sets all biases to zero.

source: https://github.com/athms/mad-lab/issues/3
catalogue: github
field: state-space models (Mamba)
cause: init-wrong NEW, init-too-large, vanishing-gradients
observable: yes
"""
import math

import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv


class SelectiveSSM(nn.Module):
    def __init__(self, dim=32, state=4):
        super().__init__()
        self.A_log = nn.Parameter(torch.log(torch.arange(1.0, state + 1)).repeat(dim, 1))
        self.to_BC = nn.Linear(dim, 2 * state)
        self.dt_proj = nn.Linear(dim, dim)
        self.out = nn.Linear(dim, dim)
        nn.init.normal_(self.dt_proj.weight, std=0.02)
        dt = torch.exp(torch.rand(dim) * (math.log(0.1) - math.log(0.001)) + math.log(0.001))
        with torch.no_grad():
            self.dt_proj.bias.copy_(dt + torch.log(-torch.expm1(-dt)))  # softplus of it is dt
        self.dt_proj.bias._no_reinit = True

    def forward(self, x):
        B, C = self.to_BC(x).chunk(2, -1)
        dt = F.softplus(self.dt_proj(x)).unsqueeze(-1)
        decay, drive = torch.exp(-dt * self.A_log.exp()), dt * B.unsqueeze(2) * x.unsqueeze(-1)
        h, out = 0, []
        for t in range(x.shape[1]):
            h = decay[:, t] * h + drive[:, t]
            out.append((h * C[:, t].unsqueeze(1)).sum(-1))
        return self.out(torch.stack(out, 1) + x)


class LanguageModel(nn.Module):
    def __init__(self, words=8, dim=32):
        super().__init__()
        self.embed = nn.Embedding(words + 1, dim)
        self.ssm, self.norm, self.head = SelectiveSSM(dim), nn.LayerNorm(dim), nn.Linear(dim, words)
        self.apply(self._init_weights)

    def _init_weights(self, m):
        if isinstance(m, nn.Linear):
            if m.bias is not None:  # bug
            # fix: if m.bias is not None and not getattr(m.bias, "_no_reinit", False):
                nn.init.zeros_(m.bias)

    def forward(self, x):
        return self.head(self.norm(self.ssm(self.embed(x))[:, -1]))


def first_word(n, length=48):
    x = torch.full((n, length), 8)
    x[:, 0] = torch.randint(0, 8, (n,))
    return x, x[:, 0].clone()


model = LanguageModel()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
with nv.watch(model, optimizer) as watch:
    for step in range(110):
        x, y = first_word(32)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

x, y = first_word(300)
score = float((model(x).argmax(1) == y).float().mean())
learned = score > 0.8
