"""DDPG: deterministic actor trained through the critic, soft targets, exploration noise, weight decay on the critic only.

source: https://arxiv.org/abs/1509.02971
field: reinforcement learning (DDPG)
unusual: the actor's loss is minus a Q value and drifts; the actor's backward leaves gradients in the critic, cleared before the critic's own; small uniform init of the last layers
"""
import copy

import torch
from torch import nn

import netvitals as nv


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.last = nn.Linear(64, 1)
        nn.init.uniform_(self.last.weight, -3e-3, 3e-3)

    def forward(self, s):
        return torch.tanh(self.last(self.net(s)))


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.last = nn.Linear(64, 1)

    def forward(self, s, a):
        return self.last(self.net(torch.cat([s, a], 1)))


def env_step(s, a):
    v = 0.8 * s[:, 1:] + 0.4 * a
    x = (s[:, :1] + 0.5 * v).clamp(-2, 2)
    return torch.cat([x, v], 1), -x.abs()


def new(n):
    return torch.cat([torch.rand(n, 1) * 3 - 1.5, torch.zeros(n, 1)], 1)


actor, critic = Actor(), Critic()
actor_target, critic_target = copy.deepcopy(actor), copy.deepcopy(critic)
actor_opt = torch.optim.Adam(actor.parameters(), lr=1e-3)
critic_opt = torch.optim.Adam(critic.parameters(), lr=2e-3, weight_decay=1e-4)
memory, state = [], new(16)
with nv.watch({"actor": actor, "critic": critic}, [actor_opt, critic_opt]) as watch:
    for step in range(600):
        with torch.no_grad():
            a = (actor(state) + 0.4 * torch.randn(16, 1)).clamp(-1, 1)
        after, r = env_step(state, a)
        memory.append((state, a, r, after))
        state = torch.where(torch.rand(16, 1) < 0.06, new(16), after)
        s, a, r, s2 = (torch.cat(p) for p in zip(*[memory[i] for i in torch.randint(0, len(memory), (6,))]))
        with torch.no_grad():
            y = r + 0.9 * critic_target(s2, actor_target(s2))
        critic_loss = nn.functional.mse_loss(critic(s, a), y)
        critic_opt.zero_grad()
        critic_loss.backward()
        critic_opt.step()

        actor_loss = -critic(s, actor(s)).mean()
        actor_opt.zero_grad()
        actor_loss.backward()
        actor_opt.step()
        with torch.no_grad():
            for net, net_target in ((actor, actor_target), (critic, critic_target)):
                for p, q in zip(net.parameters(), net_target.parameters()):
                    q.mul_(0.98).add_(p, alpha=0.02)
        watch.step(critic_loss)

s = new(200)
for _ in range(15):
    s, r = env_step(s, actor(s))
score = float(r.mean())
learned = score > -0.2
