"""Reading lines of three digits without segmentation: convolution over columns and CTC with the blank as last class.

source: https://www.cs.toronto.edu/~graves/icml_2006.pdf
field: handwriting recognition (CTC)
unusual: long phase in which only blanks are predicted; most frames never predict a class; inputs to the loss are (time, batch, classes)
"""
import torch
from sklearn.datasets import load_digits
from torch import nn

import netvitals as nv

digits = load_digits()
images, classes = torch.tensor(digits.images, dtype=torch.float32) / 16, torch.tensor(digits.target)


def lines(n):
    i = torch.randint(0, len(images), (n, 3))
    return images[i].permute(0, 2, 1, 3).reshape(n, 8, 24), classes[i]


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(8, 48, 5, padding=2), nn.ReLU(), nn.Conv1d(48, 64, 5, stride=2, padding=2), nn.BatchNorm1d(64), nn.ReLU(),
            nn.Conv1d(64, 64, 3, padding=1), nn.ReLU(), nn.Conv1d(64, 11, 1),
        )

    def forward(self, x):
        return self.net(x).permute(2, 0, 1).log_softmax(2)


model, criterion = Reader(), nn.CTCLoss(blank=10, zero_infinity=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
with nv.watch(model, optimizer) as watch:
    for step in range(300):
        x, y = lines(48)
        loss = criterion(model(x), y, torch.full((48,), 12), torch.full((48,), 3))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        watch.step(loss)

model.eval()
x, y = lines(300)
paths = model(x).argmax(2).T
read = [[int(c) for c in torch.unique_consecutive(p) if c != 10] for p in paths]
score = sum(r == t for r, t in zip(read, y.tolist())) / 300
learned = score > 0.6
