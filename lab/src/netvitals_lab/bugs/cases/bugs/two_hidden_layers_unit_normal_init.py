"""Adding layers with weights from truncated_normal(stddev=1) turned the loss of the notMNIST exercise into NaN.

source: https://stackoverflow.com/questions/36565430
catalogue: humbatova
field: image classification
cause: init-too-large
observable: yes
"""
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits

import netvitals as nv

digits = load_digits()
dataset = torch.tensor(digits.data / 16.0 - 0.5, dtype=torch.float32)
labels = torch.tensor(digits.target)
perm = torch.randperm(len(dataset))
dataset, labels = dataset[perm], labels[perm]


class ThreeLayers(torch.nn.Module):
    def __init__(self, sizes=(64, 256, 128, 10)):
        super().__init__()
        self.weights = torch.nn.ParameterList()
        self.biases = torch.nn.ParameterList()
        for fan_in, fan_out in zip(sizes, sizes[1:]):
            w = torch.nn.init.trunc_normal_(torch.empty(fan_in, fan_out), std=1.0)  # bug
            # fix: w = torch.nn.init.trunc_normal_(torch.empty(fan_in, fan_out), std=(2 / fan_in) ** 0.5)
            self.weights.append(w)
            self.biases.append(torch.zeros(fan_out))

    def forward(self, x):
        for i, (w, b) in enumerate(zip(self.weights, self.biases)):
            x = x @ w + b
            if i < 2:
                x = F.relu(x)
        return x


model = ThreeLayers()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with nv.watch(model, optimizer) as watch:
    for step in range(400):
        offset = (step * 64) % (1500 - 64)
        batch, target = dataset[offset:offset + 64], labels[offset:offset + 64]
        loss = F.cross_entropy(model(batch), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

with torch.no_grad():
    score = float((model(dataset[1500:]).argmax(1) == labels[1500:]).float().mean())
learned = score > 0.92
