"""Stages are frozen in an overridden train(), which the training script never calls.

source: https://github.com/open-mmlab/mmpretrain/issues/702
catalogue: traincheck
field: fine-tuning a VGG
cause: not-frozen
observable: yes
silent: yes
"""
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import netvitals as nv


class VGG(nn.Module):
    def __init__(self, frozen_stages=-1):
        super().__init__()
        self.frozen_stages = frozen_stages
        self.stages = nn.ModuleList()
        channels = 1
        for width in (16, 32):
            self.stages.append(nn.Sequential(nn.Conv2d(channels, width, 3, padding=1), nn.BatchNorm2d(width),
                                             nn.ReLU(), nn.MaxPool2d(2)))
            channels = width
        self.fc = nn.Linear(32 * 4, 10)
        # fix: self._freeze_stages()

    def _freeze_stages(self):
        for stage in self.stages[:self.frozen_stages]:
            stage.eval()
            for param in stage.parameters():
                param.requires_grad = False

    def train(self, mode=True):
        super().train(mode)
        if self.frozen_stages > 0:
            self._freeze_stages()
        return self

    def forward(self, x):
        for stage in self.stages:
            x = stage(x)
        return self.fc(x.flatten(1))


digits = load_digits()
x = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
y = torch.tensor(digits.target)

source = VGG()  # stands for the downloaded weights
pretraining = torch.optim.Adam(source.parameters(), lr=3e-3)
for _ in range(5):
    for batch in torch.randperm(800).split(64):
        pretraining.zero_grad()
        F.cross_entropy(source(x[batch]), y[batch]).backward()
        pretraining.step()
pretrained = {k: v.clone() for k, v in source.state_dict().items() if k.startswith("stages")}

model = VGG(frozen_stages=1)
model.load_state_dict(pretrained, strict=False)
optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.02, momentum=0.9)
loader = DataLoader(TensorDataset(x[800:1500], y[800:1500]), batch_size=50, shuffle=True)
with nv.watch(model, optimizer) as watch:
    for epoch in range(15):
        for images, labels in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            watch.step(loss)

model.eval()
accuracy = float((model(x[1500:]).argmax(1) == y[1500:]).float().mean())
moved = max(float((model.state_dict()[k] - v).abs().max()) for k, v in pretrained.items() if k == "stages.0.0.weight")
score = -moved
learned = moved == 0 and accuracy > 0.85
