"""A deep equilibrium model: the layer is iterated to its fixed point without a graph, a hook solves for the gradient.

source: https://arxiv.org/abs/1909.01377
field: implicit layers (deep equilibrium)
unusual: most forward passes run without gradients; a backward hook replaces the gradient by the solution of an equation
"""
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import netvitals as nv

digits = load_digits()
images, labels = torch.tensor(digits.images, dtype=torch.float32).flatten(1) / 16, torch.tensor(digits.target)


class Equilibrium(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.inject, self.inner, self.norm = nn.Linear(64, width), nn.Linear(width, width), nn.LayerNorm(width)
        with torch.no_grad():
            self.inner.weight.mul_(0.5)

    def step(self, z, x):
        return self.norm(x + 0.25 * torch.tanh(self.inner(z)))

    def forward(self, x):
        x = self.inject(x)
        with torch.no_grad():
            z = torch.zeros_like(x)
            for _ in range(20):
                z = self.step(z, x)
        z = self.step(z, x)
        z0 = z.detach().requires_grad_()
        f0 = self.step(z0, x.detach())

        def solve(grad):
            g = grad
            for _ in range(10):
                g = torch.autograd.grad(f0, z0, g, retain_graph=True)[0] + grad
            return g

        if z.requires_grad:
            z.register_hook(solve)
        return z


net = nn.Sequential(Equilibrium(), nn.Linear(48, 10))
optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
with nv.watch(net, optimizer) as watch:
    for step in range(300):
        i = torch.randint(0, 1300, (64,))
        loss = F.cross_entropy(net(images[i]), labels[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

score = float((net(images[1300:]).argmax(1) == labels[1300:]).float().mean())
learned = score > 0.8
