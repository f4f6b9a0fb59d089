"""Super-resolution: StepLR is meant in epochs but stepped after each batch, so the rate is zero after a few batches.

source: https://github.com/Lornatang/SRGAN-PyTorch/issues/1
catalogue: github
field: image super-resolution
cause: scheduler-misuse
observable: yes
"""
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import netvitals as nv

hr = torch.tensor(load_digits().images, dtype=torch.float32).unsqueeze(1) / 16
lr = F.avg_pool2d(hr, 2)


class Residual(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(c, c, 3, padding=1), nn.PReLU(), nn.Conv2d(c, c, 3, padding=1))

    def forward(self, x):
        return x + self.body(x)


class Generator(nn.Module):
    def __init__(self, c=16):
        super().__init__()
        self.head = nn.Sequential(nn.Conv2d(1, c, 3, padding=1), nn.PReLU(), Residual(c), Residual(c))
        self.tail = nn.Sequential(nn.Conv2d(c, 4, 3, padding=1), nn.PixelShuffle(2))

    def forward(self, x):
        return F.interpolate(x, scale_factor=2, mode="bilinear") + self.tail(self.head(x))


epochs = 10
model = Generator()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=epochs // 2, gamma=0.1)
loader = DataLoader(TensorDataset(lr, hr), batch_size=64, shuffle=True)
with nv.watch(model, optimizer) as watch:
    for epoch in range(epochs):
        for small, large in loader:
            optimizer.zero_grad()
            loss = F.mse_loss(model(small), large)
            loss.backward()
            optimizer.step()
            scheduler.step()  # bug
            watch.step(loss)
        # fix: scheduler.step()

with torch.no_grad():
    score = 1 - float(F.mse_loss(model(lr), hr) / F.mse_loss(F.interpolate(lr, scale_factor=2, mode="bilinear"), hr))
learned = score > 0.35
