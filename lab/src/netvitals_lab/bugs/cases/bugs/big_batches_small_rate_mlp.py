"""A wide MLP on digits with huge batches, few updates and a timid learning rate: accuracy crawls.

source: https://stackoverflow.com/questions/44164749
catalogue: deepfd
field: image classification
cause: lr-too-low
observable: yes
"""
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import netvitals as nv

data = load_digits()
features = torch.tensor(data.data / 16.0).float()
target = torch.tensor(data.target).long()
loader = DataLoader(TensorDataset(features, target), batch_size=600, shuffle=True)

model = nn.Sequential(
    nn.Linear(64, 400), nn.ReLU(), nn.Dropout(0.1),
    nn.Linear(400, 200), nn.ReLU(), nn.Dropout(0.1),
    nn.Linear(200, 10),
)
lr = 0.0005  # bug
# fix: lr = 0.05
optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, nesterov=True)
criterion = nn.CrossEntropyLoss()

with nv.watch(model, optimizer) as watch:
    model.train()
    for epoch in range(40):
        for images, labels in loader:
            optimizer.zero_grad()
            loss = criterion(model(images), labels)
            loss.backward()
            optimizer.step()
            watch.step(loss)

model.eval()
with torch.no_grad():
    score = float((model(features).argmax(1) == target).float().mean())
learned = score > 0.93
