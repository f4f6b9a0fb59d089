"""Cross-entropy written by hand as the log of a softmax: the loss becomes NaN when a probability underflows.

source: https://github.com/tensorflow/models/issues/166 (gDefects4DL models166)
catalogue: gdefects4dl
field: image classification
cause: bad-values
observable: yes
"""
import torch
from sklearn.datasets import load_digits
from torch import nn

import netvitals as nv

digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) * 16
one_hot = torch.eye(10)[torch.tensor(digits.target)]


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 32, 3, padding=1)
        self.hidden = nn.Linear(32 * 16, 128)
        self.softmax_linear = nn.Linear(128, 10)

    def forward(self, x):
        x = nn.functional.max_pool2d(torch.relu(self.conv(x)), 2)
        return self.softmax_linear(torch.relu(self.hidden(x.flatten(1))))


def inference_loss(logits, labels):
    prob = torch.softmax(logits, 1)
    return -(labels * torch.log(prob)).sum(1).mean()  # bug
    # fix: return nn.functional.cross_entropy(logits, labels)


model = ConvNet()
optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
with nv.watch(model, optimizer) as watch:
    for epoch in range(8):
        order = torch.randperm(1500)
        for start in range(0, 1500, 50):
            batch = order[start:start + 50]
            loss = inference_loss(model(images[batch]), one_hot[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)

guess = model(images[1500:]).argmax(1)
score = float((guess == one_hot[1500:].argmax(1)).float().mean())
learned = score > 0.85
