"""The centers of the center loss are parameters of the loss module, and the optimizer has the network's only.

source: https://github.com/KaiyangZhou/pytorch-center-loss/issues/22 (and 11)
catalogue: github
field: face verification
cause: parameters-not-in-optimizer
observable: yes
"""
import torch
import torch.nn as nn
from sklearn.datasets import load_digits

import netvitals as nv


class CenterLoss(nn.Module):
    def __init__(self, num_classes=10, feat_dim=8):
        super().__init__()
        self.centers = nn.Parameter(torch.randn(num_classes, feat_dim) * 5)

    def forward(self, x, labels):
        return (x - self.centers[labels]).square().sum(1).mean()


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.PReLU(), nn.MaxPool2d(2),
                                      nn.Conv2d(16, 32, 3, padding=1), nn.PReLU(), nn.Flatten(), nn.Linear(512, 8))
        self.fc = nn.Linear(8, 10)

    def forward(self, x):
        features = self.features(x)
        return features, self.fc(features)


digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
labels = torch.tensor(digits.target)
model = ConvNet()
criterion_xent = nn.CrossEntropyLoss()
criterion_cent = CenterLoss()
system = nn.ModuleDict({"model": model, "center": criterion_cent})
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=5e-4)  # bug
# fix: groups = [{"params": model.parameters(), "weight_decay": 5e-4}, {"params": criterion_cent.parameters(), "lr": 2.0}]
# fix: optimizer = torch.optim.SGD(groups, lr=0.02, momentum=0.9)
with nv.watch(system, optimizer) as watch:
    for epoch in range(10):
        for rows in torch.randperm(1400).split(64):
            features, outputs = model(images[rows])
            loss = criterion_xent(outputs, labels[rows]) + 0.01 * criterion_cent(features, labels[rows])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            watch.step(loss)

with torch.no_grad():
    features, outputs = model(images[:1400])
    means = torch.stack([features[labels[:1400] == k].mean(0) for k in range(10)])
    spread = (features - features.mean(0)).square().sum(1).mean().sqrt()
    score = -float((means - criterion_cent.centers).norm(dim=1).mean() / spread)  # centers should be the class means
learned = score > -0.4 and float((outputs.argmax(1) == labels[:1400]).float().mean()) > 0.9
