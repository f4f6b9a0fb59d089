"""Fine-tuning feeds images resized to four times the size the frozen backbone was trained on.

source: https://discuss.pytorch.org/t/obtaining-abnormal-changes-in-loss-and-accuracy/84911
catalogue: traincheck
field: transfer learning
cause: train-test-mismatch
observable: yes
"""
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, Dataset

import netvitals as nv

digits = load_digits()
pixels = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
classes = torch.tensor(digits.target)


def backbone():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(2), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveMaxPool2d(1), nn.Flatten())


# pretraining at 8 x 8 on the even digits
even = classes % 2 == 0
features = backbone()
head = nn.Linear(64, 5)
pretrain = torch.optim.Adam([*features.parameters(), *head.parameters()], lr=2e-3)
for _ in range(12):
    for idx in torch.randperm(int(even.sum())).split(64):
        pretrain.zero_grad()
        F.cross_entropy(head(features(pixels[even][idx])), classes[even][idx] // 2).backward()
        pretrain.step()


class OddDigits(Dataset):
    def __init__(self, images, labels):
        images = F.interpolate(images, size=(32, 32), mode="bilinear")  # bug
        self.images, self.labels = images, labels

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.images[i], self.labels[i]


odd = OddDigits(pixels[~even], classes[~even] // 2)
train, test = torch.utils.data.random_split(odd, [700, len(odd) - 700])
for p in features.parameters():
    p.requires_grad_(False)
model = nn.Sequential(features, nn.Linear(64, 5))
optimizer = torch.optim.Adam(model[1].parameters(), lr=0.01)
with nv.watch(model, optimizer) as watch:
    for epoch in range(7):
        for images, labels in DataLoader(train, batch_size=32, shuffle=True):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            watch.step(loss)

with torch.no_grad():
    images, labels = next(iter(DataLoader(test, batch_size=len(test))))
    score = (model(images).argmax(1) == labels).float().mean().item()
learned = score > 0.86
