"""Dueling DQN: the mean advantage is taken over the whole minibatch instead of over the actions.

source: https://github.com/PacktPublishing/Deep-Reinforcement-Learning-Hands-On/issues/6
catalogue: github
field: reinforcement learning (dueling DQN)
cause: reduction-wrong
observable: no, the network trains well and the Q values of a batch look right, only the split into value and advantage is not identified
silent: yes
"""
import torch
from torch import nn

import netvitals as nv


class Dueling(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(4, 64), nn.ReLU())
        self.advantage = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 3))
        self.value = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, x):
        h = self.features(x)
        advantage = self.advantage(h)
        return self.value(h) + advantage - advantage.mean()  # bug
        # fix: return self.value(h) + advantage - advantage.mean(dim=1, keepdim=True)


def rewards(x):  # a contextual bandit: the value of the state is much larger than the differences of the actions
    return 3 * x[:, :1] + torch.stack([x[:, 1], x[:, 2], x[:, 1] * x[:, 2]], 1)


net = Dueling()
optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
with nv.watch(net, optimizer) as watch:
    for step in range(700):
        x = torch.rand(64, 4) * 2 - 1
        a = torch.randint(0, 3, (64,))
        r = rewards(x)[torch.arange(64), a] + 0.1 * torch.randn(64)
        q = net(x)[torch.arange(64), a]
        loss = nn.functional.mse_loss(q, r)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

x = torch.rand(400, 4) * 2 - 1
with torch.no_grad():
    one_by_one = torch.cat([net(x[i : i + 1]) for i in range(400)])  # as the agent uses it: batches of one
score = 1 - float(((one_by_one - rewards(x)) ** 2).mean() / rewards(x).var())
learned = score > 0.995
