"""CTC: the alphabet is numbered from 0, but 0 is the blank of nn.CTCLoss, so one letter can never be written.

source: https://github.com/yl4579/AuxiliaryASR/issues/4
catalogue: github
field: speech recognition (CTC)
cause: labels-wrong
observable: yes
"""
import torch
from torch import nn

import netvitals as nv

letters = torch.randn(5, 12)  # an "acoustic" pattern for each letter


def utterances(n, length=4):
    """Each letter lasts two to four frames of noisy features."""
    text = torch.stack([torch.randperm(5)[:length] for _ in range(n)])
    frames, sizes = torch.zeros(n, 16, 12), []
    for i in range(n):
        spoken = text[i].repeat_interleave(torch.randint(2, 5, (length,)))
        frames[i, : len(spoken)] = letters[spoken]
        sizes.append(len(spoken))
    return frames + 0.3 * torch.randn_like(frames), text, torch.tensor(sizes)


class Acoustic(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(12, 32, 3, padding=1)
        self.gru = nn.GRU(32, 32, batch_first=True, bidirectional=True)
        self.out = nn.Linear(64, 6)

    def forward(self, x):
        h = torch.relu(self.conv(x.transpose(1, 2))).transpose(1, 2)
        return self.out(self.gru(h)[0]).log_softmax(-1)


model, ctc = Acoustic(), nn.CTCLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
data = utterances(480)
with nv.watch(model, optimizer) as watch:
    for epoch in range(8):
        for i in torch.randperm(480).split(32):
            x, text, sizes = (part[i] for part in data)
            targets = text  # bug
            # fix: targets = text + 1
            loss = ctc(model(x).transpose(0, 1), targets, sizes, torch.full((len(i),), 4))
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            watch.step(loss)

x, text, sizes = utterances(100)
right = 0
for path, n, wanted in zip(model(x).argmax(-1), sizes, text):
    decoded = [int(c) for c in torch.unique_consecutive(path[:n]) if c != 0]
    right += decoded in (wanted.tolist(), (wanted + 1).tolist())
score = right / 100
learned = score > 0.8
