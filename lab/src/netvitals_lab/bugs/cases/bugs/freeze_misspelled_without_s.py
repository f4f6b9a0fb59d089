"""The features of a pretrained network are "frozen" with param.require_grad: a new attribute that does nothing.

source: https://github.com/udacity/deep-learning-v2-pytorch/issues/12
catalogue: github
field: transfer learning
cause: not-frozen
observable: yes
silent: yes
"""
import torch
from sklearn.datasets import load_digits
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset

import netvitals as nv


class MiniVGG(nn.Module):
    def __init__(self, out):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                                      nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        self.classifier = nn.Sequential(nn.Flatten(), nn.Linear(128, 64), nn.ReLU(), nn.Dropout(0.2),
                                        nn.Linear(64, out))

    def forward(self, x):
        return self.classifier(self.features(x))


digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
labels = torch.tensor(digits.target)

vgg = MiniVGG(10)  # stands for the weights from ImageNet
pretraining = optim.Adam(vgg.parameters(), lr=2e-3)
for _ in range(5):
    for rows in torch.randperm(1000).split(50):
        pretraining.zero_grad()
        nn.functional.cross_entropy(vgg(images[rows]), labels[rows]).backward()
        pretraining.step()

# Freeze training for all "features" layers
for param in vgg.features.parameters():
    param.require_grad = False  # bug
    # fix: param.requires_grad = False
original = vgg.features[0].weight.detach().clone()
vgg.classifier[4] = nn.Linear(64, 2)  # flowers or not: here odd or even
criterion = nn.CrossEntropyLoss()
optimizer = optim.SGD(vgg.parameters(), lr=0.02, momentum=0.9)
train_loader = DataLoader(TensorDataset(images[1000:1500], labels[1000:1500] % 2), batch_size=20, shuffle=True)
with nv.watch(vgg, optimizer) as watch:
    for epoch in range(8):
        for data, target in train_loader:
            optimizer.zero_grad()
            loss = criterion(vgg(data), target)
            loss.backward()
            optimizer.step()
            watch.step(loss)

vgg.eval()
accuracy = float((vgg(images[1500:]).argmax(1) == labels[1500:] % 2).float().mean())
score = -float((vgg.features[0].weight - original).abs().max())
learned = score == 0 and accuracy > 0.85
