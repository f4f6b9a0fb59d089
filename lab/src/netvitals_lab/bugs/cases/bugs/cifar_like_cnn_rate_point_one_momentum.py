"""CIFAR-style CNN with SGD lr 0.1, momentum 0.9 and Nesterov: stuck at chance from the first epoch.

source: https://stackoverflow.com/questions/37624102
catalogue: deepfd
field: image classification
cause: lr-too-high
observable: yes
"""
import torch
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset

import netvitals as nv

prototypes = torch.rand(10, 3, 4, 4)
labels = torch.randint(0, 10, (1600,))
big = nn.functional.interpolate(prototypes, scale_factor=4, mode="bilinear")
data = (big[labels] + 0.25 * torch.randn(1600, 3, 16, 16)).clamp(0, 1)
train = DataLoader(TensorDataset(data[:1280], labels[:1280]), batch_size=32, shuffle=True)


def block(c_in, c_out):
    return nn.Sequential(
        nn.Conv2d(c_in, c_out, 3, padding=1), nn.ReLU(),
        nn.Conv2d(c_out, c_out, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(2), nn.Dropout(0.1),
    )


model = nn.Sequential(block(3, 16), block(16, 32), nn.Flatten(), nn.Linear(512, 128), nn.ReLU(), nn.Linear(128, 10))
for m in model.modules():
    if isinstance(m, (nn.Conv2d, nn.Linear)):
        nn.init.kaiming_uniform_(m.weight, nonlinearity="relu")
        nn.init.zeros_(m.bias)
sgd = optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-6)  # bug
# fix: sgd = optim.SGD(model.parameters(), lr=0.01, momentum=0.9, nesterov=True, weight_decay=1e-6)
criterion = nn.CrossEntropyLoss()

with nv.watch(model, sgd) as watch:
    for epoch in range(4):
        model.train()
        for images, target in train:
            sgd.zero_grad()
            loss = criterion(model(images), target)
            loss.backward()
            sgd.step()
            watch.step(loss)

model.eval()
with torch.no_grad():
    score = float((model(data[1280:]).argmax(1) == labels[1280:]).float().mean())
learned = score > 0.85
