"""REINFORCE with a learned baseline: the agent watches a sequence and then acts several times; returns-to-go minus the baseline.

source: https://github.com/pytorch/examples/blob/main/reinforcement_learning/reinforce.py
field: reinforcement learning (REINFORCE)
unusual: the loss is no measure of success and goes up and down around zero; noisy gradients; sampled actions
"""
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Categorical

import netvitals as nv


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(5, 32, batch_first=True)
        self.policy = nn.Linear(32, 5)
        self.baseline = nn.Linear(32, 1)

    def forward(self, shown):
        """shown: (n, length) symbols; afterwards they have to be named in the same order."""
        n, length = shown.shape
        _, h = self.rnn(F.one_hot(shown, 5).float())
        x = torch.zeros(n, 1, 5)
        actions, logp, values = [], [], []
        for t in range(length):
            out, h = self.rnn(x, h)
            distribution = Categorical(logits=self.policy(out[:, 0]))
            a = distribution.sample()
            actions.append(a), logp.append(distribution.log_prob(a)), values.append(self.baseline(out[:, 0]).squeeze(1))
            x = F.one_hot(a, 5).float().unsqueeze(1)
        return torch.stack(actions, 1), torch.stack(logp, 1), torch.stack(values, 1)


agent = Agent()
optimizer = torch.optim.Adam(agent.parameters(), lr=5e-3)
with nv.watch(agent, optimizer) as watch:
    for episode in range(500):
        shown = torch.randint(0, 5, (64, 2))
        actions, logp, values = agent(shown)
        rewards = (actions == shown).float()
        returns = rewards.flip(1).cumsum(1).flip(1)
        advantage = returns - values.detach()
        loss = -(logp * advantage).sum(1).mean() + 0.5 * F.mse_loss(values, returns)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(agent.parameters(), 1.0)
        optimizer.step()
        watch.step(loss)

with torch.no_grad():
    shown = torch.randint(0, 5, (500, 2))
    score = float((agent(shown)[0] == shown).float().mean())
learned = score > 0.7
