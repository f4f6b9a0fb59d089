"""A compression library's example CNN has nn.Softmax as its last module and trains with nn.CrossEntropyLoss.

source: https://github.com/NervanaSystems/distiller/commit/0a8a3b3
catalogue: humbatova
field: image classification
cause: double-softmax
observable: yes
"""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import netvitals as nv

CLASSES = 20
templates = torch.randn(CLASSES, 1, 10, 10)
y = torch.randint(0, CLASSES, (1500,))
x = templates[y] * (0.7 + 0.6 * torch.rand(1500, 1, 1, 1)) + torch.randn(1500, 1, 10, 10)
train_loader = DataLoader(TensorDataset(x[:1200], y[:1200]), batch_size=40, shuffle=True)


class SimpleNet(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.conv = nn.Conv2d(1, 16, 3)
        self.relu = nn.ReLU()
        self.pool = nn.MaxPool2d(2)
        self.fc = nn.Linear(16 * 16, num_classes)
        self.softmax = nn.Softmax(dim=1)  # bug
        # fix: self.softmax = nn.Identity()

    def forward(self, images):
        features = self.pool(self.relu(self.conv(images)))
        return self.softmax(self.fc(features.flatten(1)))


model = SimpleNet(CLASSES)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
criterion = nn.CrossEntropyLoss()


def train_epoch(watch):
    model.train()
    for images, target in train_loader:
        output = model(images)
        loss = criterion(output, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)


with nv.watch(model, optimizer) as watch:
    for epoch in range(8):
        train_epoch(watch)

with torch.no_grad():
    score = float((model(x[1200:]).argmax(1) == y[1200:]).float().mean())
learned = score > 0.9
