"""A stateful recurrent network carries its state from batch to batch, but the batches are shuffled.

source: https://github.com/keras-team/keras/issues/1820
catalogue: github
field: forecasting (stateful RNN)
cause: state-carried-over NEW, layout-mixed
observable: yes
"""
import torch
from torch import nn

import netvitals as nv

STREAMS, CHUNK, CHUNKS = 16, 6, 60


def series():
    """Each stream beeps every k-th step; k has to be remembered over many chunks."""
    period = torch.randint(7, 12, (STREAMS, 1))
    t = torch.arange(CHUNK * CHUNKS + 1) + torch.randint(0, 12, (STREAMS, 1))
    return (t % period == 0).float().unsqueeze(2)


class StatefulGRU(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.gru, self.out = nn.GRU(1, hidden, batch_first=True), nn.Linear(hidden, 1)
        self.reset_states()

    def reset_states(self):
        self.state = None

    def forward(self, x):
        h, state = self.gru(x, self.state)
        self.state = state.detach()
        return self.out(h)


model = StatefulGRU()
criterion = nn.BCEWithLogitsLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
with nv.watch(model, optimizer) as watch:
    for epoch in range(25):
        y = series()
        model.reset_states()
        order = torch.randperm(CHUNKS).tolist()  # bug
        # fix: order = range(CHUNKS)
        for c in order:
            x = y[:, c * CHUNK : (c + 1) * CHUNK]
            loss = criterion(model(x), y[:, c * CHUNK + 1 : (c + 1) * CHUNK + 1])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            watch.step(loss)

model.reset_states()
y = series()
with torch.no_grad():
    guess = torch.cat([model(y[:, c * CHUNK : (c + 1) * CHUNK]) for c in range(CHUNKS)], 1)
late = slice(60, None)
score = 1 - float(criterion(guess[:, late], y[:, 1:][:, late])) / 0.34
learned = score > 0.4
