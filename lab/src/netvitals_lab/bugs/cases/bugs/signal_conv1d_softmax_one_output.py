"""A 1-D CNN for signals with Dense(1, softmax) and binary cross-entropy never leaves 50 percent.

source: https://stackoverflow.com/questions/51749207
catalogue: neuralint
field: signal classification
cause: softmax-over-one-class
observable: yes
"""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import netvitals as nv

t = torch.arange(80).float()


def recordings(n):
    sick = torch.randint(0, 2, (n,)).float()
    rate = 0.35 + 0.25 * sick + 0.03 * torch.randn(n)
    wave = torch.sin(rate[:, None] * t + 6.28 * torch.rand(n, 1)) + 0.5 * torch.randn(n, 80)
    return TensorDataset(wave.unsqueeze(1), sick.unsqueeze(1))


train, valid = recordings(1000), recordings(300)
model = nn.Sequential(
    nn.Conv1d(1, 20, 4, padding="same"), nn.ReLU(), nn.MaxPool1d(2), nn.Dropout(0.3),
    nn.Flatten(), nn.Linear(800, 50), nn.ReLU(),
    nn.Linear(50, 1), nn.Softmax(dim=1),  # bug
    # fix: nn.Linear(50, 1), nn.Sigmoid(),
)
nadam = torch.optim.NAdam(model.parameters(), lr=0.001)
bce = nn.BCELoss()
with nv.watch(model, nadam) as watch:
    for epoch in range(4):
        model.train()
        for wave, sick in DataLoader(train, batch_size=16, shuffle=True):
            nadam.zero_grad()
            loss = bce(model(wave), sick)
            loss.backward()
            nadam.step()
            watch.step(loss)

model.eval()
with torch.no_grad():
    wave, sick = valid.tensors
    score = float(((model(wave) > 0.5).float() == sick).float().mean())
learned = score > 0.88
