"""The teacher of a distillation is never put into eval mode: its dropout makes other targets every time.

source: https://github.com/yxuansu/TaCL/issues/11 (and https://github.com/vrvlive/knowlege-distillation/issues/2)
catalogue: github
field: token representation learning
cause: dropout-train-eval
observable: yes
silent: yes
"""
import copy

import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv


class Bert(nn.Module):
    def __init__(self, words=30, dim=32):
        super().__init__()
        self.embed = nn.Embedding(words, dim)
        self.drop = nn.Dropout(0.3)
        self.mix = nn.Conv1d(dim, dim, 3, padding=1)
        self.out = nn.Linear(dim, dim)

    def forward(self, x):
        h = self.drop(self.embed(x))
        h = h + torch.relu(self.mix(h.transpose(1, 2))).transpose(1, 2)
        return self.out(self.drop(h))


class BERTContrastivePretraining(nn.Module):
    def __init__(self, pretrained):
        super().__init__()
        self.model = copy.deepcopy(pretrained)
        self.teacher = copy.deepcopy(pretrained).requires_grad_(False)
        # fix: self.teacher.eval()

    def forward(self, truth):
        masked = truth.masked_fill(torch.rand(truth.shape) < 0.15, 1)
        student = F.normalize(self.model(masked), dim=-1)
        with torch.no_grad():
            teacher = F.normalize(self.teacher(truth), dim=-1)
        similarity = student @ teacher.transpose(1, 2) / 0.1
        target = torch.arange(truth.shape[1]).expand(len(truth), -1)
        return F.cross_entropy(similarity.transpose(1, 2), target)


def sentences(n):
    return torch.stack([2 + torch.randperm(28)[:10] for _ in range(n)])


pretrained = Bert()
net = BERTContrastivePretraining(pretrained)
optimizer = torch.optim.AdamW(net.model.parameters(), lr=2e-3)
repeats = []
with nv.watch(net, optimizer) as watch:
    for step in range(250):
        text = sentences(32)
        loss = net(text)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)
        if step % 50 == 0:
            with torch.no_grad():
                repeats.append(float((net.teacher(text) - net.teacher(text)).abs().mean()))

net.eval()
with torch.no_grad():
    accuracy = -float(net(sentences(200)))
score = -max(repeats)  # the target of a sentence should be one and the same
learned = score == 0 and accuracy > -1.0
