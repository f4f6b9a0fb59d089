"""VICReg on local features: in the loop over pairs the losses are assigned instead of added, only the last pair counts.

source: https://github.com/facebookresearch/VICRegL/issues/6
catalogue: github
field: self-supervised learning (VICReg)
cause: layers-unused, reduction-wrong
observable: yes
"""
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import netvitals as nv

digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32) / 16
labels = torch.tensor(digits.target)


def augment(x):
    return x * (0.7 + 0.6 * torch.rand(len(x), 1, 1)) + 0.1 * torch.randn_like(x)


def halves(x):
    """The upper and the lower half of each picture have an encoder each."""
    return [x[:, :4].flatten(1), x[:, 4:].flatten(1)]


def mlp():
    return nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 16))


def vicreg(a, b):
    inv = F.mse_loss(a, b)
    var = sum(F.relu(1 - (z.var(0) + 1e-4).sqrt()).mean() for z in (a, b))
    cov = 0
    for z in (a - a.mean(0), b - b.mean(0)):
        c = z.T @ z / (len(z) - 1)
        cov = cov + (c.pow(2).sum() - c.diagonal().pow(2).sum()) / z.shape[1]
    return inv, var, cov


encoders = nn.ModuleList([mlp(), mlp()])
optimizer = torch.optim.AdamW(encoders.parameters(), lr=2e-3, weight_decay=1e-6)
with nv.watch(encoders, optimizer) as watch:
    for step in range(400):
        x = images[torch.randint(0, 1300, (96,))]
        inv_loss = var_loss = cov_loss = 0.0
        for encode, a, b in zip(encoders, halves(augment(x)), halves(augment(x))):
            inv, var, cov = vicreg(encode(a), encode(b))
            inv_loss, var_loss, cov_loss = inv, var, cov  # bug
            # fix: inv_loss, var_loss, cov_loss = inv_loss + inv, var_loss + var, cov_loss + cov
        loss = 25 * inv_loss + 25 * var_loss + cov_loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

with torch.no_grad():  # the weakest of the encoders: how much of its output is signal?
    signal = []
    for encode, part, noisy in zip(encoders, halves(images), halves(augment(images))):
        z = encode(part)
        signal.append(float(z.std(0).mean()) - float((encode(noisy) - z).pow(2).mean().sqrt()))
score = min(signal)
learned = score > 0.4
