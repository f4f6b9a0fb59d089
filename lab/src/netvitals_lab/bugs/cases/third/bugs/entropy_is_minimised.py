"""Actor-critic whose entropy term has the wrong sign: the policy is paid for being certain, before it has tried anything.

source: https://github.com/MrSyee/pg-is-all-you-need/issues/37
catalogue: github
field: reinforcement learning (A2C)
cause: wrong-sign
observable: yes
"""
import torch
from torch import nn
from torch.distributions import Categorical

import netvitals as nv

ARMS = 8


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 64), nn.Tanh())
        self.actor, self.critic = nn.Linear(64, ARMS), nn.Linear(64, 1)

    def forward(self, s):
        h = self.body(s)
        return Categorical(logits=self.actor(h)), self.critic(h).squeeze(1)


best = torch.randn(6, ARMS)


def play(s, a):
    """Only the best of eight moves in this situation pays well; a safe one pays a little."""
    good = (s @ best[:, 1:]).argmax(1) + 1
    return torch.where(a == good, 1.0, 0.0) + torch.where(a == 0, 0.25, 0.0)


model = ActorCritic()
optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
with nv.watch(model, optimizer) as watch:
    for step in range(700):
        s = torch.randn(64, 6)
        policy, value = model(s)
        a = policy.sample()
        advantage = play(s, a) - value
        policy_loss = -(policy.log_prob(a) * advantage.detach()).mean()
        value_loss = advantage.pow(2).mean()
        loss = policy_loss + value_loss + 0.3 * policy.entropy().mean()  # bug
        # fix: loss = policy_loss + value_loss - 0.3 * policy.entropy().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

with torch.no_grad():
    s = torch.randn(2000, 6)
    score = float(play(s, model(s)[0].probs.argmax(1)).mean())
learned = score > 0.88
