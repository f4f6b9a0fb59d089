"""Binary CNN with SGD: accuracy is fine for a while, then the network jumps to a constant 0.5 and never comes back.

source: https://datascience.stackexchange.com/questions/28481/reason-for-having-both-low-loss-and-same-predicted-class
catalogue: stackoverflow
field: image classification
cause: lr-too-high
observable: yes
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

import netvitals as nv


def stripes(n):
    """Diagonal stripes that lean to the left or to the right, in noise."""
    y = torch.randint(0, 2, (n,))
    r, c = torch.meshgrid(torch.arange(12.0), torch.arange(12.0), indexing="ij")
    lean = (2 * y - 1)[:, None, None]
    phase = torch.rand(n, 1, 1) * 6.28
    x = torch.sin(1.2 * (r + lean * c) + phase) + 0.7 * torch.randn(n, 12, 12)
    return x.unsqueeze(1), y.float()


class CNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 16, 3), nn.Conv2d(16, 16, 3)
        self.fc1, self.fc2 = nn.Linear(16 * 16, 32), nn.Linear(32, 1)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1)))).squeeze(1)


cnn = CNN()
lr = 1.5  # bug
# fix: lr = 0.05
optimizer = torch.optim.SGD(cnn.parameters(), lr=lr, momentum=0.9)
x_train, y_train = stripes(1000)
with nv.watch(cnn, optimizer) as watch:
    for epoch in range(10):
        for i in torch.randperm(1000).split(50):
            optimizer.zero_grad()
            loss = F.binary_cross_entropy_with_logits(cnn(x_train[i]), y_train[i])
            loss.backward()
            optimizer.step()
            watch.step(loss)

x, y = stripes(400)
score = float(((cnn(x) > 0).float() == y).float().mean())
learned = score > 0.9
