"""Cox loss on images: the event indicator has shape (n, 1), so the loss is averaged over all pairs of subjects.

source: https://github.com/mahmoodlab/PathomicFusion/pull/9
catalogue: github
field: survival analysis (histology)
cause: broadcast-in-loss
observable: yes
"""
import torch
from torch import nn

import netvitals as nv


def slides(n):
    density = torch.rand(n)  # more bright cells, higher hazard; subjects with few cells leave the study early
    x = (torch.rand(n, 1, 12, 12) < 0.1 + 0.5 * density[:, None, None, None]).float() + 0.1 * torch.randn(n, 1, 12, 12)
    hazard = torch.exp(4 * (density - 0.5))
    time = -torch.rand(n).log() / hazard
    limit = torch.rand(n) * 4 * density**2
    return x, torch.minimum(time, limit), (time <= limit).float().unsqueeze(1), density


def cox_loss(survtime, censor, hazard_pred):
    r_mat = (survtime.unsqueeze(0) >= survtime.unsqueeze(1)).float()
    theta = hazard_pred.reshape(-1)
    exp_theta = torch.exp(theta)
    log_lik = theta - torch.log(torch.sum(exp_theta * r_mat, dim=1))
    return -torch.mean(log_lik * censor)  # bug
    # fix: return -torch.mean(log_lik * censor.squeeze(1))


class PathNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.hazard = nn.Linear(8, 1)

    def forward(self, x):
        return self.hazard(self.features(x))


x, time, event, _ = slides(600)
net = PathNet()
opt = torch.optim.Adam(net.parameters(), lr=5e-3)
with nv.watch(net, opt) as watch:
    for epoch in range(20):
        for i in torch.randperm(600).split(60):
            opt.zero_grad()
            loss = cox_loss(time[i], event[i], net(x[i]))
            loss.backward()
            opt.step()
            watch.step(loss)

with torch.no_grad():  # the loss as it is defined, on new subjects
    x, time, event, density = slides(400)
    theta = net(x).squeeze(1)
    score = float(torch.corrcoef(torch.stack([theta, density]))[0, 1])
learned = score > 0.75
