"""Spiking network with leaky neurons: the step of a spike gets a smooth slope in the backward pass only.

source: https://arxiv.org/abs/1901.09948
field: spiking networks
unusual: a custom autograd function whose gradient is not that of its forward; activations are zero or one, mostly zero
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv

STEPS, INPUTS = 24, 20


class Spike(torch.autograd.Function):
    @staticmethod
    def forward(ctx, v):
        ctx.save_for_backward(v)
        return (v > 0).float()

    @staticmethod
    def backward(ctx, grad):
        (v,) = ctx.saved_tensors
        return grad / (1 + 20 * v.abs()) ** 2


pattern = torch.randint(0, STEPS, (4, INPUTS))


def volleys(n):
    """Each class is a pattern of spike times, played with jitter."""
    y = torch.randint(0, 4, (n,))
    when = (pattern[y] + torch.randint(-1, 2, (n, INPUTS))).clamp(0, STEPS - 1)
    return F.one_hot(when, STEPS).transpose(1, 2).float(), y


class SNN(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.w1, self.w2 = nn.Linear(INPUTS, hidden, bias=False), nn.Linear(hidden, 4, bias=False)
        nn.init.normal_(self.w1.weight, std=1.0)

    def forward(self, x):
        current = v = out = 0
        traces = []
        for t in range(STEPS):
            current = 0.7 * current + self.w1(x[:, t])
            v = 0.85 * v + current
            s = Spike.apply(v - 1)
            v = v * (1 - s.detach())
            out = 0.9 * out + self.w2(s)
            traces.append(out)
        return torch.stack(traces).amax(0)


net = SNN()
optimizer = torch.optim.Adamax(net.parameters(), lr=5e-3)
with nv.watch(net, optimizer) as watch:
    for step in range(250):
        x, y = volleys(64)
        loss = F.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

x, y = volleys(500)
score = float((net(x).argmax(1) == y).float().mean())
learned = score > 0.85
