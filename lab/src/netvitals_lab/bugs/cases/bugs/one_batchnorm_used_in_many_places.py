"""One BatchNorm layer is reused after every convolution: its running statistics mix all of them, and eval mode fails.

source: https://discuss.pytorch.org/t/performance-highly-degraded-when-eval-is-activated-in-the-test-phase/3323
catalogue: pytorch-forum
field: image classification
cause: shared-module-by-mistake, batchnorm-train-eval
observable: yes
"""
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import netvitals as nv


class Net(nn.Module):
    def __init__(self, c=20):
        super().__init__()
        self.conv1 = nn.Conv2d(1, c, 3, padding=1)
        self.conv2 = nn.Conv2d(c, c, 3, padding=1)
        self.conv3 = nn.Conv2d(c, c, 3, padding=1)
        self.bn = nn.BatchNorm2d(c)  # bug
        # fix: self.bn1, self.bn2, self.bn3 = nn.BatchNorm2d(c), nn.BatchNorm2d(c), nn.BatchNorm2d(c)
        self.fc = nn.Linear(c, 10)

    def forward(self, x):
        x = F.relu(self.bn(self.conv1(x)))  # bug
        x = F.relu(self.bn(self.conv2(F.max_pool2d(x, 2))))  # bug
        x = F.relu(self.bn(self.conv3(x)))  # bug
        # fix: x = F.relu(self.bn1(self.conv1(x)))
        # fix: x = F.relu(self.bn2(self.conv2(F.max_pool2d(x, 2))))
        # fix: x = F.relu(self.bn3(self.conv3(x)))
        return self.fc(x.mean((2, 3)))


digits = load_digits()
x = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
y = torch.tensor(digits.target)
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
with nv.watch(net, optimizer) as watch:
    for epoch in range(6):
        net.train()
        for i in torch.randperm(1400).split(50):
            optimizer.zero_grad()
            loss = F.cross_entropy(net(x[i]), y[i])
            loss.backward()
            optimizer.step()
            watch.step(loss)
        net.eval()
        with torch.no_grad():
            score = float((net(x[1400:]).argmax(1) == y[1400:]).float().mean())

learned = score > 0.75
