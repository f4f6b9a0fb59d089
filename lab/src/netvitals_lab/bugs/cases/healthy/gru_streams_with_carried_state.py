"""Truncated back-propagation: the GRU's state is carried over chunks of a stream, detached each time.

source: https://github.com/pytorch/examples/tree/main/word_language_model (repackage_hidden)
field: sequence labelling
unusual: data in order (not shuffled), hidden state is detached between steps, batches are chunks of the same streams
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv

STREAMS, TOTAL, CHUNK = 24, 2250, 15
pulses = torch.sign(torch.randn(STREAMS, TOTAL)) * (torch.rand(STREAMS, TOTAL) < 0.1)
last = torch.cummax(torch.arange(TOTAL) * (pulses != 0), dim=1).values
flipped_up = (pulses.gather(1, last) > 0).float()  # which pulse came last?
signal = torch.stack([pulses, torch.randn(STREAMS, TOTAL)], dim=-1)


class FlipFlop(nn.Module):
    def __init__(self, hidden=24):
        super().__init__()
        self.gru = nn.GRU(2, hidden, batch_first=True)
        self.out = nn.Linear(hidden, 1)

    def forward(self, x, state=None):
        h, state = self.gru(x, state)
        return self.out(h).squeeze(-1), state


model = FlipFlop()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
with nv.watch(model, optimizer) as watch:
    for epoch in range(2):
        state, right = None, []
        for start in range(0, TOTAL, CHUNK):
            x, target = signal[:, start:start + CHUNK], flipped_up[:, start:start + CHUNK]
            logit, state = model(x, state)
            loss = F.binary_cross_entropy_with_logits(logit, target)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            state = state.detach()
            right.append(float(((logit > 0).float() == target).float().mean()))
            watch.step(loss)

score = sum(right[-40:]) / 40
learned = score > 0.95
