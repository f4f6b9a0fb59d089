"""The images are shuffled with one permutation and the labels keep their old order.

source: Humbatova et al., Taxonomy of Real Faults (ICSE 2020), leaf "wrong labels for training data"
catalogue: humbatova
field: image classification
cause: labels-wrong
observable: yes
"""
import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import netvitals as nv

images, labels = load_digits(return_X_y=True)
images = (images / 16).astype("float32")
order = np.random.permutation(len(images))
images = images[order]
# fix: labels = labels[order]
split = 1400
train_set = TensorDataset(torch.from_numpy(images[:split]).view(-1, 1, 8, 8), torch.from_numpy(labels[:split]))
test_x = torch.from_numpy(images[split:]).view(-1, 1, 8, 8)
test_y = torch.from_numpy(labels[split:])

cnn = nn.Sequential(
    nn.Conv2d(1, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(24, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU(), nn.AdaptiveAvgPool2d(2),
    nn.Flatten(), nn.Linear(96, 10),
)
optimizer = torch.optim.AdamW(cnn.parameters(), lr=0.003)
criterion = nn.CrossEntropyLoss()
with nv.watch(cnn, optimizer) as watch:
    for epoch in range(5):
        cnn.train()
        for xb, yb in DataLoader(train_set, batch_size=32, shuffle=True):
            optimizer.zero_grad()
            loss = criterion(cnn(xb), yb)
            loss.backward()
            optimizer.step()
            watch.step(loss)

cnn.eval()
with torch.no_grad():
    score = float((cnn(test_x).argmax(1) == test_y).float().mean())
learned = score > 0.93
