"""An LSTM tutorial that adds a softmax layer in front of CrossEntropyLoss.

source: https://github.com/vinhkhuc/PyTorch-Mini-Tutorials/issues/1 (gDefects4DL pytorch-mini-tutorials1)
catalogue: gdefects4dl
field: recurrent classification
cause: double-softmax
observable: yes
"""
import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

import netvitals as nv


class LSTMNet(nn.Module):
    def __init__(self, input_dim, hidden_dim, output_dim):
        super().__init__()
        self.lstm = nn.LSTM(input_dim, hidden_dim)
        self.linear = nn.Linear(hidden_dim, output_dim)
        self.softmax = nn.Softmax(dim=1)

    def forward(self, x):
        fx, _ = self.lstm(x)
        out = self.linear(fx[-1])
        out = self.softmax(out)  # bug
        return out


def train(model, loss, optimizer, x_val, y_val, watch):
    x = torch.from_numpy(x_val)
    y = torch.from_numpy(y_val)
    optimizer.zero_grad()
    fx = model(x)
    output = loss(fx, y)
    output.backward()
    optimizer.step()
    watch.step(output)
    return output.item()


def predict(model, x_val):
    with torch.no_grad():
        return model(torch.from_numpy(x_val)).numpy().argmax(axis=1)


digits = load_digits()
tr_x, tr_y = digits.images[:1500].astype(np.float32) / 16, digits.target[:1500]
te_x, te_y = digits.images[1500:].astype(np.float32) / 16, digits.target[1500:]
tr_x, te_x = np.swapaxes(tr_x, 0, 1), np.swapaxes(te_x, 0, 1)

model = LSTMNet(8, 64, 10)
loss = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
batch_size = 50
with nv.watch(model, optimizer) as watch:
    for i in range(15):
        cost = 0.0
        for k in range(1500 // batch_size):
            start, end = k * batch_size, (k + 1) * batch_size
            cost += train(model, loss, optimizer, tr_x[:, start:end], tr_y[start:end], watch)

score = float(np.mean(predict(model, te_x) == te_y))
learned = score > 0.8
