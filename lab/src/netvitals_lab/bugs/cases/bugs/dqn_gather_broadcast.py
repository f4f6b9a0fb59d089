"""DQN on a corridor: Q(s, a) of shape (B, 1) is compared with targets of shape (B,).

source: https://github.com/kengz/SLM-Lab/pull/372
catalogue: github
field: reinforcement learning (DQN)
cause: broadcast-in-loss
observable: yes
"""
import copy

import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv

gamma = 0.9
state = torch.randint(0, 5, (2000,))  # replay memory of a random walk on 6 fields, the last one is the goal
action = torch.randint(0, 2, (2000,))
next_state = (state + 2 * action - 1).clamp(0, 5)
reward = (next_state == 5).float()
done = reward
one_hot = torch.eye(6)

q_net = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 2))
target_net = copy.deepcopy(q_net)
optimizer = torch.optim.Adam(q_net.parameters(), lr=3e-3)
with nv.watch(q_net, optimizer) as watch:
    for step in range(700):
        i = torch.randint(0, 2000, (64,))
        q = q_net(one_hot[state[i]]).gather(1, action[i].unsqueeze(1))
        with torch.no_grad():
            next_q = target_net(one_hot[next_state[i]]).max(1).values
            y = reward[i] + gamma * (1 - done[i]) * next_q
        loss = F.smooth_l1_loss(q, y)  # bug
        # fix: loss = F.smooth_l1_loss(q, y.unsqueeze(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)
        if step % 25 == 0:
            target_net.load_state_dict(q_net.state_dict())

best = gamma ** torch.arange(4, -1, -1).float()
score = -float((q_net(one_hot[:5]).max(1).values - best).abs().mean())
learned = score > -0.1 and bool((q_net(one_hot[:5]).argmax(1) == 1).all())
