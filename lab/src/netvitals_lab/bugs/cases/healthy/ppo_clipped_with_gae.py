"""PPO for a continuous action: Gaussian policy with a free log-deviation, GAE, several epochs on each rollout, clipped ratio.

source: https://iclr-blog-track.github.io/2022/03/25/ppo-implementation-details/
field: reinforcement learning (PPO)
unusual: ratio is exactly one in the first minibatch, many clipped gradients are zero, the loss hovers around zero, orthogonal init with gain 0.01, rate annealed to zero
"""
import torch
from torch import nn
from torch.distributions import Normal

import netvitals as nv


def layer(i, o, gain=2**0.5):
    linear = nn.Linear(i, o)
    nn.init.orthogonal_(linear.weight, gain)
    nn.init.zeros_(linear.bias)
    return linear


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor = nn.Sequential(layer(2, 32), nn.Tanh(), layer(32, 32), nn.Tanh(), layer(32, 1, 0.01))
        self.critic = nn.Sequential(layer(2, 32), nn.Tanh(), layer(32, 32), nn.Tanh(), layer(32, 1, 1.0))
        self.log_std = nn.Parameter(torch.zeros(1))

    def policy(self, s):
        return Normal(self.actor(s).squeeze(-1), self.log_std.exp())


def env_step(s, a):
    """A mass on a line; force costs, being away from the origin costs more."""
    v = (s[:, 1] + 0.3 * a.clamp(-1, 1)) * 0.9
    x = s[:, 0] + 0.5 * v
    return torch.stack([x, v], 1), -(x**2) - 0.02 * a.clamp(-1, 1) ** 2


agent, n, length, gamma, lam = Agent(), 32, 16, 0.95, 0.95
optimizer = torch.optim.Adam(agent.parameters(), lr=3e-3, eps=1e-5)
s = torch.randn(n, 2)
with nv.watch(agent, optimizer) as watch:
    for iteration in range(40):
        optimizer.param_groups[0]["lr"] = 3e-3 * (1 - iteration / 40)
        S, A, L, R, V = [], [], [], [], []
        with torch.no_grad():
            for t in range(length):
                policy = agent.policy(s)
                a = policy.sample()
                S.append(s), A.append(a), L.append(policy.log_prob(a)), V.append(agent.critic(s).squeeze(1))
                s, r = env_step(s, a)
                R.append(r)
                s = torch.where(torch.rand(n, 1) < 0.05, torch.randn(n, 2), s)
            V.append(agent.critic(s).squeeze(1))
            advantages, last = [], 0
            for t in reversed(range(length)):
                last = R[t] + gamma * V[t + 1] - V[t] + gamma * lam * last
                advantages.insert(0, last)
        S, A, L, advantages, V = torch.cat(S), torch.cat(A), torch.cat(L), torch.cat(advantages), torch.cat(V[:-1])
        returns = advantages + V
        for epoch in range(3):
            for b in torch.randperm(len(S)).split(128):
                policy, adv = agent.policy(S[b]), advantages[b]
                adv = (adv - adv.mean()) / (adv.std() + 1e-8)
                ratio = (policy.log_prob(A[b]) - L[b]).exp()
                pg = torch.max(-adv * ratio, -adv * ratio.clamp(0.8, 1.2)).mean()
                loss = pg + 0.5 * (agent.critic(S[b]).squeeze(1) - returns[b]).pow(2).mean() - 0.001 * policy.entropy().mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()
                watch.step(loss)

s, total = torch.randn(300, 2), 0
for _ in range(20):
    s, r = env_step(s, agent.actor(s).squeeze(1))
    total = total + r
score = float(total.mean())
learned = score > -25
