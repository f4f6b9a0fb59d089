"""Synchronous advantage actor-critic with five-step returns in many parallel environments, entropy bonus and shared body.

source: https://arxiv.org/abs/1602.01783
field: reinforcement learning (A2C)
unusual: loss with three parts of different signs that can be negative; RMSprop; the graph of five steps in one backward; no epochs
"""
import torch
from torch import nn
from torch.distributions import Categorical

import netvitals as nv


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 64), nn.Tanh())
        self.actor, self.critic = nn.Linear(64, 4), nn.Linear(64, 1)

    def forward(self, x):
        h = self.body(x)
        return Categorical(logits=self.actor(h)), self.critic(h).squeeze(-1)


moves = torch.tensor([[0.2, 0], [-0.2, 0], [0, 0.2], [0, -0.2]])


class Chase:
    """A hunter in a square; a target that jumps elsewhere when it is caught."""

    def __init__(self, n):
        self.hunter, self.target = torch.rand(n, 2), torch.rand(n, 2)

    def observe(self):
        return torch.cat([self.target - self.hunter, self.hunter], 1) * 2

    def step(self, a):
        before = (self.target - self.hunter).norm(dim=1)
        self.hunter = (self.hunter + moves[a]).clamp(0, 1)
        after = (self.target - self.hunter).norm(dim=1)
        caught = after < 0.15
        self.target = torch.where(caught.unsqueeze(1), torch.rand_like(self.target), self.target)
        return (before - after) + caught.float()


env, model = Chase(32), ActorCritic()
optimizer = torch.optim.RMSprop(model.parameters(), lr=2e-3, alpha=0.99, eps=1e-5)
with nv.watch(model, optimizer) as watch:
    for update in range(300):
        logp, values, rewards, entropies = [], [], [], []
        for _ in range(5):
            policy, value = model(env.observe())
            a = policy.sample()
            logp.append(policy.log_prob(a)), values.append(value), entropies.append(policy.entropy())
            rewards.append(env.step(a))
        with torch.no_grad():
            R = model(env.observe())[1]
        returns = []
        for r in reversed(rewards):
            R = r + 0.9 * R
            returns.insert(0, R)
        advantage = torch.stack(returns) - torch.stack(values)
        loss = -(torch.stack(logp) * advantage.detach()).mean() + 0.5 * advantage.pow(2).mean() - 0.01 * torch.stack(entropies).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        watch.step(loss)

with torch.no_grad():
    env = Chase(300)
    score = float(torch.stack([env.step(model(env.observe())[0].sample()) for _ in range(40)]).mean())
learned = score > 0.2
