"""A convolutional network is stopped after two epochs while its loss is still falling steeply.

source: https://stackoverflow.com/questions/37213388
catalogue: deepfd
field: image classification
cause: too-few-epochs NEW
observable: yes
"""
import torch
import torch.nn as nn
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

import netvitals as nv

digits = load_digits()
x = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
y = torch.tensor(digits.target)
train = DataLoader(TensorDataset(x[:1400], y[:1400]), batch_size=28, shuffle=True)

model = nn.Sequential(
    nn.Conv2d(1, 8, 3), nn.ReLU(),
    nn.Conv2d(8, 8, 3), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 10),
)
sgd = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.8)
nb_epochs = 2  # bug
# fix: nb_epochs = 16
with nv.watch(model, sgd) as watch:
    for epoch in range(nb_epochs):
        for images, labels in train:
            sgd.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            sgd.step()
            watch.step(loss)

with torch.no_grad():
    score = float((model(x[1400:]).argmax(1) == y[1400:]).float().mean())
learned = score > 0.75
