"""The training resumes, but the checkpoint is loaded into one object while a fresh base model is trained.

source: https://github.com/stanford-futuredata/ColBERT/issues/43
catalogue: github
field: retrieval
cause: checkpoint-misuse
observable: yes
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv


class ColBERT(nn.Module):
    """Late interaction: every word of the query looks for its best partner in the document."""

    def __init__(self, words=200, dim=16):
        super().__init__()
        self.bert = nn.Sequential(nn.Embedding(words, 32), nn.Linear(32, 32), nn.GELU())
        self.linear = nn.Linear(32, dim, bias=False)

    def encode(self, tokens):
        return F.normalize(self.linear(self.bert(tokens)), dim=-1)

    def forward(self, queries, documents):
        similarity = torch.einsum("qid,njd->qnij", self.encode(queries), self.encode(documents))
        return similarity.max(-1).values.sum(-1)


translation = torch.randperm(100) + 100


def pairs(n):
    queries = torch.randint(0, 100, (n, 4))
    documents = torch.cat([translation[queries], torch.randint(100, 200, (n, 4))], 1)
    return queries, documents[:, torch.randperm(8)]


def make(checkpoint=None):
    colbert = ColBERT()
    if checkpoint is not None:
        loaded = ColBERT()
        loaded.load_state_dict(checkpoint["model"])
        # fix: colbert = loaded
    optimizer = torch.optim.AdamW(colbert.parameters(), lr=3e-3)
    if checkpoint is not None:
        optimizer.load_state_dict(checkpoint["optimizer"])
    return colbert, optimizer


def train(colbert, optimizer, steps, watch):
    for _ in range(steps):
        queries, documents = pairs(24)
        loss = F.cross_entropy(5 * colbert(queries, documents), torch.arange(24))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)
    return float(loss)


colbert, optimizer = make()
with nv.watch(colbert, optimizer) as watch:
    train(colbert, optimizer, 300, watch)
checkpoint = {"model": colbert.state_dict(), "optimizer": optimizer.state_dict()}

colbert, optimizer = make(checkpoint)
with nv.watch(colbert, optimizer) as watch:
    train(colbert, optimizer, 40, watch)

with torch.no_grad():
    queries, documents = pairs(200)
    score = float((colbert(queries, documents).argmax(1) == torch.arange(200)).float().mean())
learned = score > 0.6
