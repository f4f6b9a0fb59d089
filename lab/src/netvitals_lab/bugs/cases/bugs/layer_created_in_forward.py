"""A layer is created in forward: it has new random weights in each call, and the optimizer never sees it.

source: https://thecodeforge.io/ml-ai/pytorch-neural-network/
catalogue: blog
field: image classification
cause: parameters-not-registered
observable: yes
"""
import torch
import torch.nn as nn
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset, random_split

import netvitals as nv

digits = load_digits()
dataset = TensorDataset(torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16, torch.tensor(digits.target))
train_set, val_set = random_split(dataset, [1400, len(dataset) - 1400])


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.pool = nn.MaxPool2d(2)
        # fix: self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.fc = nn.Linear(32 * 2 * 2, 10)

    def forward(self, x):
        x = self.pool(torch.relu(self.conv1(x)))
        x = self.pool(torch.relu(nn.Conv2d(16, 32, 3, padding=1)(x)))  # bug
        # fix: x = self.pool(torch.relu(self.conv2(x)))
        return self.fc(x.flatten(1))


def evaluate(model):
    right = 0
    with torch.no_grad():
        for x, y in DataLoader(val_set, batch_size=100):
            right += int((model(x).argmax(1) == y).sum())
    return right / len(val_set)


model = ConvNet()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
criterion = nn.CrossEntropyLoss()
with nv.watch(model, optimizer) as watch:
    for epoch in range(8):
        for x, y in DataLoader(train_set, batch_size=32, shuffle=True):
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            watch.step(loss)

score = evaluate(model)
learned = score > 0.9
