"""VAE on images normalised to [-1, 1] whose decoder ends in a sigmoid: it can never produce the dark pixels.

source: https://whosebug.com/question/5616116/What-could-cause-a-VAE-Variational-AutoEncoder-to-output-random-noise-even-after-training
catalogue: stackoverflow
field: generative models (VAE)
cause: output-activation
observable: yes
"""
import torch
from sklearn.datasets import load_digits
from torch import nn

import netvitals as nv

mean, std = 0.5, 0.5
data = (torch.tensor(load_digits().images, dtype=torch.float32).unsqueeze(1) / 16 - mean) / std


class ConvVAE(nn.Module):
    def __init__(self, z_dim=8):
        super().__init__()
        self.enc = nn.Sequential(nn.Conv2d(1, 16, 3, 2, 1), nn.LeakyReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.LeakyReLU(), nn.Flatten())
        self.to_mu, self.to_log_var = nn.Linear(128, z_dim), nn.Linear(128, z_dim)
        self.from_z = nn.Linear(z_dim, 128)
        self.dec = nn.Sequential(
            nn.ConvTranspose2d(32, 16, 4, 2, 1), nn.LeakyReLU(), nn.ConvTranspose2d(16, 1, 4, 2, 1),
            nn.Sigmoid(),  # bug
            # fix: nn.Tanh(),
        )

    def encode(self, x):
        h = self.enc(x)
        return self.to_mu(h), self.to_log_var(h)

    def decode(self, z):
        return self.dec(self.from_z(z).view(-1, 32, 2, 2))


vae = ConvVAE()
opt = torch.optim.Adam(vae.parameters(), lr=3e-3)
with nv.watch(vae, opt) as watch:
    for epoch in range(12):
        for batch in data[torch.randperm(len(data))].split(64):
            mu, log_var = vae.encode(batch)
            z = mu + (log_var / 2).exp() * torch.randn_like(mu)
            r_loss = (vae.decode(z) - batch).pow(2).flatten(1).sum(1)
            kl_loss = -0.5 * (1 + log_var - mu**2 - log_var.exp()).sum(1)
            loss = (r_loss + 0.3 * kl_loss).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            watch.step(loss)

with torch.no_grad():
    score = 1 - float((vae.decode(vae.encode(data)[0]) - data).pow(2).mean() / data.var(0).mean())
learned = score > 0.4
