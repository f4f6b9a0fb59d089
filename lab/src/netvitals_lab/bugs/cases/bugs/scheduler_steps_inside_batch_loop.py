"""A schedule meant for epochs is stepped after every batch: the rate is gone after the first epoch.

source: https://github.com/ivadomed/ivadomed/pull/55
catalogue: github
field: medical segmentation
cause: scheduler-misuse
observable: yes
"""
import torch
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset

import netvitals as nv


def slices(n, size=16):
    """A bright ring (the cord) with a dark core on an uneven ground; the mask is the core."""
    y, x = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    centre = torch.randint(4, size - 4, (n, 2, 1, 1)).float()
    radius = torch.rand(n, 1, 1) * 1.5 + 1.5
    distance = ((y - centre[:, 0]) ** 2 + (x - centre[:, 1]) ** 2).sqrt()
    image = ((distance < radius + 1.5) & (distance >= radius)).float() + 0.2 * torch.randn(n, size, size)
    image = image + torch.randn(n, 1, 1) * x / size * 0.5
    return image.unsqueeze(1), (distance < radius).float().unsqueeze(1)


class DiceLoss(nn.Module):
    def forward(self, prediction, target):
        overlap = (prediction * target).sum((1, 2, 3))
        total = prediction.sum((1, 2, 3)) + target.sum((1, 2, 3))
        return 1 - ((2 * overlap + 1) / (total + 1)).mean()


model = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.ReLU(),
                      nn.Conv2d(16, 16, 3, padding=2, dilation=2), nn.GroupNorm(4, 16), nn.ReLU(),
                      nn.Conv2d(16, 1, 3, padding=1), nn.Sigmoid())
num_epochs = 12
loss_fct = DiceLoss()
optimizer = optim.Adam(model.parameters(), lr=5e-3)
scheduler = optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.8)
images, masks = slices(400)
train_loader = DataLoader(TensorDataset(images[:320], masks[:320]), batch_size=8, shuffle=True)
with nv.watch(model, optimizer) as watch:
    for epoch in range(num_epochs):
        model.train()
        for input_samples, gt_samples in train_loader:
            preds = model(input_samples)
            loss = loss_fct(preds, gt_samples)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()  # bug
            watch.step(loss)
        # fix: scheduler.step()

model.eval()
with torch.no_grad():
    score = 1 - float(loss_fct(model(images[320:]), masks[320:]))
learned = score > 0.85
