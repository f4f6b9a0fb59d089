"""SAC: the action is scaled by two before log(1 - a^2) corrects for the tanh; of a large action the logarithm is NaN.

source: https://github.com/cpnota/autonomous-learning-library/issues/139
catalogue: github
field: reinforcement learning (SAC, continuous torque)
cause: bad-values
observable: yes
"""
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Normal

import netvitals as nv

tanh_scale = 2.0


class SoftPolicy(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))

    def forward(self, s):
        mean, log_std = self.net(s).chunk(2, 1)
        normal = Normal(mean, log_std.clamp(-4, 1).exp())
        raw = normal.rsample()
        action = tanh_scale * torch.tanh(raw)
        log_prob = normal.log_prob(raw) - torch.log(1 - action.pow(2) + 1e-6)  # bug
        # fix: log_prob = normal.log_prob(raw) - torch.log(1 - torch.tanh(raw).pow(2) + 1e-6)
        return action, log_prob


def swing(s, a):
    """The torque that would hold the pendulum is right, within its limits."""
    return -(a - (1.5 * s[:, :1].sin() - 0.5 * s[:, 1:])).pow(2)


policy = SoftPolicy()
critic = nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
opt_p = torch.optim.Adam(policy.parameters(), lr=2e-3)
opt_q = torch.optim.Adam(critic.parameters(), lr=3e-3)
memory = torch.randn(4000, 2)
with nv.watch({"policy": policy, "critic": critic}, [opt_p, opt_q]) as watch:
    for step in range(600):
        s = memory[torch.randint(0, 4000, (96,))]
        a = torch.rand(96, 1) * 4 - 2
        q_loss = F.mse_loss(critic(torch.cat([s, a], 1)), swing(s, a))
        opt_q.zero_grad()
        q_loss.backward()
        opt_q.step()

        a, log_prob = policy(s)
        p_loss = (0.02 * log_prob - critic(torch.cat([s, a], 1))).mean()
        opt_p.zero_grad()
        p_loss.backward()
        opt_p.step()
        watch.step(p_loss)

with torch.no_grad():
    s = torch.randn(1000, 2)
    score = float(swing(s, policy(s)[0]).mean())
learned = score > -0.18
