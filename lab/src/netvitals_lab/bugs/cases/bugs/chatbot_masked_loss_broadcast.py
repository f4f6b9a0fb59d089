"""Chatbot tutorial: the loss has shape (B, 1), the mask (B,): masked_select spreads every loss over every mask.

source: https://github.com/pytorch/tutorials/pull/382 (gDefects4DL tutorials382)
catalogue: gdefects4dl
field: sequence to sequence
cause: broadcast-in-loss, ignore-index
observable: yes
silent: yes
"""
import torch
from torch import nn

import netvitals as nv

PAD, SOS, EOS = 0, 1, 2
longest = 9


def conversation(n):
    length = torch.randint(2, longest, (n,))
    words = torch.randint(3, 23, (n, longest))
    steps = torch.arange(longest)
    source = torch.where(steps < length[:, None], words, PAD)
    reply = torch.where(steps == length[:, None] - 1, EOS, torch.where(steps < length[:, None], 25 - words, PAD))
    return source, reply, reply != PAD


def maskNLLLoss(inp, target, mask):
    nTotal = mask.sum()
    crossEntropy = -torch.log(torch.gather(inp, 1, target.view(-1, 1)))  # bug
    # fix: crossEntropy = -torch.log(torch.gather(inp, 1, target.view(-1, 1)).squeeze(1))
    loss = crossEntropy.masked_select(mask).mean()
    return loss, nTotal.item()


class Seq2Seq(nn.Module):
    def __init__(self, words=26, hidden=64):
        super().__init__()
        self.embedding = nn.Embedding(words, hidden)
        self.encoder = nn.GRU(hidden, hidden, batch_first=True, bidirectional=True)
        self.decoder = nn.GRUCell(3 * hidden, hidden)
        self.out = nn.Linear(hidden, words)

    def forward(self, source, reply):
        encoded, _ = self.encoder(self.embedding(source))
        hidden = encoded.new_zeros(len(source), 64)
        word = torch.full((len(source),), SOS)
        for step in range(reply.shape[1]):
            hidden = self.decoder(torch.cat([self.embedding(word), encoded[:, step]], 1), hidden)
            yield torch.softmax(self.out(hidden), 1)
            word = reply[:, step]  # teacher forcing


model = Seq2Seq()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
with nv.watch(model, optimizer) as watch:
    for iteration in range(80):
        source, reply, mask = conversation(32)
        loss, total = 0.0, 0
        for step, probabilities in enumerate(model(source, reply)):
            if mask[:, step].any():
                step_loss, n = maskNLLLoss(probabilities, reply[:, step], mask[:, step])
                loss, total = loss + step_loss * n, total + n
        loss = loss / total
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        watch.step(loss)

with torch.no_grad():
    source, reply, mask = conversation(500)
    probabilities = torch.stack(list(model(source, reply)), 1)
    nll = -probabilities.gather(2, reply[..., None]).squeeze(2).log()
    score = -float(probabilities[..., PAD][~mask].mean())  # what was learned for places that are to be ignored
learned = score > -0.5 and float(nll[mask].mean()) < 0.5
