"""All weights of a LeNet are initialised with the same constant, so all filters of a layer stay equal.

source: https://github.com/neuralint/neuralint (example TF_lenet_constant_init)
catalogue: neuralint
field: image classification
cause: init-symmetric
observable: yes
"""
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import netvitals as nv

digits = load_digits()
X = torch.tensor(digits.images[:, None] / 16, dtype=torch.float32)
Y = torch.tensor(digits.target)


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 16, 3, padding=1)
        self.fc1 = nn.Linear(64, 48)
        self.fc2 = nn.Linear(48, 10)
        for weight in (self.conv1.weight, self.conv2.weight, self.fc1.weight):
            nn.init.constant_(weight, 0.05)  # bug
            # fix: nn.init.kaiming_normal_(weight)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


lenet = LeNet()
optimizer = torch.optim.SGD(lenet.parameters(), lr=0.05, momentum=0.9)
with nv.watch(lenet, optimizer) as watch:
    for epoch in range(6):
        for i in torch.randperm(1500).split(32):
            optimizer.zero_grad()
            loss = F.cross_entropy(lenet(X[i]), Y[i])
            loss.backward()
            optimizer.step()
            watch.step(loss)

with torch.no_grad():
    score = float((lenet(X[1500:]).argmax(1) == Y[1500:]).float().mean())
learned = score > 0.85
