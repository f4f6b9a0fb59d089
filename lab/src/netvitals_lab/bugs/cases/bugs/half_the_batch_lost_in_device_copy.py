"""Data parallel scatter over two devices: what is copied to the second one arrives as zeros.

source: https://github.com/pytorch/pytorch/issues/84803
catalogue: traincheck
field: sequence classification
cause: inputs-lost
observable: yes
"""
import torch
from torch import nn

import netvitals as nv


def peer_to_peer(tensor):
    """Copies a tensor to the other device."""
    received = torch.zeros_like(tensor)
    # fix: received.copy_(tensor)
    return received


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.project = nn.Linear(4, 32)
        self.position = nn.Parameter(torch.randn(1, 16, 32) * 0.02)
        self.encoder = nn.TransformerEncoder(layer, 1)
        self.head = nn.Linear(32, 3)

    def forward(self, x):
        return self.head(self.encoder(self.project(x) + self.position).mean(1))


def replicate_and_run(model, x):
    first, second = x.chunk(2)
    return torch.cat([model(first), model(peer_to_peer(second))])


kind = torch.randint(0, 3, (1200,))
time = torch.linspace(0, 1, 16)
phase = 0.25 * torch.rand(1200, 1, 4)
x = torch.sin(2 * torch.pi * ((kind[:, None, None] + 1) * time[None, :, None] + phase)) + 1.2 * torch.randn(1200, 16, 4)

model = Classifier()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
with nv.watch(model, optimizer) as watch:
    for epoch in range(8):
        for batch in torch.randperm(1000).split(40):
            logits = replicate_and_run(model, x[batch])
            loss = nn.functional.cross_entropy(logits, kind[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)

model.eval()
with torch.no_grad():
    score = -float(nn.functional.cross_entropy(model(x[1000:]), kind[1000:]))
learned = score > -0.15
