"""CTC loss that goes negative: nn.CTCLoss gets the raw outputs of the last layer instead of log-probabilities.

source: https://discuss.pytorch.org/t/negative-ctc-loss/79548
catalogue: pytorch-forum
field: handwriting recognition (CTC)
cause: missing-log-softmax
observable: yes
"""
import torch
import torch.nn as nn
from sklearn.datasets import load_digits

import netvitals as nv

digits = load_digits()
images, classes = torch.tensor(digits.images, dtype=torch.float32) / 16, torch.tensor(digits.target)


def number(n):
    """Pictures of three digits in a row, read column by column."""
    i = torch.randint(0, len(images), (n, 3))
    return images[i].permute(0, 2, 1, 3).reshape(n, 1, 8, 24), classes[i]


class CRNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.cnn = nn.Sequential(nn.Conv2d(1, 24, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(24, 48, 3, padding=1), nn.ReLU())
        self.rnn = nn.LSTM(48 * 4, 48, bidirectional=True)
        self.fc = nn.Linear(96, 11)

    def forward(self, x):
        h = self.cnn(x)  # (batch, channel, 4, 12)
        h = h.permute(3, 0, 1, 2).flatten(2)
        h, _ = self.rnn(h)
        return self.fc(h)  # bug
        # fix: return self.fc(h).log_softmax(2)


crnn = CRNN()
criterion = nn.CTCLoss(blank=10)
optimizer = torch.optim.Adam(crnn.parameters(), lr=3e-3)
with nv.watch(crnn, optimizer) as watch:
    for it in range(290):
        x, y = number(32)
        preds = crnn(x)
        loss = criterion(preds, y, torch.full((32,), 12), torch.full((32,), 3))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(crnn.parameters(), 5.0)
        optimizer.step()
        watch.step(loss)

x, y = number(200)
best = crnn(x).argmax(2).T
read = [[int(c) for c in torch.unique_consecutive(row) if c != 10] for row in best]
score = sum(a == b.tolist() for a, b in zip(read, y)) / 200
learned = score > 0.5
