"""A small transformer encoder gets a padding mask as an argument and never uses it: the padding votes too.

source: https://pypi.org/project/torchtest2/ (bug gallery: an attention mask that is ignored)
catalogue: torchtest
field: text classification
cause: attention-mask-wrong
observable: yes
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv

VOCAB, PAD = 30, 0


def sentences(n, longest, width):
    tokens = torch.randint(1, VOCAB, (n, width))
    length = torch.randint(3, longest + 1, (n,))
    pad = torch.arange(width)[None] >= length[:, None]
    share = ((tokens % 3 == 0) & ~pad).sum(1) / length
    return tokens.masked_fill(pad, PAD), pad, (share > 0.3).long()


class Encoder(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, d)
        self.layer = nn.TransformerEncoderLayer(d, 2, 32, dropout=0.0, batch_first=True)
        self.out = nn.Linear(d, 2)

    def forward(self, tokens, pad):
        x = self.embed(tokens)
        x = self.layer(x)  # bug
        return self.out(x.mean(1))  # bug
        # fix: x = self.layer(x, src_key_padding_mask=pad)
        # fix: x = x.masked_fill(pad.unsqueeze(-1), 0).sum(1) / (~pad).sum(1, keepdim=True)
        # fix: return self.out(x)


model = Encoder()
optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
with nv.watch(model, optimizer) as watch:
    for step in range(250):
        tokens, pad, label = sentences(32, longest=12, width=12)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(tokens, pad), label)
        loss.backward()
        optimizer.step()
        watch.step(loss)

tokens, pad, label = sentences(1000, longest=12, width=48)  # one long neighbour in the batch of the service
model.eval()
with torch.no_grad():
    score = float((model(tokens, pad).argmax(1) == label).float().mean())
learned = score > 0.91
