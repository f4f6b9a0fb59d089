"""Trained on white digits on black, tested on own scans that are black on white: the complement was forgotten.

source: https://stackoverflow.com/questions/40179209
catalogue: humbatova
field: image classification
cause: train-test-mismatch
observable: no, the scans are only seen after training ended
"""
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import netvitals as nv

digits = load_digits()
white_on_black = torch.tensor(digits.images / 16, dtype=torch.float32).unsqueeze(1)
number = torch.tensor(digits.target)
mix = torch.randperm(len(number))
x_train, y_train = white_on_black[mix[:1500]], number[mix[:1500]]
my_scans, my_numbers = 1 - white_on_black[mix[1500:]], number[mix[1500:]]


def conv_relu_pool(c_in, c_out):
    return nn.Sequential(nn.Conv2d(c_in, c_out, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))


net = nn.Sequential(conv_relu_pool(1, 16), conv_relu_pool(16, 32), nn.Flatten(), nn.Linear(128, 10))
optimizer = torch.optim.Adam(net.parameters(), lr=0.003)
with nv.watch(net, optimizer) as watch:
    for epoch in range(6):
        for take in torch.randperm(1500).split(50):
            optimizer.zero_grad()
            loss = F.cross_entropy(net(x_train[take]), y_train[take])
            loss.backward()
            optimizer.step()
            watch.step(loss)

# fix: my_scans = 1 - my_scans
with torch.no_grad():
    score = float((net(my_scans).argmax(1) == my_numbers).float().mean())
learned = score > 0.9
