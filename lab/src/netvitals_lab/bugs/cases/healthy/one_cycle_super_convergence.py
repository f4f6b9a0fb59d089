"""Large-rate one-cycle training with momentum going the other way (super-convergence).

source: Smith & Topin, Super-Convergence (2018); https://pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.OneCycleLR.html
field: image classification
unusual: rate rises to 1.0, momentum moves between 0.95 and 0.85, scheduler.step() in the batch loop is right here
"""
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

import netvitals as nv

digits = load_digits()
dataset = TensorDataset(torch.tensor(digits.images[:, None] / 16, dtype=torch.float32), torch.tensor(digits.target))
train, test = random_split(dataset, [1500, 297])


class Residual(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(c, c, 3, padding=1, bias=False), nn.BatchNorm2d(c)

    def forward(self, x):
        return F.relu(x + self.norm(self.conv(x)))


model = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
    Residual(16), nn.MaxPool2d(2), Residual(16), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(64, 10),
)
EPOCHS, loader = 5, DataLoader(train, batch_size=30, shuffle=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.95, weight_decay=1e-4)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.6, total_steps=EPOCHS * len(loader))
with nv.watch(model, optimizer) as watch:
    for epoch in range(EPOCHS):
        model.train()
        for images, labels in loader:
            loss = F.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            watch.step(loss)

model.eval()
images, labels = next(iter(DataLoader(test, batch_size=297)))
with torch.no_grad():
    score = float((model(images).argmax(1) == labels).float().mean())
learned = score > 0.93
