"""PPO whose critic loss subtracts values of shape (B,) from returns of shape (B, 1).

source: https://github.com/RLinf/RLinf/issues/1568
catalogue: github
field: reinforcement learning (PPO)
cause: broadcast-in-loss
observable: yes
"""
import torch
from torch import nn
from torch.distributions import Categorical

import netvitals as nv


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 3))
        self.critic = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 1))


def rollout(model, n=32, length=12):
    """A ball on a line: push it to the middle."""
    x, left = torch.rand(n) * 2 - 1, torch.ones(n)
    states, actions, logps, rewards = [], [], [], []
    for t in range(length):
        state = torch.stack([x, left - t / length], 1)
        policy = Categorical(logits=model.actor(state))
        a = policy.sample()
        x = (x + 0.2 * (a - 1)).clamp(-1, 1)
        states.append(state), actions.append(a), logps.append(policy.log_prob(a).detach()), rewards.append(-x.abs())
    returns, running = [], torch.zeros(n)
    for r in reversed(rewards):
        running = r + 0.95 * running
        returns.insert(0, running)
    return torch.cat(states), torch.cat(actions), torch.cat(logps), torch.cat(returns).unsqueeze(1)


model = ActorCritic()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
with nv.watch(model, optimizer) as watch:
    for iteration in range(60):
        with torch.no_grad():
            s, a, old_logp, returns = rollout(model)
            advantage = returns.squeeze(1) - model.critic(s).squeeze(1)
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        for epoch in range(2):
            for b in torch.randperm(len(s)).split(96):
                policy = Categorical(logits=model.actor(s[b]))
                ratio = (policy.log_prob(a[b]) - old_logp[b]).exp()
                clipped = ratio.clamp(0.8, 1.2)
                actor_loss = -torch.min(ratio * advantage[b], clipped * advantage[b]).mean()
                values = model.critic(s[b]).squeeze(1)
                critic_loss = (returns[b] - values).pow(2).mean()  # bug
                # fix: critic_loss = (returns[b].squeeze(1) - values).pow(2).mean()
                loss = actor_loss + 0.5 * critic_loss - 0.01 * policy.entropy().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                watch.step(loss)

with torch.no_grad():
    s, a, _, returns = rollout(model, n=200)
    score = 1 - float((returns - model.critic(s)).pow(2).mean() / returns.var())  # explained variance of the critic
learned = score > 0.3
