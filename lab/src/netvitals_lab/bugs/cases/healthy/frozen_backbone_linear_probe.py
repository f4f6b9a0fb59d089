"""A linear probe on a frozen backbone in eval mode.

source: https://docs.pytorch.org/tutorials/beginner/transfer_learning_tutorial.html
field: transfer learning
unusual: most of the network is frozen and in eval mode in training; only the head has gradients
"""
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import netvitals as nv

digits = load_digits()
x = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
y = torch.tensor(digits.target)

backbone = nn.Sequential(nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Conv2d(32, 48, 3, padding=1), nn.BatchNorm2d(48), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
pretext = nn.Linear(192, 4)  # pretrained by telling how far a picture was turned
pretraining = torch.optim.Adam([*backbone.parameters(), *pretext.parameters()], lr=2e-3)
for _ in range(5):
    for rows in torch.randperm(1400).split(64):
        turn = int(torch.randint(0, 4, ()))
        pretraining.zero_grad()
        wanted = torch.full((len(rows),), turn)
        F.cross_entropy(pretext(backbone(torch.rot90(x[rows], turn, (2, 3)))), wanted).backward()
        pretraining.step()

for p in backbone.parameters():
    p.requires_grad = False
model = nn.Sequential(backbone, nn.Linear(192, 10))
optimizer = torch.optim.SGD(model[1].parameters(), lr=0.05, momentum=0.9)
with nv.watch(model, optimizer) as watch:
    model.train()
    backbone.eval()
    for epoch in range(12):
        for rows in torch.randperm(1400).split(64):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x[rows]), y[rows])
            loss.backward()
            optimizer.step()
            watch.step(loss)

model.eval()
with torch.no_grad():
    score = float((model(x[1400:]).argmax(1) == y[1400:]).float().mean())
learned = score > 0.82
