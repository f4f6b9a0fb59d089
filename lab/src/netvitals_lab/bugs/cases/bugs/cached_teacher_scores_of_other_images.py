"""The teacher's outputs are stored batch by batch, then used with a loader that shuffles anew.

source: https://github.com/haitongli/knowledge-distillation-pytorch/pull/17
catalogue: github
field: knowledge distillation
cause: labels-wrong
observable: yes
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

import netvitals as nv

digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
labels = torch.tensor(digits.target)
train_set = TensorDataset(images[:1400], labels[:1400])
train_dl = DataLoader(train_set, batch_size=50, shuffle=True)


def net(width):
    return nn.Sequential(nn.Conv2d(1, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Flatten(), nn.Linear(width * 16, 10))


def fetch_teacher_outputs(teacher, dataloader):
    with torch.no_grad():
        return [teacher(data) for data, _ in dataloader]


def loss_fn_kd(outputs, labels, teacher_outputs, alpha=0.9, T=4.0):
    soft = nn.KLDivLoss(reduction="batchmean")(F.log_softmax(outputs / T, dim=1), F.softmax(teacher_outputs / T, dim=1))
    return soft * (alpha * T * T) + F.cross_entropy(outputs, labels) * (1.0 - alpha)


teacher_model = net(32)
optimizer = torch.optim.Adam(teacher_model.parameters(), lr=2e-3)
for _ in range(6):
    for data, target in train_dl:
        optimizer.zero_grad()
        F.cross_entropy(teacher_model(data), target).backward()
        optimizer.step()
teacher_model.eval()

model = net(4)
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
teacher_outputs = fetch_teacher_outputs(teacher_model, train_dl)
with nv.watch(model, optimizer) as watch:
    for epoch in range(12):
        model.train()
        for i, (train_batch, labels_batch) in enumerate(train_dl):
            output_batch = model(train_batch)
            output_teacher_batch = teacher_outputs[i]  # bug
            # fix: output_teacher_batch = teacher_model(train_batch).detach()
            loss = loss_fn_kd(output_batch, labels_batch, output_teacher_batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)

model.eval()
with torch.no_grad():
    score = -float(F.cross_entropy(model(images[1400:]), labels[1400:]))
learned = score > -0.8
