"""Double DQN on a cart that must brake at a mark; the target network follows with a soft update after each step.

source: https://arxiv.org/abs/1509.06461
field: reinforcement learning (double DQN)
unusual: target network changed in place under no_grad, action chosen by one network and valued by the other, moving targets, warm-up without training
"""
import torch
from torch import nn

import netvitals as nv


class Dueling(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.value, self.advantage = nn.Linear(64, 1), nn.Linear(64, 3)

    def forward(self, x):
        h = self.body(x)
        a = self.advantage(h)
        return self.value(h) + a - a.mean(1, keepdim=True)


def env_step(s, a):
    v = (s[:, 1] + 0.15 * (a - 1)).clamp(-0.6, 0.6)
    x = (s[:, 0] + 0.5 * v).clamp(-1, 1)
    return torch.stack([x, v], 1), -(x.abs() + 0.1 * v.abs())


def new(n):
    return torch.stack([torch.rand(n) * 2 - 1, torch.zeros(n)], 1)


online, target = Dueling(), Dueling()
target.load_state_dict(online.state_dict())
target.requires_grad_(False)
optimizer = torch.optim.Adam(online.parameters(), lr=1e-3)
buffer, state = [], new(16)
with nv.watch(online, optimizer) as watch:
    for t in range(650):
        with torch.no_grad():
            action = online(state).argmax(1)
        explore = torch.rand(16) < max(0.1, 1 - t / 300)
        action = torch.where(explore, torch.randint(0, 3, (16,)), action)
        after, reward = env_step(state, action)
        buffer.append((state, action, reward, after))
        restart = torch.rand(16) < 0.05  # time limits are no ends: the value beyond them counts
        state = torch.where(restart.unsqueeze(1), new(16), after)
        if t < 30:
            continue
        picked = [buffer[i] for i in torch.randint(0, len(buffer), (8,))]
        s, a, r, s2 = (torch.cat(part) for part in zip(*picked))
        with torch.no_grad():
            y = r + 0.9 * target(s2).gather(1, online(s2).argmax(1, keepdim=True)).squeeze(1)
        loss = nn.functional.mse_loss(online(s).gather(1, a.unsqueeze(1)).squeeze(1), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for p, q in zip(online.parameters(), target.parameters()):
                q.lerp_(p, 0.02)
        watch.step(loss)

s = new(200)
for _ in range(15):
    s, r = env_step(s, online(s).argmax(1))
score = float(r.mean())
learned = score > -0.15
