"""SigLIP: the pairwise loss is averaged over all n^2 pairs and divided by n once more; nothing seems to happen.

source: https://github.com/google-research/big_vision/issues/115
catalogue: github
field: vision and language (SigLIP)
cause: reduction-wrong, lr-too-low
observable: yes
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv

N = 64
meaning_to_image, meaning_to_text = torch.randn(6, 20), torch.randn(6, 14)


def pairs(n):
    meaning = torch.randn(n, 6)
    return (meaning @ meaning_to_image + 0.3 * torch.randn(n, 20)), (meaning @ meaning_to_text).tanh()


class SigLIP(nn.Module):
    def __init__(self):
        super().__init__()
        self.image = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 16))
        self.text = nn.Sequential(nn.Linear(14, 64), nn.ReLU(), nn.Linear(64, 16))
        self.t_prime, self.bias = nn.Parameter(torch.tensor(2.3)), nn.Parameter(torch.tensor(-10.0))

    def logits(self, image, text):
        z = F.normalize(self.image(image), dim=1) @ F.normalize(self.text(text), dim=1).T
        return z * self.t_prime.exp() + self.bias


def siglip_loss(logits):
    n = logits.size(0)
    labels = 2 * torch.eye(n) - torch.ones(n, n)
    return -torch.mean(F.logsigmoid(labels * logits)) / n  # bug
    # fix: return -torch.sum(F.logsigmoid(labels * logits)) / n


model = SigLIP()
optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9)
with nv.watch(model, optimizer) as watch:
    for step in range(400):
        loss = siglip_loss(model.logits(*pairs(N)))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        watch.step(loss)

with torch.no_grad():
    logits = model.logits(*pairs(100))
score = float((logits.argmax(1) == torch.arange(100)).float().mean())
learned = score > 0.5
