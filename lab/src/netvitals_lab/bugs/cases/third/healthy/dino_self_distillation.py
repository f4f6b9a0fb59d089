"""DINO: the student matches the centred and sharpened output of a moving average of itself.

source: https://arxiv.org/abs/2104.14294
field: self-supervised learning (DINO)
unusual: the cross-entropy stays high and is not zero at its optimum; teacher without gradients; temperatures of 0.04
"""
import copy

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import netvitals as nv

digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32).flatten(1) / 16


def augment(x):
    return x * (torch.rand_like(x) > 0.15) * (0.7 + 0.6 * torch.rand(len(x), 1)) + 0.08 * torch.randn_like(x)


student = nn.Sequential(nn.Linear(64, 96), nn.GELU(), nn.Linear(96, 48), nn.LayerNorm(48), nn.Linear(48, 64))
teacher = copy.deepcopy(student).requires_grad_(False)
center = torch.zeros(64)


@torch.no_grad()
def agreement():
    """How much nearer two views of a picture are to each other than views of different pictures."""
    z1, z2 = (teacher(augment(images[1300:])) for _ in range(2))
    return 1 - float((z1 - z2).pow(2).mean() / (z1 - z2.roll(1, 0)).pow(2).mean())


before = agreement()
optimizer = torch.optim.AdamW(student.parameters(), lr=1e-3, weight_decay=0.04)
with nv.watch({"student": student, "teacher": teacher}, optimizer) as watch:
    for step in range(400):
        x = images[torch.randint(0, 1300, (128,))]
        views = [augment(x), augment(x)]
        with torch.no_grad():
            targets = [teacher(v) for v in views]
            probabilities = [((t - center) / 0.04).softmax(1) for t in targets]
        out = [(student(v) / 0.1).log_softmax(1) for v in views]
        loss = -(probabilities[0] * out[1] + probabilities[1] * out[0]).sum(1).mean() / 2
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(student.parameters(), 3.0)
        optimizer.step()
        with torch.no_grad():
            center = 0.9 * center + 0.1 * torch.cat(targets).mean(0)
            momentum = 0.99 + 0.01 * step / 400
            for p, q in zip(student.parameters(), teacher.parameters()):
                q.mul_(momentum).add_(p, alpha=1 - momentum)
        watch.step(loss)

score = agreement()
learned = score > before + 0.1
