"""VAE with a normalising flow: the flow's log-determinants are summed over the whole batch before they enter each sample's KL term.

source: https://github.com/wohlert/semi-supervised-pytorch/issues/21
catalogue: github
field: generative models (VAE with flow)
cause: reduction-wrong
observable: yes
"""
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import netvitals as nv

x_all = torch.tensor(load_digits().data, dtype=torch.float32) / 16


class Scale(nn.Module):
    """A step of an affine flow on half of the latent variables."""

    def __init__(self, d):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(d // 2, 32), nn.Tanh(), nn.Linear(32, d))

    def forward(self, z):
        a, b = z.chunk(2, 1)
        s, t = self.net(a).chunk(2, 1)
        return torch.cat([b * s.exp() + t, a], 1), s.sum(1)


class FlowVAE(nn.Module):
    def __init__(self, d=6):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(64, 64), nn.Sequential(nn.Linear(d, 64), nn.ReLU(), nn.Linear(64, 64))
        self.mu, self.log_var = nn.Linear(64, d), nn.Linear(64, d)
        self.flow = nn.ModuleList([Scale(d), Scale(d)])

    def forward(self, x):
        h = F.relu(self.encoder(x))
        mu, log_var = self.mu(h), self.log_var(h)
        z0 = mu + (0.5 * log_var).exp() * torch.randn_like(mu)
        z, log_det_z = z0, 0
        for layer in self.flow:
            z, log_det = layer(z)
            log_det_z = log_det_z + log_det
        qz = torch.distributions.Normal(mu, (0.5 * log_var).exp()).log_prob(z0).sum(1)
        pz = torch.distributions.Normal(0.0, 1.0).log_prob(z).sum(1)
        kl = qz - sum(log_det_z) - pz  # bug
        # fix: kl = qz - log_det_z - pz
        return self.decoder(z), kl


model = FlowVAE()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
with nv.watch(model, optimizer) as watch:
    for step in range(600):
        x = x_all[torch.randint(0, len(x_all), (32,))]
        logits, kl = model(x)
        loss = (F.binary_cross_entropy_with_logits(logits, x, reduction="none").sum(1) + kl).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        optimizer.step()
        watch.step(loss)

with torch.no_grad():
    score = 1 - float((torch.sigmoid(model(x_all)[0]) - x_all).pow(2).mean() / x_all.var(0).mean())
learned = score > 0.2
