"""Spiking network with a plain step function: its derivative is zero everywhere, the layers below never learn.

source: https://snntorch.readthedocs.io/en/latest/tutorials/tutorial_5.html ("the dead neuron problem")
catalogue: docs
field: spiking networks
cause: detached-graph, vanishing-gradients
observable: yes
"""
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import netvitals as nv

digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32).flatten(1) / 16
labels = torch.tensor(digits.target)


class Spike(torch.autograd.Function):
    @staticmethod
    def forward(ctx, membrane):
        ctx.save_for_backward(membrane)
        return (membrane > 0).float()

    @staticmethod
    def backward(ctx, grad):
        (membrane,) = ctx.saved_tensors
        return torch.zeros_like(grad)  # bug
        # fix: return grad / (1 + 10 * membrane.abs()) ** 2


class LIF(nn.Module):
    def __init__(self, n_in, n_out, beta=0.8):
        super().__init__()
        self.linear, self.beta = nn.Linear(n_in, n_out), beta

    def forward(self, spikes):
        membrane, out = 0, []
        for s in spikes:
            membrane = self.beta * membrane + self.linear(s)
            fired = Spike.apply(membrane - 1)
            membrane = membrane - fired.detach()
            out.append(fired)
        return torch.stack(out)


class SpikingNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden, self.deeper, self.readout = LIF(64, 64), LIF(64, 10), nn.Linear(10, 10)

    def forward(self, x, steps=10):
        spikes = (torch.rand(steps, *x.shape) < x).float()
        return self.readout(self.deeper(self.hidden(spikes)).mean(0))


net = SpikingNet()
optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
with nv.watch(net, optimizer) as watch:
    for step in range(300):
        i = torch.randint(0, 1300, (64,))
        loss = F.cross_entropy(net(images[i]), labels[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

with torch.no_grad():
    score = float((net(images[1300:]).argmax(1) == labels[1300:]).float().mean())
learned = score > 0.75
