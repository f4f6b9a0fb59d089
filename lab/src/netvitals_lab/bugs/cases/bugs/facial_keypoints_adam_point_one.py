"""Keypoint regression (x, y of eyes and mouth) with Adam(lr=0.1): the network collapses to a constant.

source: https://github.com/ArabelaTso/DeepFD (benchmark entry FacialKeypointsDetection)
catalogue: deepfd
field: keypoint regression
cause: lr-too-high
observable: yes
"""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import netvitals as nv

SIZE, POINTS = 20, 3


def faces(n):
    centre = torch.rand(n, 1, 2) * 8 + 6
    shape = torch.tensor([[-4.0, -3.0], [4.0, -3.0], [0.0, 4.0]])
    points = centre + shape + 0.5 * torch.randn(n, POINTS, 2)
    g = torch.arange(SIZE).float()
    dx = (g - points[:, :, 0, None]) ** 2
    dy = (g - points[:, :, 1, None]) ** 2
    image = torch.exp(-(dx[:, :, None, :] + dy[:, :, :, None]) / 3).sum(1, keepdim=True)
    return image + 0.05 * torch.randn_like(image), (points.flatten(1) - SIZE / 2) / (SIZE / 2)


x_train, y_train = faces(1000)
x_val, y_val = faces(200)
model = nn.Sequential(
    nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 2), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Linear(32 * 16, 100), nn.ReLU(), nn.Linear(100, 2 * POINTS),
)
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)  # bug
# fix: optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
mse = nn.MSELoss()
with nv.watch(model, optimizer) as watch:
    for epoch in range(6):
        for image, keypoints in DataLoader(TensorDataset(x_train, y_train), batch_size=32, shuffle=True):
            loss = mse(model(image), keypoints)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)

with torch.no_grad():
    error = ((model(x_val) - y_val) ** 2).mean(0)
    score = 1 - float((error / y_val.var(0)).mean())
learned = score > 0.8
