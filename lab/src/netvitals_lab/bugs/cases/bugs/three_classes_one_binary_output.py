"""Three kinds of pictures (labels 0, 1, 2) but one output neuron with binary cross-entropy.

source: https://stackoverflow.com/questions/50079585
catalogue: deepfd
field: image classification
cause: loss-mismatch
observable: yes
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

import netvitals as nv


def pictures(n, size=16):
    """Horizontal stripes, vertical stripes and checkerboards with noise."""
    y = torch.randint(0, 3, (n,))
    grid = torch.arange(size).float() * 1.6 + torch.rand(n, 1) * 6
    rows, cols = torch.sin(grid)[:, :, None], torch.sin(grid)[:, None, :]
    x = torch.where((y == 0)[:, None, None], rows, torch.where((y == 1)[:, None, None], cols, rows * cols))
    x = x.expand(n, size, size) + 0.4 * torch.randn(n, size, size)
    return x.unsqueeze(1).repeat(1, 3, 1, 1) + 0.1 * torch.randn(n, 3, 1, 1), y


x_train, y_train = pictures(1200)
x_val, y_val = pictures(300)
model = nn.Sequential(
    nn.Conv2d(3, 16, 3), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(16, 16, 3), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.2),
    nn.Linear(32, 1),  # bug
    # fix: nn.Linear(32, 3),
)
optimizer = torch.optim.RMSprop(model.parameters(), lr=0.001)
with nv.watch(model, optimizer) as watch:
    for epoch in range(5):
        for batch in torch.randperm(len(x_train)).split(16):
            optimizer.zero_grad()
            out = model(x_train[batch])
            loss = F.binary_cross_entropy_with_logits(out.squeeze(1), y_train[batch].float())  # bug
            # fix: loss = F.cross_entropy(out, y_train[batch])
            loss.backward()
            optimizer.step()
            watch.step(loss)

model.eval()
with torch.no_grad():
    out = model(x_val)
    predicted = out.argmax(1) if out.shape[1] > 1 else (torch.sigmoid(out) > 0.5).long().squeeze(1)
    score = float((predicted == y_val).float().mean())
learned = score > 0.85
