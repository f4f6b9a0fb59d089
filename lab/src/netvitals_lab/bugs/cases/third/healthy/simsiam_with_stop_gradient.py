"""SimSiam: two views, a predictor on one side, a stopped gradient on the other; neither negatives nor a slow copy.

source: https://arxiv.org/abs/2011.10566
field: self-supervised learning (SimSiam)
unusual: the loss is negative and tends to -1; half of the graph is detached on purpose; no labels
"""
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import netvitals as nv

digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32).flatten(1) / 16


def augment(x):
    return x * (torch.rand_like(x) > 0.2) * (0.7 + 0.6 * torch.rand(len(x), 1)) + 0.1 * torch.randn_like(x)


encoder = nn.Sequential(nn.Linear(64, 96), nn.BatchNorm1d(96), nn.ReLU(), nn.Linear(96, 48), nn.BatchNorm1d(48, affine=False))
predictor = nn.Sequential(nn.Linear(48, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 48))
model = nn.ModuleDict({"encoder": encoder, "predictor": predictor})


@torch.no_grad()
def found_again():
    """How many of 497 pictures are the nearest neighbour of another view of themselves?"""
    z1, z2 = (F.normalize(encoder(augment(images[1300:])), dim=1) for _ in range(2))
    return float(((z1 - z1.mean(0)) @ (z2 - z2.mean(0)).T).argmax(1).eq(torch.arange(497)).float().mean())


before = found_again()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
with nv.watch(model, optimizer) as watch:
    for step in range(800):
        x = images[torch.randint(0, 1300, (128,))]
        z1, z2 = encoder(augment(x)), encoder(augment(x))
        p1, p2 = predictor(z1), predictor(z2)
        loss = -0.5 * (F.cosine_similarity(p1, z2.detach()).mean() + F.cosine_similarity(p2, z1.detach()).mean())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

score = found_again()
learned = score > 1.3 * before
