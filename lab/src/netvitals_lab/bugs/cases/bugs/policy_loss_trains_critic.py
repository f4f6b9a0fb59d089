"""Actor-critic: the baseline is not detached in the policy loss, so this loss trains the critic, too.

source: https://github.com/astariul/encode-attend-navigate-pytorch/pull/3
catalogue: github
field: combinatorial optimisation (actor-critic)
cause: wrong-network-updated
observable: yes
"""
import torch
from torch import nn
from torch.distributions import Categorical

import netvitals as nv


class Pointer(nn.Module):
    """Scores each of the items of a set with attention to the set's mean."""

    def __init__(self, d=32):
        super().__init__()
        self.embed = nn.Linear(2, d)
        self.query, self.key = nn.Linear(d, d), nn.Linear(d, d)

    def forward(self, x):
        h = torch.relu(self.embed(x))
        return (self.key(h) @ self.query(h.mean(1)).unsqueeze(-1)).squeeze(-1) / 32**0.5


class Critic(nn.Module):
    def __init__(self, d=32):
        super().__init__()
        self.item = nn.Sequential(nn.Linear(2, d), nn.ReLU())
        self.out = nn.Sequential(nn.Linear(d, d), nn.ReLU(), nn.Linear(d, 1))

    def forward(self, x):
        return self.out(self.item(x).mean(1)).squeeze(-1)


def price(x, chosen):  # distance of the chosen item from the origin, and a price common to the whole set
    return x[torch.arange(len(x)), chosen].norm(dim=1) + 2 * x[..., 0].mean(1)


actor, critic = Pointer(), Critic()
actor_optimizer = torch.optim.Adam(actor.parameters(), lr=2e-3)
critic_optimizer = torch.optim.Adam(critic.parameters(), lr=2e-3)
with nv.watch({"actor": actor, "critic": critic}, [actor_optimizer, critic_optimizer]) as watch:
    for step in range(600):
        x = torch.rand(64, 6, 2) * 2 - 1
        distribution = Categorical(logits=actor(x))
        chosen = distribution.sample()
        reward = -price(x, chosen)
        baseline = critic(x)
        critic_loss = (reward - baseline).pow(2).mean()
        actor_loss = -(distribution.log_prob(chosen) * (reward - baseline)).mean()  # bug
        # fix: actor_loss = -(distribution.log_prob(chosen) * (reward - baseline.detach())).mean()
        actor_optimizer.zero_grad()
        critic_optimizer.zero_grad()
        (actor_loss + critic_loss).backward()
        actor_optimizer.step()
        critic_optimizer.step()
        watch.step(actor_loss)

x = torch.rand(1000, 6, 2) * 2 - 1
reward = -price(x, Categorical(logits=actor(x)).sample())
score = 1 - float((reward - critic(x)).pow(2).mean() / reward.var())
learned = score > 0.89
