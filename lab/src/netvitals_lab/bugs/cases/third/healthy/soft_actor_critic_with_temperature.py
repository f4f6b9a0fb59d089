"""SAC: squashed Gaussian policy, two critics with slow copies, a temperature that keeps the entropy at its target.

source: https://arxiv.org/abs/1812.05905
field: reinforcement learning (SAC)
unusual: three optimizers, one of them of a scalar; critics get gradients from the actor's loss that nobody uses
"""
import copy

import torch
from torch import nn
from torch.distributions import Normal

import netvitals as nv


def mlp(i, o):
    return nn.Sequential(nn.Linear(i, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, o))


def world(s, a):
    """A cart is to stand still at the origin."""
    v = 0.9 * s[:, 1:] + 0.3 * a
    x = (s[:, :1] + 0.3 * v).clamp(-3, 3)
    return torch.cat([x, v], 1), -(x.pow(2) + 0.1 * v.pow(2) + 0.01 * a.pow(2))


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = mlp(2, 2)

    def forward(self, s):
        mean, log_std = self.net(s).chunk(2, 1)
        normal = Normal(mean, log_std.clamp(-5, 2).exp())
        z = normal.rsample()
        a = torch.tanh(z)
        return a, normal.log_prob(z) - torch.log(1 - a.pow(2) + 1e-6), torch.tanh(mean)


policy, q1, q2, log_alpha = Policy(), mlp(3, 1), mlp(3, 1), nn.Parameter(torch.zeros(1))
t1, t2 = copy.deepcopy(q1).requires_grad_(False), copy.deepcopy(q2).requires_grad_(False)
opt_p = torch.optim.Adam(policy.parameters(), lr=2e-3)
opt_q = torch.optim.Adam([*q1.parameters(), *q2.parameters()], lr=2e-3)
opt_a = torch.optim.Adam([log_alpha], lr=5e-3)
S = torch.randn(6000, 2) * torch.tensor([1.5, 1.0])
A = torch.rand(6000, 1) * 2 - 1
S2, R = world(S, A)
with nv.watch({"policy": policy, "q1": q1, "q2": q2, "t1": t1, "t2": t2}, [opt_p, opt_q, opt_a]) as watch:
    for step in range(500):
        i = torch.randint(0, 6000, (128,))
        s, a, s2, r = S[i], A[i], S2[i], R[i]
        alpha = log_alpha.exp().detach()
        with torch.no_grad():
            a2, logp2, _ = policy(s2)
            y = r + 0.95 * (torch.min(t1(torch.cat([s2, a2], 1)), t2(torch.cat([s2, a2], 1))) - alpha * logp2)
        q_loss = sum((q(torch.cat([s, a], 1)) - y).pow(2).mean() for q in (q1, q2))
        opt_q.zero_grad(), q_loss.backward(), opt_q.step()
        new, logp, _ = policy(s)
        p_loss = (alpha * logp - torch.min(q1(torch.cat([s, new], 1)), q2(torch.cat([s, new], 1)))).mean()
        opt_p.zero_grad(), p_loss.backward(), opt_p.step()
        a_loss = -(log_alpha * (logp.detach() - 1)).mean()
        opt_a.zero_grad(), a_loss.backward(), opt_a.step()
        with torch.no_grad():
            for q, t in ((q1, t1), (q2, t2)):
                for p, target in zip(q.parameters(), t.parameters()):
                    target.lerp_(p, 0.02)
        watch.step(q_loss)

s, total = torch.randn(200, 2) * 1.5, 0
with torch.no_grad():
    for _ in range(20):
        s, r = world(s, policy(s)[2])
        total = total + r.mean()
score = float(total) / 20
learned = score > -1.2
