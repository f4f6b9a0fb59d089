"""Pixels of 0..255 go in unscaled, and the ten scores pass a sigmoid before the cross-entropy.

source: https://stackoverflow.com/questions/55328966
catalogue: deepfd
field: image classification
cause: inputs-not-scaled, output-activation
observable: yes
"""
import numpy as np
import torch
import torch.nn as nn
from sklearn.datasets import load_digits

import netvitals as nv

digits = load_digits()
order = np.random.permutation(len(digits.data))
pixels = (digits.data[order] / 16 * 255).round()
labels = digits.target[order]
x_train, y_train = pixels[:1400], labels[:1400]
x_test, y_test = pixels[1400:], labels[1400:]
# fix: x_train, x_test = x_train / 255, x_test / 255
x_train, x_test = torch.FloatTensor(x_train), torch.FloatTensor(x_test)
y_train, y_test = torch.LongTensor(y_train), torch.LongTensor(y_test)

h1 = 50
model = nn.Sequential()
model.append(nn.Linear(64, h1))
model.append(nn.ReLU())
model.append(nn.Linear(h1, 10))
model.append(nn.Sigmoid())  # bug
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loss_fn = nn.CrossEntropyLoss()

with nv.watch(model, optimizer) as watch:
    for epoch in range(12):
        for i in range(0, len(x_train), 32):
            loss = loss_fn(model(x_train[i:i + 32]), y_train[i:i + 32])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)

with torch.no_grad():
    score = float((model(x_test).argmax(1) == y_test).float().mean())
learned = score > 0.88
