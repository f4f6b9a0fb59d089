"""DQN with a replay memory, epsilon-greedy exploration and a target network that is copied from time to time.

source: https://docs.pytorch.org/tutorials/intermediate/reinforcement_q_learning.html
field: reinforcement learning (DQN)
unusual: the targets move while training, the loss need not fall; a second network without gradients; one output of several is trained per sample
"""
import copy
import random
from collections import deque

import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv

SIZE = 5
goal = torch.tensor([4, 4])
moves = torch.tensor([[1, 0], [-1, 0], [0, 1], [0, -1]])
policy_net = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
target_net = copy.deepcopy(policy_net)
optimizer = torch.optim.AdamW(policy_net.parameters(), lr=1e-3, amsgrad=True)
memory = deque(maxlen=4000)


def observe(position):
    return position.float() / 2 - 1


def step_environment(position, action):
    after = (position + moves[action]).clamp(0, SIZE - 1)
    done = bool((after == goal).all())
    return after, 1.0 if done else 0.0, done


position = torch.randint(0, SIZE, (2,))
with nv.watch(policy_net, optimizer) as watch:
    for step in range(700):
        epsilon = max(0.2, 1 - step / 400)
        for _ in range(4):
            with torch.no_grad():
                greedy = int(policy_net(observe(position)).argmax())
            action = random.randrange(4) if random.random() < epsilon else greedy
            after, reward, done = step_environment(position, action)
            memory.append((observe(position), action, reward, observe(after), done))
            position = torch.randint(0, SIZE - 1, (2,)) if done or random.random() < 0.03 else after
        s, a, r, s2, done = zip(*random.choices(memory, k=64))
        q = policy_net(torch.stack(s)).gather(1, torch.tensor(a).unsqueeze(1)).squeeze(1)
        with torch.no_grad():
            best = target_net(torch.stack(s2)).amax(1)
        expected = torch.tensor(r) + 0.9 * best * (1 - torch.tensor(done).float())
        loss = F.smooth_l1_loss(q, expected)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(policy_net.parameters(), 100)
        optimizer.step()
        if step % 25 == 24:
            target_net.load_state_dict(policy_net.state_dict())
        watch.step(loss)

steps = []
for start in torch.cartesian_prod(torch.arange(SIZE), torch.arange(SIZE))[:-1]:
    position, n, done = start, 0, False
    while not done and n < 20:
        position, _, done = step_environment(position, int(policy_net(observe(position)).argmax()))
        n += 1
    steps.append(n)
score = -sum(steps) / len(steps)  # the shortest paths take 4.2 steps on average
learned = score > -5.5
