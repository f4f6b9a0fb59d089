"""CLIP: pictures and captions in one space, symmetric cross-entropy over the batch, a temperature that is learned.

source: https://arxiv.org/abs/2103.00020
field: vision and language (CLIP)
unusual: the labels are always 0..n-1 in order; a scalar parameter with a clamp; the loss depends on the batch size
"""
import math

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import netvitals as nv

digits = load_digits()
images, labels = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16, torch.tensor(digits.target)


def captions(y):
    """Five words, one of them names the digit, anywhere in the sentence."""
    words = torch.randint(10, 40, (len(y), 5))
    return words.scatter(1, torch.randint(0, 5, (len(y), 1)), y.unsqueeze(1))


class CLIP(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.visual = nn.Sequential(nn.Conv2d(1, 16, 3, 2, 1), nn.GELU(), nn.Conv2d(16, 32, 3, 2, 1), nn.GELU(), nn.Flatten(), nn.Linear(128, dim))
        self.token, self.text = nn.EmbeddingBag(40, 48), nn.Sequential(nn.Linear(48, 48), nn.GELU(), nn.Linear(48, dim))
        self.logit_scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))

    def forward(self, image, text):
        a, b = F.normalize(self.visual(image), dim=1), F.normalize(self.text(self.token(text)), dim=1)
        return self.logit_scale.exp() * a @ b.T


model = CLIP()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, betas=(0.9, 0.98), weight_decay=0.1)
with nv.watch(model, optimizer) as watch:
    for step in range(500):
        i = torch.randint(0, 1300, (32,))
        logits = model(images[i], captions(labels[i]))
        target = torch.arange(32)
        loss = (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            model.logit_scale.clamp_(0, math.log(100))
        watch.step(loss)

with torch.no_grad():  # zero-shot: which caption fits best?
    text = torch.cat([captions(torch.full((30,), d)) for d in range(10)])
    z = model(images[1300:], text).reshape(-1, 10, 30).mean(2)
score = float((z.argmax(1) == labels[1300:]).float().mean())
learned = score > 0.75
