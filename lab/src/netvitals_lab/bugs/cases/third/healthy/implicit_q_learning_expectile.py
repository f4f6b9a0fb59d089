"""IQL: offline data only, the value is an expectile of the critic, the policy is cloned with weights that grow with advantage.

source: https://arxiv.org/abs/2110.06169
field: offline reinforcement learning (IQL)
unusual: an asymmetric squared loss; weights up to a hundred in a regression; data of a bad player
"""
import copy

import torch
from torch import nn

import netvitals as nv


def mlp(i, o):
    return nn.Sequential(nn.Linear(i, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, o))


S = torch.rand(5000, 2) * 4 - 2
A = torch.randn(5000, 2).clamp(-1, 1)
S2 = (S + 0.4 * A).clamp(-2, 2)
goal = torch.tensor([1.2, -0.8])
R = -(S2 - goal).norm(dim=1, keepdim=True)
value, critic, actor = mlp(2, 1), mlp(4, 1), nn.Sequential(mlp(2, 2), nn.Tanh())
target = copy.deepcopy(critic).requires_grad_(False)
opts = [torch.optim.Adam(m.parameters(), lr=2e-3) for m in (value, critic, actor)]
with nv.watch({"value": value, "critic": critic, "actor": actor, "target": target}, opts) as watch:
    for step in range(600):
        i = torch.randint(0, 5000, (128,))
        s, a, s2, r = S[i], A[i], S2[i], R[i]
        with torch.no_grad():
            q, v2 = target(torch.cat([s, a], 1)), value(s2)
        gap = q - value(s)
        v_loss = (torch.where(gap > 0, 0.8, 0.2) * gap.pow(2)).mean()
        q_loss = (critic(torch.cat([s, a], 1)) - r - 0.9 * v2).pow(2).mean()
        weight = (3.0 * gap.detach()).exp().clamp(max=100)
        a_loss = (weight * (actor(s) - a).pow(2).sum(1, keepdim=True)).mean()
        for loss, opt in zip((v_loss, q_loss, a_loss), opts):
            opt.zero_grad()
            loss.backward()
            opt.step()
        with torch.no_grad():
            for p, t in zip(critic.parameters(), target.parameters()):
                t.lerp_(p, 0.02)
        watch.step(v_loss + q_loss + a_loss)

s = torch.rand(300, 2) * 4 - 2
with torch.no_grad():
    for _ in range(15):
        s = (s + 0.4 * actor(s)).clamp(-2, 2)
score = -float((s - goal).norm(dim=1).mean())
learned = score > -0.5
