"""Mixed precision: forward pass in bfloat16 by autocast, weights and optimizer in float32.

source: https://docs.pytorch.org/docs/stable/amp.html
field: image classification
unusual: activations are bfloat16, gradients and weights float32; no GradScaler, as bfloat16 needs none
"""
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import netvitals as nv


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm1, self.norm2 = nn.GroupNorm(4, channels), nn.GroupNorm(4, channels)

    def forward(self, x):
        h = F.relu(self.norm1(self.conv1(x)))
        return F.relu(x + self.norm2(self.conv2(h)))


digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
labels = torch.tensor(digits.target)
model = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), Residual(16), nn.MaxPool2d(2), Residual(16),
                      nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(64, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.05)
with nv.watch(model, optimizer) as watch:
    for epoch in range(5):
        for rows in torch.randperm(1500).split(64):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                logits = model(images[rows])
                loss = F.cross_entropy(logits, labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)

with torch.no_grad():
    score = float((model(images[1500:]).argmax(1) == labels[1500:]).float().mean())
learned = score > 0.85
