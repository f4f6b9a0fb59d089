"""A2C whose value loss has the wrong sign: the critic is pushed away from the returns.

source: https://github.com/ai4co/rl4co/pull/186
catalogue: github
field: reinforcement learning (A2C)
cause: wrong-sign
observable: yes
"""
import torch
from torch import nn

import netvitals as nv

policy = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 2))
critic = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.RMSprop([*policy.parameters(), *critic.parameters()], lr=2e-3)


def play(length=10):
    """Two numbers are shown; the agent must point at the larger one, sixteen games at a time."""
    logp, value, reward, entropy = [], [], [], []
    for _ in range(length):
        x = torch.randn(16, 4)
        distribution = torch.distributions.Categorical(logits=policy(x))
        a = distribution.sample()
        logp.append(distribution.log_prob(a))
        entropy.append(distribution.entropy())
        value.append(critic(x).squeeze(-1))
        reward.append((a == (x[:, 0] + x[:, 1] > x[:, 2] + x[:, 3]).long()).float())
    returns, R = [], torch.zeros(16)
    for r in reversed(reward):
        R = r + 0.5 * R
        returns.insert(0, R)
    return torch.stack(logp), torch.stack(value), torch.stack(returns), torch.stack(entropy), torch.stack(reward)


with nv.watch({"policy": policy, "critic": critic}, optimizer) as watch:
    for update in range(180):
        logp, value, returns, entropy, reward = play()
        advantage = returns - value
        policy_loss = -(logp * advantage.detach()).mean()
        value_loss = -advantage.pow(2).mean()  # bug
        # fix: value_loss = advantage.pow(2).mean()
        loss = policy_loss + 0.5 * value_loss - 0.01 * entropy.mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_([*policy.parameters(), *critic.parameters()], 0.5)
        optimizer.step()
        watch.step(loss)

score = float(play(length=60)[4].mean())
learned = score > 0.86
