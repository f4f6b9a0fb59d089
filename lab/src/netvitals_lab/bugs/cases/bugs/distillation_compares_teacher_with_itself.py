"""Distillation whose soft loss takes the logits of the large model twice.

source: https://github.com/labmlai/annotated_deep_learning_paper_implementations/issues/66
catalogue: github
field: knowledge distillation
cause: detached-graph, loss-mismatch
observable: yes
"""
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import kl_div, log_softmax, softmax

import netvitals as nv

digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
labels = torch.tensor(digits.target)


class Configs:
    temperature = 5.0
    soft_weight, label_weight = 1.0, 0.02

    def __init__(self):
        self.large = nn.Sequential(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                                   nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(1024, 10))
        self.model = nn.Sequential(nn.Conv2d(1, 8, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(72, 10))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)

    def train_large(self):
        optimizer = torch.optim.Adam(self.large.parameters(), lr=1e-3)
        for _ in range(5):
            for rows in torch.randperm(1400).split(64):
                optimizer.zero_grad()
                nn.functional.cross_entropy(self.large(images[rows]), labels[rows]).backward()
                optimizer.step()
        self.large.eval()

    def step(self, data, target):
        with torch.no_grad():
            large_logits = self.large(data)
        output = self.model(data)
        soft_targets = softmax(large_logits / self.temperature, dim=-1)
        soft_prob = log_softmax(large_logits / self.temperature, dim=-1)  # bug
        # fix: soft_prob = log_softmax(output / self.temperature, dim=-1)
        soft_loss = kl_div(soft_prob, soft_targets, reduction="batchmean") * self.temperature**2
        label_loss = nn.functional.cross_entropy(output, target)
        loss = self.soft_weight * soft_loss + self.label_weight * label_loss
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss


conf = Configs()
conf.train_large()
noisy = torch.where(torch.rand(1400) < 0.3, torch.randint(0, 10, (1400,)), labels[:1400])  # labels to distil from are poor
with nv.watch(conf.model, conf.optimizer) as watch:
    for epoch in range(12):
        for rows in torch.randperm(1400).split(64):
            watch.step(conf.step(images[rows], noisy[rows]))

with torch.no_grad():
    large, small = (softmax(m(images[1400:]), -1) for m in (conf.large, conf.model))
    score = -float((large * (large.clamp_min(1e-8).log() - small.clamp_min(1e-8).log())).sum(1).mean())
learned = score > -0.5
