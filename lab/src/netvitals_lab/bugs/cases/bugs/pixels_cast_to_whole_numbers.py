"""Scaled pixels are stored as integers, so that every pixel becomes 0 before the network sees it.

source: https://github.com/pyro-ppl/pyro/commit/204f9e06 (taxonomy leaf: wrong preprocessing, invalid datatype used)
catalogue: humbatova
field: image classification
cause: inputs-lost
observable: yes
"""
import torch
import torch.nn as nn
from sklearn.datasets import load_digits

import netvitals as nv

digits = load_digits()
grey = (digits.images * 15).astype("uint8")  # 0..240, as read from image files
images = torch.tensor(grey / 255, dtype=torch.long)  # bug
# fix: images = torch.tensor(grey / 255, dtype=torch.float)
labels = torch.tensor(digits.target, dtype=torch.long)
images = images.float().unsqueeze(1)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Sequential(nn.Conv2d(1, 16, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(144, 40), nn.ReLU())
        self.decide = nn.Linear(40, 10)

    def forward(self, image):
        return self.decide(self.encode(image))


model = Classifier()
optimizer = torch.optim.RMSprop(model.parameters(), lr=0.002)
cross_entropy = nn.CrossEntropyLoss()
with nv.watch(model, optimizer) as watch:
    for epoch in range(6):
        order = torch.randperm(1500)
        for k in range(0, 1500, 30):
            batch = order[k:k + 30]
            loss = cross_entropy(model(images[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)

with torch.no_grad():
    score = float((model(images[1500:]).argmax(1) == labels[1500:]).float().mean())
learned = score > 0.75
