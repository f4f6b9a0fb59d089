"""Echo-state network: a fixed random reservoir with spectral radius 0.9 and a trained linear readout.

source: https://www.ai.rug.nl/minds/uploads/EchoStatesTechRep.pdf
field: forecasting (reservoir computing)
unusual: nearly all parameters are frozen on purpose and not in the optimizer; the recurrence runs under no_grad; one long sequence, not shuffled
"""
import torch
from torch import nn

import netvitals as nv


class EchoState(nn.Module):
    def __init__(self, size=150):
        super().__init__()
        self.cell = nn.RNNCell(1, size)
        with torch.no_grad():
            w = torch.randn(size, size) * (torch.rand(size, size) < 0.1)
            self.cell.weight_hh.copy_(w * 0.9 / torch.linalg.eigvals(w).abs().max())
            self.cell.weight_ih.uniform_(-0.5, 0.5)
        self.cell.requires_grad_(False)
        self.readout = nn.Linear(size, 1)

    @torch.no_grad()
    def states(self, x):
        h, out = torch.zeros(1, self.cell.hidden_size), []
        for value in x:
            h = self.cell(value.view(1, 1), h)
            out.append(h)
        return torch.cat(out)

    def forward(self, h):
        return self.readout(h).squeeze(1)


t = torch.arange(1301).float()
series = torch.sin(0.2 * t) * torch.cos(0.031 * t) + 0.01 * torch.randn(1301)
model = EchoState()
optimizer = torch.optim.Adam(filter(lambda p: p.requires_grad, model.parameters()), lr=5e-3)
h, target = model.states(series[:-1]), series[1:]
with nv.watch(model, optimizer) as watch:
    for epoch in range(15):
        for i in range(100, 1000, 30):  # the first hundred states are washed out
            loss = nn.functional.mse_loss(model(h[i : i + 30]), target[i : i + 30])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)

with torch.no_grad():
    score = 1 - float((model(h[1000:]) - target[1000:]).pow(2).mean() / target[1000:].var())
learned = score > 0.9
