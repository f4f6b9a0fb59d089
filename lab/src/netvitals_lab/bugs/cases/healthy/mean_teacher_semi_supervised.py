"""Mean teacher: 60 labels, a consistency loss to an averaged copy of the network, with a ramp-up.

source: https://arxiv.org/abs/1703.01780
field: semi-supervised learning
unusual: one network is never in an optimizer and still moves; the weight of one loss term grows from zero
"""
import copy
import math

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import netvitals as nv

digits = load_digits()
order = torch.randperm(1797)
x = torch.tensor(digits.images, dtype=torch.float32)[order].unsqueeze(1) / 16
y = torch.tensor(digits.target)[order]
labelled, unlabelled, test = slice(0, 60), slice(60, 1400), slice(1400, None)


def noisy(images):
    return images + 0.15 * torch.randn_like(images)


student = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.LeakyReLU(0.1), nn.MaxPool2d(2),
                        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.LeakyReLU(0.1), nn.Flatten(),
                        nn.Linear(512, 10))
teacher = copy.deepcopy(student)
for p in teacher.parameters():
    p.requires_grad_(False)
optimizer = torch.optim.Adam(student.parameters(), lr=2e-3)
steps = 260
with nv.watch({"student": student, "teacher": teacher}, optimizer) as watch:
    student.train()
    teacher.train()  # its batch norm follows its own weights
    for step in range(steps):
        few = torch.randint(0, 60, (20,))
        many = x[unlabelled][torch.randint(0, 1340, (60,))]
        images = torch.cat([x[labelled][few], many])
        with torch.no_grad():
            wanted = F.softmax(teacher(noisy(images)), 1)
        logits = student(noisy(images))
        ramp = 10 * math.exp(-5 * (1 - min(1, step / 120)) ** 2)
        consistency = (F.softmax(logits, 1) - wanted).square().mean()
        loss = F.cross_entropy(logits[:20], y[labelled][few]) + ramp * consistency
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        decay = min(1 - 1 / (step + 1), 0.98)
        with torch.no_grad():
            for old, new in zip(teacher.parameters(), student.parameters()):
                old.mul_(decay).add_(new, alpha=1 - decay)
        watch.step(loss)

teacher.eval()
with torch.no_grad():
    score = float((teacher(x[test]).argmax(1) == y[test]).float().mean())
learned = score > 0.7
