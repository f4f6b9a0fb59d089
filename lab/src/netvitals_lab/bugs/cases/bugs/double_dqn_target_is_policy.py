"""Double DQN whose target network is the policy network itself, and whose target is not detached.

source: https://github.com/datawhalechina/easy-rl/pull/117
catalogue: github
field: reinforcement learning (double DQN)
cause: target-network-misuse
observable: yes
"""
import copy
import random
from collections import deque

import torch
from torch import nn

import netvitals as nv


class QNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.head = nn.Linear(64, 4)

    def forward(self, x):
        return self.head(self.body(x))


moves = torch.tensor([[1, 0], [-1, 0], [0, 1], [0, -1]])
goal = torch.tensor([3, 3])


def act(position, a):
    after = (position + moves[a]).clamp(0, 4)
    done = bool((after == goal).all())
    return after, (1.0 if done else -0.05), done


memory = deque(maxlen=3000)
policy_net = QNet()
target_net = policy_net  # bug
# fix: target_net = copy.deepcopy(policy_net)
optimizer = torch.optim.Adam(policy_net.parameters(), lr=1e-3)
position = torch.randint(0, 5, (2,))
with nv.watch(policy_net, optimizer) as watch:
    for step in range(800):
        for _ in range(4):
            a = random.randrange(4) if random.random() < 0.5 else int(policy_net(position.float() / 4).argmax())
            after, r, done = act(position, a)
            memory.append((position, a, r, after, done))
            position = torch.randint(0, 5, (2,)) if done or random.random() < 0.05 else after
        s, a, r, s2, done = zip(*random.choices(memory, k=64))
        s, s2 = torch.stack(s).float() / 4, torch.stack(s2).float() / 4
        a, r, done = torch.tensor(a), torch.tensor(r), torch.tensor(done).float()
        q = policy_net(s).gather(1, a[:, None]).squeeze(1)
        best = policy_net(s2).argmax(1, keepdim=True)
        y = r + 0.95 * (1 - done) * target_net(s2).gather(1, best).squeeze(1)  # bug
        # fix: y = (r + 0.95 * (1 - done) * target_net(s2).gather(1, best).squeeze(1)).detach()
        loss = ((q - y) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)
        if step % 20 == 19:
            target_net.load_state_dict(policy_net.state_dict())

fields = torch.cartesian_prod(torch.arange(5), torch.arange(5))
steps = (fields - goal).abs().sum(1)
true = torch.where(steps > 0, 0.95 ** (steps - 1) - 0.05 * (1 - 0.95 ** (steps - 1)) / 0.05, torch.zeros(25))
error = (policy_net(fields / 4).max(1).values - true)[steps > 0].abs().mean()
score = -float(error)
learned = score > -0.035
