"""DDPG that bootstraps beyond the end of an episode: the done mask is missing in the critic's target.

source: https://github.com/seungeunrho/minimalRL/pull/21
catalogue: github
field: reinforcement learning (DDPG)
cause: bootstrap-past-terminal NEW
observable: no, states, rewards and targets are plausible numbers; nothing says which transitions were terminal
"""
import copy

import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv

gamma, tau = 0.95, 0.05
s = torch.rand(5000, 1) * 4 - 2  # each step costs 1 until the cart stands at the goal
a = torch.rand(5000, 1) * 2 - 1
s2 = (s + 0.4 * a).clamp(-2, 2)
done = (s2.abs() < 0.2).float()
r = -torch.ones(5000, 1)

actor = nn.Sequential(nn.Linear(1, 64), nn.ReLU(), nn.Linear(64, 1), nn.Tanh())
critic = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
actor_target, critic_target = copy.deepcopy(actor), copy.deepcopy(critic)
actor_optimizer = torch.optim.Adam(actor.parameters(), lr=1e-3)
critic_optimizer = torch.optim.Adam(critic.parameters(), lr=3e-3)


def soft_update(net, net_target):
    for p, q in zip(net.parameters(), net_target.parameters()):
        q.data.copy_(q.data * (1 - tau) + p.data * tau)


with nv.watch({"actor": actor, "critic": critic}, [actor_optimizer, critic_optimizer]) as watch:
    for step in range(700):
        i = torch.randint(0, 5000, (128,))
        with torch.no_grad():
            next_q = critic_target(torch.cat([s2[i], actor_target(s2[i])], 1))
            target = r[i] + gamma * next_q  # bug
            # fix: target = r[i] + gamma * next_q * (1 - done[i])
        critic_loss = F.smooth_l1_loss(critic(torch.cat([s[i], a[i]], 1)), target)
        critic_optimizer.zero_grad()
        critic_loss.backward()
        critic_optimizer.step()

        actor_loss = -critic(torch.cat([s[i], actor(s[i])], 1)).mean()
        actor_optimizer.zero_grad()
        actor_loss.backward()
        actor_optimizer.step()
        soft_update(actor, actor_target)
        soft_update(critic, critic_target)
        watch.step(critic_loss)

x = torch.linspace(-2, 2, 100).unsqueeze(1)
steps = torch.zeros(100, 1)
with torch.no_grad():
    for _ in range(20):
        running = (x.abs() >= 0.2).float()
        steps += running
        x = (x + 0.4 * actor(x) * running).clamp(-2, 2)
score = -float(steps.mean())
learned = score > -5
