"""Gradients of eight small batches are added up, the loss is not divided by eight.

source: https://github.com/hirofumi0810/neural_sp/issues/168 (and https://github.com/deepinsight/insightface/issues/2258)
catalogue: github
field: speech recognition with CTC
cause: accumulation-not-scaled
observable: yes
"""
import torch
from torch import nn

import netvitals as nv

phones, frames, steps = 8, 24, 6
prototypes = nn.functional.normalize(torch.randn(phones, 12), dim=1) * 3


def utterance():
    """Six phones, each held for two to five frames."""
    text = torch.randint(0, phones, (steps,))
    held = torch.repeat_interleave(text, torch.randint(2, 5, (steps,)))[:frames]
    sound = prototypes[held] + 0.5 * torch.randn(len(held), 12)
    return nn.functional.pad(sound, (0, 0, 0, frames - len(sound))), text


def batch(n):
    sounds, texts = zip(*(utterance() for _ in range(n)))
    return torch.stack(sounds), torch.stack(texts) + 1


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(12, 32, 3, padding=1)
        self.rnn = nn.GRU(32, 32, batch_first=True, bidirectional=True)
        self.ctc = nn.Linear(64, phones + 1)

    def forward(self, x):
        h = torch.relu(self.conv(x.transpose(1, 2))).transpose(1, 2)
        return self.ctc(self.rnn(h)[0]).log_softmax(-1)


def ctc_loss(log_probability, text):
    n = len(text)
    return nn.functional.ctc_loss(log_probability.transpose(0, 1), text, torch.full((n,), frames),
                                  torch.full((n,), steps), reduction="mean")


accum_grad_n_steps = 8
model = Encoder()
optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
with nv.watch(model, optimizer) as watch:
    for update in range(120):
        optimizer.zero_grad()
        for _ in range(accum_grad_n_steps):
            sounds, text = batch(4)
            loss = ctc_loss(model(sounds), text)
            # fix: loss = loss / accum_grad_n_steps
            loss.backward()
        optimizer.step()
        watch.step(loss)

with torch.no_grad():
    sounds, text = batch(100)
    score = -float(ctc_loss(model(sounds), text))
learned = score > -0.5
