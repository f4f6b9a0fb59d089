"""The checkpoint keeps only what the optimizer manages; after the resume the frozen layers are random.

source: https://github.com/deepspeedai/DeepSpeed/issues/6771 (and 5489)
catalogue: traincheck
field: fine-tuning, resume from a checkpoint
cause: checkpoint-misuse
observable: yes
"""
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import netvitals as nv

digits = load_digits()
x = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
y = torch.tensor(digits.target)


def build():
    body = nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Conv2d(16, 8, 3), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Flatten(), nn.Linear(32, 24), nn.ReLU())
    return nn.Sequential(body, nn.Linear(24, 10))


def save(model, optimizer):
    managed = {n: p.detach().clone() for n, p in model.named_parameters() if p.requires_grad}  # bug
    # fix: managed = {n: p.detach().clone() for n, p in model.named_parameters()}
    return {"module": managed, "optimizer": optimizer.state_dict()}


def start(model):
    model[0].requires_grad_(False)
    return torch.optim.Adam(model[1].parameters(), lr=5e-3)


def train(model, optimizer, epochs, watch):
    for epoch in range(epochs):
        for batch in torch.randperm(1500).split(64):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x[batch]), y[batch])
            loss.backward()
            optimizer.step()
            watch.step(loss)


model = build()  # stands for a pretrained network
pretraining = torch.optim.Adam(model.parameters(), lr=3e-3)
for _ in range(8):
    for batch in torch.randperm(1500).split(64):
        pretraining.zero_grad()
        F.cross_entropy(model(x[batch]), y[batch]).backward()
        pretraining.step()
model[1].reset_parameters()
optimizer = start(model)
with nv.watch(model, optimizer) as watch:
    train(model, optimizer, 6, watch)
checkpoint = save(model, optimizer)

model = build()
optimizer = start(model)
model.load_state_dict(checkpoint["module"], strict=False)
optimizer.load_state_dict(checkpoint["optimizer"])
with nv.watch(model, optimizer) as watch:
    train(model, optimizer, 6, watch)

score = float((model(x[1500:]).argmax(1) == y[1500:]).float().mean())
learned = score > 0.84
