"""Skip-gram with negative sampling: forward returns the objective to be maximised, and SGD minimises it.

source: https://github.com/fanglanting/skip-gram-pytorch/issues/4
catalogue: github
field: word embeddings
cause: wrong-sign
observable: yes
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

import netvitals as nv

TOPICS, WORDS = 5, 40
topic = torch.arange(WORDS) % TOPICS  # words of the same topic appear together


def contexts(n, negatives=5):
    u = torch.randint(0, WORDS, (n,))
    v = (u + TOPICS * torch.randint(1, WORDS // TOPICS, (n,))) % WORDS
    return u, v, torch.randint(0, WORDS, (n, negatives))


class skipgram(nn.Module):
    def __init__(self, vocab_size, embedding_dim):
        super().__init__()
        self.u_embeddings = nn.Embedding(vocab_size, embedding_dim)
        self.v_embeddings = nn.Embedding(vocab_size, embedding_dim)
        self.u_embeddings.weight.data.uniform_(-0.5 / embedding_dim, 0.5 / embedding_dim)
        self.v_embeddings.weight.data.uniform_(-0.5 / embedding_dim, 0.5 / embedding_dim)

    def forward(self, u_pos, v_pos, v_neg):
        embed_u, embed_v = self.u_embeddings(u_pos), self.v_embeddings(v_pos)
        log_target = F.logsigmoid((embed_u * embed_v).sum(1))
        neg_score = torch.bmm(self.v_embeddings(v_neg), embed_u.unsqueeze(2)).squeeze(2)
        sum_log_sampled = F.logsigmoid(-neg_score).sum(1)
        objective = (log_target + sum_log_sampled).mean()
        return objective  # bug
        # fix: return -objective


model = skipgram(WORDS, 12)
optimizer = torch.optim.SGD(model.parameters(), lr=2.0)
with nv.watch(model, optimizer) as watch:
    for step in range(800):
        u, v, neg = contexts(64)
        loss = model(u, v, neg)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

with torch.no_grad():
    affinity = model.u_embeddings.weight @ model.v_embeddings.weight.T
    affinity.fill_diagonal_(-1e9)
score = float((topic[affinity.argmax(1)] == topic).float().mean())
learned = score > 0.9
