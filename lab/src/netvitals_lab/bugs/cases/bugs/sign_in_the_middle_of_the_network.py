"""A step function (torch.sign) between two layers: everything before it gets a gradient of exactly zero.

source: https://huggingface.co/datasets/nvidia/Nemotron-CC-Math-v1 (PyTorch forum, "Circumventing an Indifferentiability Problem", 4 April 2019)
catalogue: pytorch-forum
field: hashing (binary codes)
cause: detached-graph
observable: yes
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

import netvitals as nv

digits = load_digits()
X = torch.tensor(digits.data, dtype=torch.float32) / 8 - 1
Y = torch.tensor(digits.target)


class HashNet(nn.Module):
    def __init__(self, bits=6):
        super().__init__()
        self.fc1 = nn.Linear(64, 64)
        self.fc2 = nn.Linear(64, bits)
        self.fc3 = nn.Linear(bits, 10)

    def forward(self, x):
        code = self.fc2(F.relu(self.fc1(x)))
        code = torch.sign(code)  # bug
        # fix: code = torch.sign(code).detach() + torch.tanh(code) - torch.tanh(code).detach()
        return self.fc3(code)


net = HashNet()
optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
with nv.watch(net, optimizer) as watch:
    for epoch in range(15):
        for batch in torch.randperm(len(X)).split(64):
            out = net(X[batch])
            loss = F.cross_entropy(out, Y[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)

score = float((net(X).argmax(1) == Y).float().mean())
learned = score > 0.8
