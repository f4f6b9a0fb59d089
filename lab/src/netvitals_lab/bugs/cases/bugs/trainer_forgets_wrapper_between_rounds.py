"""A trainer that sometimes takes the bare model and sometimes the data parallel one; bare steps are not averaged.

source: https://x.com/jxmnop/status/1778520637193240892
catalogue: traincheck
field: data parallel text embedding
cause: replicas-differ
observable: yes
silent: yes
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv


class Embedder(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.EmbeddingBag(100, 32, mode="mean")
        self.out = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))

    def forward(self, tokens):
        return self.out(self.emb(tokens))


class Wrapped:
    def __init__(self, ranks):
        self.ranks = ranks

    def sync(self):
        for p in zip(*(r.parameters() for r in self.ranks)):
            mean = torch.stack([q.grad for q in p]).mean(0)
            for q in p:
                q.grad = mean.clone()


class Bare:
    def __init__(self, ranks):
        self.ranks = ranks

    def sync(self):
        pass


class Trainer:
    def __init__(self):
        first, second = Embedder(), Embedder()
        second.load_state_dict(first.state_dict())
        self.ranks = nn.ModuleList([first, second])
        self.optimizer = torch.optim.Adam(self.ranks.parameters(), lr=5e-3)

    def get_model_ddp_or_not(self, round_):
        return Bare(self.ranks) if round_ % 2 else Wrapped(self.ranks)  # bug
        # fix: return Wrapped(self.ranks)

    def train(self, round_, tokens, topics, watch):
        model = self.get_model_ddp_or_not(round_)
        for batch in torch.randperm(len(tokens)).split(64):
            self.optimizer.zero_grad()
            halves = zip(model.ranks, tokens[batch].chunk(2), topics[batch].chunk(2))
            loss = sum(F.cross_entropy(rank(t), c) for rank, t, c in halves)
            loss.backward()
            model.sync()
            self.optimizer.step()
            watch.step(loss / 2)


topics = torch.randint(0, 4, (1280,))
tokens = torch.where(torch.rand(1280, 12) < 0.4, topics[:, None] * 25 + torch.randint(0, 25, (1280, 12)),
                     torch.randint(0, 100, (1280, 12)))
trainer = Trainer()
with nv.watch(trainer.ranks, trainer.optimizer) as watch:
    for round_ in range(12):
        trainer.train(round_, tokens[:1024], topics[:1024], watch)
first, second = trainer.ranks
accuracy = float((first(tokens[1024:]).argmax(1) == topics[1024:]).float().mean())
score = -max(float((p - q).abs().max()) for p, q in zip(first.parameters(), second.parameters()))
learned = score > -1e-5 and accuracy > 0.8
