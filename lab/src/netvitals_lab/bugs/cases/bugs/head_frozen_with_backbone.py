"""Transfer learning where the loop that freezes the network also freezes the new head.

source: https://discuss.pytorch.org/t/obtaining-abnormal-changes-in-loss-and-accuracy/84911
catalogue: traincheck
field: transfer learning
cause: frozen-by-mistake
observable: yes
"""
import torch
from sklearn.datasets import load_digits
from torch import nn, optim

import netvitals as nv

digits = load_digits()
x = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
y = torch.tensor(digits.target)
old, new = y < 5, y >= 5


class SmallNet(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1, stride=2, bias=False)
        self.bn2 = nn.BatchNorm2d(32)
        self._fc = nn.Linear(32 * 4, classes)

    def forward(self, x):
        x = self.bn1(self.conv1(x)).relu()
        x = self.bn2(self.conv2(x)).relu()
        return self._fc(nn.functional.adaptive_avg_pool2d(x, 2).flatten(1))


# stands for the weights that one downloads: trained on the first five classes
model_transfer = SmallNet(5)
pretraining = optim.Adam(model_transfer.parameters(), lr=3e-3)
for _ in range(6):
    for batch in torch.randperm(int(old.sum())).split(64):
        pretraining.zero_grad()
        nn.functional.cross_entropy(model_transfer(x[old][batch]), y[old][batch]).backward()
        pretraining.step()

model_transfer._fc = nn.Linear(model_transfer._fc.in_features, 5)
criterion_transfer = nn.CrossEntropyLoss()
optimizer_transfer = optim.Adam(model_transfer._fc.parameters(), lr=0.01)
for name, param in model_transfer.named_parameters():
    if "bn" not in name:
        param.requires_grad = False
for param in model_transfer._fc.parameters():
    param.requires_grad = False  # bug
    # fix: param.requires_grad = True

data, target = x[new], y[new] - 5
with nv.watch(model_transfer, optimizer_transfer) as watch:
    for epoch in range(20):
        model_transfer.train()
        for batch in torch.randperm(700).split(64):
            optimizer_transfer.zero_grad()
            loss = criterion_transfer(model_transfer(data[batch]), target[batch])
            loss.backward()
            optimizer_transfer.step()
            watch.step(loss)

model_transfer.eval()
score = (model_transfer(data[700:]).argmax(1) == target[700:]).float().mean().item()
learned = score > 0.8
