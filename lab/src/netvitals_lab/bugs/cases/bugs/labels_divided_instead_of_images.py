"""The line that should scale the test images scales the training labels: every label becomes class 0.

source: https://stackoverflow.com/questions/59325381
catalogue: deepfd
field: image classification
cause: labels-wrong
observable: yes
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import netvitals as nv

digits = load_digits()
x_train, x_test, y_train, y_test = train_test_split(digits.images * 15.9375, digits.target, test_size=0.2)
x_train = x_train / 255
y_train = y_train / 255  # bug
# fix: x_test = x_test / 255

x_train = torch.tensor(x_train, dtype=torch.float).unsqueeze(1)
x_test = torch.tensor(x_test, dtype=torch.float).unsqueeze(1)
y_train, y_test = torch.tensor(y_train).long(), torch.tensor(y_test).long()


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 16, 3, padding=1)
        self.fc1 = nn.Linear(16 * 4 * 4, 64)
        self.fc2 = nn.Linear(64, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv(x)), 2)
        x = F.relu(self.fc1(x.flatten(1)))
        return self.fc2(x)


cnn = ConvNet()
optimizer = torch.optim.Adam(cnn.parameters(), lr=0.002)
with nv.watch(cnn, optimizer) as watch:
    for epoch in range(8):
        for rows in torch.randperm(len(x_train)).split(32):
            optimizer.zero_grad()
            loss = F.cross_entropy(cnn(x_train[rows]), y_train[rows])
            loss.backward()
            optimizer.step()
            watch.step(loss)

with torch.no_grad():
    score = float((cnn(x_test).argmax(1) == y_test).float().mean())
learned = score > 0.92
