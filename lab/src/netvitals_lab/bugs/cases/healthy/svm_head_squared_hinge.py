"""A CNN with a linear SVM on top: one-against-rest squared hinge loss and weight decay on the head only.

source: Tang, Deep Learning using Linear Support Vector Machines (2013)
field: image classification
unusual: targets are -1 and +1, no softmax at all, examples behind the margin have no gradient, two parameter groups
"""
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import netvitals as nv

digits = load_digits()
images = torch.tensor(digits.images[:, None] / 8 - 1, dtype=torch.float32)
target = torch.tensor(digits.target)
mix = torch.randperm(len(target))
images, target = images[mix], target[mix]
signs = F.one_hot(target, 10).float() * 2 - 1


class DeepSvm(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(144, 64), nn.ReLU())
        self.svm = nn.Linear(64, 10)

    def forward(self, x):
        return self.svm(self.features(x))


model = DeepSvm()
optimizer = torch.optim.SGD([
    {"params": model.features.parameters(), "weight_decay": 0.0},
    {"params": model.svm.parameters(), "weight_decay": 1e-3},
], lr=0.03, momentum=0.9)
with nv.watch(model, optimizer) as watch:
    for epoch in range(8):
        for rows in torch.randperm(1500).split(50):
            loss = F.relu(1 - signs[rows] * model(images[rows])).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)

with torch.no_grad():
    score = float((model(images[1500:]).argmax(1) == target[1500:]).float().mean())
learned = score > 0.93
