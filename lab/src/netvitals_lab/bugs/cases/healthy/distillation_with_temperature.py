"""Knowledge distillation: soft targets at temperature 4, times T squared, and a tenth of hard labels.

source: https://arxiv.org/abs/1503.02531
field: knowledge distillation
unusual: a second network in eval mode under no_grad; a KL loss that goes towards zero
"""
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import netvitals as nv

digits = load_digits()
x = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
y = torch.tensor(digits.target)

teacher = nn.Sequential(nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
                        nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.Flatten(),
                        nn.Dropout(0.3), nn.Linear(1024, 10))
optimizer = torch.optim.Adam(teacher.parameters(), lr=1e-3)
for _ in range(6):
    for rows in torch.randperm(1400).split(64):
        optimizer.zero_grad()
        F.cross_entropy(teacher(x[rows]), y[rows]).backward()
        optimizer.step()
teacher.eval()
for p in teacher.parameters():
    p.requires_grad_(False)

student = nn.Sequential(nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(128, 10))
optimizer = torch.optim.SGD(student.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 14)
temperature = 4.0
with nv.watch(student, optimizer) as watch:
    for epoch in range(14):
        for rows in torch.randperm(1400).split(64):
            with torch.no_grad():
                soft = F.softmax(teacher(x[rows]) / temperature, 1)
            logits = student(x[rows])
            kl = F.kl_div(F.log_softmax(logits / temperature, 1), soft, reduction="batchmean") * temperature**2
            loss = 0.9 * kl + 0.1 * F.cross_entropy(logits, y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)
        schedule.step()

with torch.no_grad():
    score = float((student(x[1400:]).argmax(1) == y[1400:]).float().mean())
learned = score > 0.82
