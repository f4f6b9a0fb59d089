"""SAC: the head for the logarithm of the deviation ends in a ReLU, so the deviation can never fall below one.

source: https://github.com/sweetice/Deep-reinforcement-learning-with-pytorch/issues/36
catalogue: github
field: reinforcement learning (SAC)
cause: output-activation
observable: yes
"""
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Normal

import netvitals as nv


class Actor(nn.Module):
    def __init__(self, min_log_std=-5, max_log_std=1):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(3, 64), nn.Linear(64, 64)
        self.mu_head, self.log_std_head = nn.Linear(64, 1), nn.Linear(64, 1)
        self.bounds = min_log_std, max_log_std

    def forward(self, s):
        h = F.relu(self.fc2(F.relu(self.fc1(s))))
        log_std = F.relu(self.log_std_head(h))  # bug
        # fix: log_std = self.log_std_head(h)
        return self.mu_head(h), log_std.clamp(*self.bounds).exp()

    def sample(self, s):
        mu, std = self(s)
        z = Normal(mu, std).rsample()
        a = torch.tanh(z)
        return a, Normal(mu, std).log_prob(z) - torch.log(1 - a.pow(2) + 1e-6)


def reward(s, a):
    """Steer to the angle that the three sensors ask for; a miss costs dearly."""
    return 1 - 6 * (a - torch.tanh(s[:, :1] - s[:, 1:2] * s[:, 2:])).abs()


actor = Actor()
critic = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
opt_a = torch.optim.Adam(actor.parameters(), lr=3e-3)
opt_c = torch.optim.Adam(critic.parameters(), lr=3e-3)
with nv.watch({"actor": actor, "critic": critic}, [opt_a, opt_c]) as watch:
    for step in range(700):
        s = torch.randn(96, 3)
        with torch.no_grad():
            a = torch.where(torch.rand(96, 1) < 0.3, torch.rand(96, 1) * 2 - 1, actor.sample(s)[0])
        critic_loss = F.mse_loss(critic(torch.cat([s, a], 1)), reward(s, a))
        opt_c.zero_grad()
        critic_loss.backward()
        opt_c.step()

        a, log_prob = actor.sample(s)
        actor_loss = (0.05 * log_prob - critic(torch.cat([s, a], 1))).mean()
        opt_a.zero_grad()
        actor_loss.backward()
        opt_a.step()
        watch.step(critic_loss)

with torch.no_grad():
    s = torch.randn(2000, 3)
    score = float(reward(s, actor.sample(s)[0]).mean())
learned = score > 0.0
