"""Diffusion policy that should reconstruct the clean action, but its loss compares with the noisy one it was given.

source: https://github.com/irom-princeton/dppo/issues/14
catalogue: github
field: robot control (diffusion policy)
cause: label-is-input, labels-wrong
observable: yes
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv

T = 20
betas = torch.linspace(1e-3, 0.35, T)
alpha_bar = torch.cumprod(1 - betas, 0)


def demonstrations(n):
    """A gripper sees where the cup stands and moves there in an arc, left or right around an obstacle."""
    cup = torch.rand(n, 2) * 2 - 1
    side = torch.randint(0, 2, (n, 1)) * 2.0 - 1
    action = torch.cat([cup[:, :1] + 0.3 * side, cup[:, 1:] * cup[:, :1], 0.8 * side], 1)
    return cup, action


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.time = nn.Embedding(T, 16)
        self.net = nn.Sequential(nn.Linear(3 + 2 + 16, 96), nn.Mish(), nn.Linear(96, 96), nn.Mish(), nn.Linear(96, 3))

    def forward(self, x, t, state):
        return self.net(torch.cat([x, state, self.time(t)], 1))

    def loss(self, x_start, state):
        t = torch.randint(0, T, (len(x_start),))
        a = alpha_bar[t].unsqueeze(1)
        x_noisy = a.sqrt() * x_start + (1 - a).sqrt() * torch.randn_like(x_start)
        x_recon = self(x_noisy, t, state)
        return F.mse_loss(x_recon, x_noisy, reduction="mean")  # bug
        # fix: return F.mse_loss(x_recon, x_start, reduction="mean")


policy = Policy()
optimizer = torch.optim.AdamW(policy.parameters(), lr=2e-3, weight_decay=1e-6)
with nv.watch(policy, optimizer) as watch:
    for step in range(900):
        state, action = demonstrations(128)
        loss = policy.loss(action, state)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

with torch.no_grad():
    state, action = demonstrations(1000)
    t = torch.full((1000,), 5)
    a = alpha_bar[t].unsqueeze(1)
    x_noisy = a.sqrt() * action + (1 - a).sqrt() * torch.randn_like(action)
    score = 1 - float((policy(x_noisy, t, state) - action).pow(2).mean() / action.var())
learned = score > 0.65
