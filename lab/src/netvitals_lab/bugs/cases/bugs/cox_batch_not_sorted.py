"""Cox loss with a cumulative sum over the risk set, fed with batches that are not sorted by time.

source: https://github.com/UK-Digital-Heart-Project/4Dsurvival/issues/2
catalogue: github
field: survival analysis
cause: labels-wrong
observable: no, the loss and the gradients look like those of a hard but sound problem
"""
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

import netvitals as nv


class Patients(Dataset):
    def __init__(self, n):
        self.x = torch.randn(n, 10)
        self.log_risk = 1.5 * self.x[:, 0] - self.x[:, 1] + self.x[:, 2].sin()
        survival = -torch.rand(n).log() * torch.exp(-self.log_risk)
        self.status = (torch.rand(n) < 0.8).float()  # one in five is lost at a random moment
        self.time = torch.where(self.status > 0, survival, survival * torch.rand(n))

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.time[i], self.status[i]


def negative_log_likelihood(log_risk, time, status):
    """Assumes subjects in descending order of time, so that the risk set is everybody before."""
    # fix: order = time.argsort(descending=True)
    # fix: log_risk, status = log_risk[order], status[order]
    uncensored = log_risk - torch.logcumsumexp(log_risk, 0)
    return -(uncensored * status).sum() / status.sum().clamp(min=1)


class DeepSurv(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(10, 24), nn.SELU(), nn.Dropout(0.1), nn.Linear(24, 24), nn.SELU())
        self.risk = nn.Linear(24, 1, bias=False)

    def forward(self, x):
        return self.risk(self.body(x)).squeeze(-1)


train, test = Patients(1200), Patients(500)
net = DeepSurv()
optimizer = torch.optim.Adam(net.parameters(), lr=3e-3, weight_decay=1e-4)
with nv.watch(net, optimizer) as watch:
    for epoch in range(15):
        for x, time, status in DataLoader(train, batch_size=64, shuffle=True):
            loss = negative_log_likelihood(net(x), time, status)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)

net.eval()
with torch.no_grad():
    score = float(torch.corrcoef(torch.stack([net(test.x), test.log_risk]))[0, 1])
learned = score > 0.85
