"""CNN and LSTM for clips: features are (batch, time, features), but the LSTM was built without batch_first.

source: https://github.com/HHTseng/video-classification/issues/42
catalogue: github
field: video classification
cause: layout-mixed
observable: yes
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv


def clips(n):
    """A bright square that moves in one of four directions around a torus."""
    y = torch.randint(0, 4, (n,))
    step = torch.tensor([[1, 0], [-1, 0], [0, 1], [0, -1]])[y]
    start = torch.randint(0, 8, (n, 2))
    x = 0.1 * torch.randn(n, 5, 1, 8, 8)
    for t in range(5):
        place = start + t * step
        for dy in (0, 1):
            for dx in (0, 1):
                row, column = (place[:, 0] + dy) % 8, (place[:, 1] + dx) % 8
                x[torch.arange(n), t, 0, row, column] = 1.0
    return x, y


class EncoderCNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16 * 16, 48), nn.ReLU())

    def forward(self, x):
        return torch.stack([self.conv(x[:, t]) for t in range(x.size(1))], dim=0).transpose(0, 1)


class DecoderRNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.LSTM = nn.LSTM(48, 32)  # bug
        # fix: self.LSTM = nn.LSTM(48, 32, batch_first=True)
        self.fc = nn.Linear(32, 4)

    def forward(self, x_RNN):
        RNN_out, _ = self.LSTM(x_RNN)
        return self.fc(RNN_out[:, -1, :])  # the last time step


encoder, decoder = EncoderCNN(), DecoderRNN()
x_train, y_train = clips(800)
params = list(encoder.parameters()) + list(decoder.parameters())
optimizer = torch.optim.Adam(params, lr=4e-3)
with nv.watch({"encoder": encoder, "decoder": decoder}, optimizer) as watch:
    for epoch in range(12):
        for i in torch.randperm(800).split(40):
            optimizer.zero_grad()
            loss = F.cross_entropy(decoder(encoder(x_train[i])), y_train[i])
            loss.backward()
            optimizer.step()
            watch.step(loss)

x, y = clips(300)
score = float((decoder(encoder(x)).argmax(1) == y).float().mean())
learned = score > 0.65
