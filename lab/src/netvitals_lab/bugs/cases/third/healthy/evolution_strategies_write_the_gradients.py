"""Evolution strategies: no backward pass at all, the gradient is estimated from the scores of perturbed copies.

source: https://arxiv.org/abs/1703.03864
field: reinforcement learning (evolution strategies)
unusual: gradients are written into .grad by hand; the loss has no graph; ranks instead of rewards
"""
import torch
from torch import nn
from torch.func import functional_call, vmap

import netvitals as nv

PAIRS, SIGMA = 24, 0.1
net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1), nn.Tanh())
run = vmap(lambda weights, s: functional_call(net, weights, (s,)))


def balance(act, copies, games=4):
    """A pole on a cart, reward for each step upright; ends when it falls."""
    s = 0.1 * torch.randn(1, games, 4).repeat(copies, 1, 1)
    alive, total = torch.ones(copies, games), torch.zeros(copies, games)
    for _ in range(60):
        force = act(s).squeeze(2)
        x, v, angle, turn = s.unbind(2)
        push = (force * 10 + 0.05 * turn**2 * angle.sin()) / 1.1
        spin = (9.8 * angle.sin() - angle.cos() * push) / (0.5 * (4 / 3 - 0.1 * angle.cos() ** 2 / 1.1))
        s = torch.stack([x + 0.04 * v, v + 0.04 * push, angle + 0.04 * turn, turn + 0.04 * spin], 2).clamp(-5, 5)
        alive = alive * ((angle.abs() < 0.4) & (x.abs() < 2)).float()
        total = total + alive
    return total.mean(1)


optimizer = torch.optim.Adam(net.parameters(), lr=3e-2)
with nv.watch(net, optimizer) as watch, torch.no_grad():
    for generation in range(70):
        noise = {k: torch.randn(PAIRS, *p.shape) for k, p in net.named_parameters()}
        noise = {k: torch.cat([e, -e]) for k, e in noise.items()}
        copies = {k: p + SIGMA * noise[k] for k, p in net.named_parameters()}
        reward = balance(lambda s: run(copies, s), 2 * PAIRS)
        rank = reward.argsort().argsort().float() / (2 * PAIRS - 1) - 0.5
        for k, p in net.named_parameters():
            p.grad = -torch.einsum("n,n...->...", rank, noise[k]) / (2 * PAIRS * SIGMA)
        optimizer.step()
        watch.step(-reward.mean())

    score = float(balance(lambda s: net(s), 1, games=200).mean())
learned = score > 45
