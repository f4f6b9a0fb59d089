"""The optimizer is created first; then all convolutions are replaced by new ones, which it does not know.

source: https://github.com/hustzxd/EfficientPyTorch/issues/1
catalogue: github
field: quantised image classification
cause: stale-parameters
observable: yes
"""
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import netvitals as nv

digits = load_digits()
x = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
y = torch.tensor(digits.target)


class WeightNormConv(nn.Conv2d):
    """Standardises the filters before use, so that they can be quantised."""

    def forward(self, x):
        w = self.weight - self.weight.mean((1, 2, 3), keepdim=True)
        w = w / (w.std((1, 2, 3), keepdim=True) + 1e-5) / (w[0].numel() ** 0.5)
        return F.conv2d(x, w, self.bias, self.stride, self.padding)


def replace_conv_recursively(module):
    for name, child in module.named_children():
        if type(child) is nn.Conv2d:
            setattr(module, name, WeightNormConv(child.in_channels, child.out_channels, child.kernel_size, child.stride, child.padding))
        else:
            replace_conv_recursively(child)


def stage(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))


model = nn.Sequential(stage(1, 16), stage(16, 32), stage(32, 32), nn.Flatten(), nn.Linear(32, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)  # bug
replace_conv_recursively(model)
# fix: optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
with nv.watch(model, optimizer) as watch:
    for epoch in range(6):
        for i in torch.randperm(len(x)).split(64):
            loss = F.cross_entropy(model(x[i]), y[i])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)

score = float((model(x).argmax(1) == y).float().mean())
learned = score > 0.93
