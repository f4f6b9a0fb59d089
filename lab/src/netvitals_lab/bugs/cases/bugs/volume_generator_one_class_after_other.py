"""A 3-D CNN sees 120 batches of one class, then 120 of the other: the generator is sorted by label.

source: https://stackoverflow.com/questions/58237726
catalogue: deepfd
field: volumetric classification
cause: not-shuffled
observable: yes
"""
import random

import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv

BATCH_SIZE = 6
HALF = 120


def volume(label):
    base = torch.zeros(1, 8, 8, 8) if label else torch.ones(1, 8, 8, 8)
    return base * 0.3 + 0.6 * torch.randn(1, 8, 8, 8)


samples = [0] * HALF * BATCH_SIZE + [1] * HALF * BATCH_SIZE


def generate_fake_data():
    for start in range(0, len(samples), BATCH_SIZE):
        labels = samples[start:start + BATCH_SIZE]
        yield torch.stack([volume(label) for label in labels]), torch.tensor(labels)


model = nn.Sequential(
    nn.Conv3d(1, 8, 3), nn.ReLU(), nn.MaxPool3d(2),
    nn.Conv3d(8, 8, 3, padding=1), nn.ReLU(),
    nn.Flatten(), nn.Linear(8 * 27, 16), nn.ReLU(), nn.Linear(16, 2),
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
with nv.watch(model, optimizer) as watch:
    for epoch in range(2):
        # fix: random.shuffle(samples)
        for batch, labels in generate_fake_data():
            optimizer.zero_grad()
            loss = F.cross_entropy(model(batch), labels)
            loss.backward()
            optimizer.step()
            watch.step(loss)

truth = torch.tensor([i % 2 for i in range(200)])
with torch.no_grad():
    predicted = model(torch.stack([volume(int(t)) for t in truth])).argmax(1)
score = float((predicted == truth).float().mean())
learned = score > 0.9
