"""Skip-gram whose forward takes the centre embedding for the outside words, too: the second table is never trained.

source: https://github.com/chaklam-silpasuwanchai/Python-fo-Natural-Language-Processing/issues/6
catalogue: github
field: word embeddings
cause: layers-unused
observable: yes
"""
import torch
from torch import nn

import netvitals as nv

VOCAB = 20
follows = torch.roll(torch.arange(VOCAB), -7)  # word w is always seen next to word w + 7, never next to itself


def pairs(n):
    center = torch.randint(0, VOCAB, (n, 1))
    noise = torch.randint(0, VOCAB, (n, 1))
    return center, torch.where(torch.rand(n, 1) < 0.9, follows[center], noise)


class Skipgram(nn.Module):
    def __init__(self, voc_size, emb_size):
        super().__init__()
        self.embedding_center = nn.Embedding(voc_size, emb_size)
        self.embedding_outside = nn.Embedding(voc_size, emb_size)

    def forward(self, center, outside, all_vocabs):
        center_embedding = self.embedding_center(center)  # (batch, 1, emb)
        outside_embedding = self.embedding_center(outside)  # bug
        all_vocabs_embedding = self.embedding_center(all_vocabs)  # bug
        # fix: outside_embedding = self.embedding_outside(outside)
        # fix: all_vocabs_embedding = self.embedding_outside(all_vocabs)
        top = outside_embedding.bmm(center_embedding.transpose(1, 2)).squeeze(2)
        lower = all_vocabs_embedding.bmm(center_embedding.transpose(1, 2)).squeeze(2)
        return -(top - torch.logsumexp(lower, 1, keepdim=True)).mean()


batch_size = 64
model = Skipgram(VOCAB, 8)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
all_vocabs = torch.arange(VOCAB).expand(batch_size, VOCAB)
with nv.watch(model, optimizer) as watch:
    for i in range(600):
        center, outside = pairs(batch_size)
        optimizer.zero_grad()
        loss = model(center, outside, all_vocabs)
        loss.backward()
        optimizer.step()
        watch.step(loss)

center, outside = pairs(2000)
with torch.no_grad():
    score = -float(model(center, outside, torch.arange(VOCAB).expand(2000, VOCAB)))
learned = score > -1.0
