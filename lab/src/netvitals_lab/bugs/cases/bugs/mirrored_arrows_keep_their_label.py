"""Random horizontal flips as augmentation, but the classes are 'left' and 'right': half of the labels are wrong.

source: https://karpathy.github.io/2019/04/25/recipe/ ("you forgot to flip your labels when you left-right flipped the image")
catalogue: blog
field: image classification
cause: augmentation-wrong, labels-wrong
observable: yes
"""
import random

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

import netvitals as nv


class Arrows(Dataset):
    def __init__(self, n, augment):
        self.augment = augment
        self.label = torch.randint(0, 2, (n,))
        ramp = torch.linspace(0, 1, 12).view(1, 1, 12)
        ramp = torch.where(self.label[:, None, None] == 1, ramp, ramp.flip(-1))
        self.image = (ramp * torch.hann_window(12).view(1, 12, 1) + 0.3 * torch.randn(n, 12, 12)).unsqueeze(1)

    def __len__(self):
        return len(self.label)

    def __getitem__(self, i):
        image, label = self.image[i], int(self.label[i])
        if self.augment and random.random() < 0.5:
            image = image.flip(-1)
            # fix: label = 1 - label
        return image, label


model = nn.Sequential(nn.Conv2d(1, 12, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(300, 32), nn.ReLU(), nn.Linear(32, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
loader = DataLoader(Arrows(1000, augment=True), batch_size=32, shuffle=True)
with nv.watch(model, optimizer) as watch:
    for epoch in range(6):
        for image, label in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(image), label)
            loss.backward()
            optimizer.step()
            watch.step(loss)

test = Arrows(400, augment=False)
with torch.no_grad():
    score = float((model(test.image).argmax(1) == test.label).float().mean())
learned = score > 0.9
