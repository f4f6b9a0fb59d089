"""SimCLR: NT-Xent over two views, temperature, a projection head that is thrown away; judged by a linear probe.

source: https://arxiv.org/abs/2002.05709
field: self-supervised learning
unusual: no labels in training; the loss is bounded away from zero; the batch is doubled
"""
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from torch import nn

import netvitals as nv

digits = load_digits()
x = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16


def view(images):
    shift = torch.randint(-1, 2, (2,)).tolist()
    images = torch.roll(images, shift, (2, 3)) * (0.6 + 0.8 * torch.rand(len(images), 1, 1, 1))
    hole = torch.rand(len(images), 1, 8, 8) > 0.15
    return images * hole + 0.1 * torch.randn_like(images)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
                                     nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten(),
                                     nn.Linear(512, 64), nn.ReLU())
        self.projector = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32))

    def forward(self, images):
        return F.normalize(self.projector(self.encoder(images)), dim=1)


def nt_xent(a, b, temperature=0.2):
    z = torch.cat([a, b])
    similarity = z @ z.t() / temperature
    similarity.fill_diagonal_(float("-inf"))
    n = len(a)
    return F.cross_entropy(similarity, torch.cat([torch.arange(n, 2 * n), torch.arange(n)]))


def chance(n):
    return float(torch.log(torch.tensor(2.0 * n - 1)))


model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, weight_decay=1e-5)
with nv.watch(model, optimizer) as watch:
    for step in range(160):
        images = x[torch.randint(0, 1400, (96,))]
        loss = nt_xent(model(view(images)), model(view(images)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

model.eval()
with torch.no_grad():
    features = model.encoder(x).numpy()
probe = LogisticRegression(max_iter=300).fit(features[:1400], digits.target[:1400])
score = float(probe.score(features[1400:], digits.target[1400:]))
learned = score > 0.8 and float(loss) < chance(96) - 0.8
