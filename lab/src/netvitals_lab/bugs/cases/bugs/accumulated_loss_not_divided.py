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
        self.conv = nn.Sequential(nn.Conv1d(12, 48, 5, padding=2), nn.ReLU(), nn.Conv1d(48, 48, 5, padding=2), nn.ReLU())
        self.ctc = nn.Linear(48, phones + 1)

    def forward(self, x):
        return self.ctc(self.conv(x.transpose(1, 2)).transpose(1, 2)).log_softmax(-1)


def ctc_loss(log_probability, text):
    n = len(text)
    return nn.functional.ctc_loss(log_probability.transpose(0, 1), text, torch.full((n,), frames),
                                  torch.full((n,), steps), reduction="mean")


accum_grad_n_steps = 8
all_sounds, all_texts = batch(600)
model = Encoder()
optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
with nv.watch(model, optimizer) as watch:
    for update in range(120):
        optimizer.zero_grad()
        for _ in range(accum_grad_n_steps):
            rows = torch.randint(0, 500, (4,))
            sounds, text = all_sounds[rows], all_texts[rows]
            loss = ctc_loss(model(sounds), text)
            # fix: loss = loss / accum_grad_n_steps
            loss.backward()
        optimizer.step()
        watch.step(loss)

with torch.no_grad():
    sounds, text = all_sounds[500:], all_texts[500:]
    score = -float(ctc_loss(model(sounds), text))
learned = score > -1.0
