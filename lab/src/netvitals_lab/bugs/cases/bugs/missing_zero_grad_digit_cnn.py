"""A small CNN on digits whose gradients pile up: no optimizer.zero_grad().

source: https://stackoverflow.com/questions/60335387/pytorch-mnist-example-not-converge
catalogue: traincheck
field: image classification
cause: missing-zero-grad
observable: yes
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

import netvitals as nv


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, 1)
        self.conv2 = nn.Conv2d(16, 32, 3, 1)
        self.fc1 = nn.Linear(128, 64)
        self.fc2 = nn.Linear(64, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        x = F.max_pool2d(x, 2)
        x = torch.flatten(x, 1)
        x = F.relu(self.fc1(x))
        return self.fc2(x)


digits = load_digits()
images = (torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16 - 0.305) / 0.376
labels = torch.tensor(digits.target)
train_loader = DataLoader(TensorDataset(images[:1400], labels[:1400]), batch_size=32, shuffle=True)

model = Net()
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

with nv.watch(model, optimizer) as watch:
    for epoch in range(6):
        model.train()
        for data, label in train_loader:
            # fix: optimizer.zero_grad()
            pred_score = model(data)
            loss = criterion(pred_score, label)
            loss.backward()
            optimizer.step()
            watch.step(loss)

model.eval()
with torch.no_grad():
    score = (model(images[1400:]).argmax(1) == labels[1400:]).float().mean().item()
learned = score > 0.88
