"""VQ-VAE whose codebook follows a moving average of what is assigned to it.

source: https://arxiv.org/abs/1711.00937 (appendix A.1)
field: discrete representation learning
unusual: the codebook is a buffer that no optimizer touches; straight-through gradient; rarely used codes are replaced
"""
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import netvitals as nv

x = torch.tensor(load_digits().images, dtype=torch.float32).unsqueeze(1) / 16


class Quantizer(nn.Module):
    def __init__(self, codes=48, dim=16, decay=0.97):
        super().__init__()
        self.decay = decay
        self.register_buffer("codebook", torch.randn(codes, dim) * 0.3)
        self.register_buffer("count", torch.ones(codes))
        self.register_buffer("total", self.codebook.clone())

    def forward(self, z):
        flat = z.permute(0, 2, 3, 1).reshape(-1, z.shape[1])
        index = torch.cdist(flat, self.codebook).argmin(1)
        if self.training:
            with torch.no_grad():
                one_hot = F.one_hot(index, len(self.codebook)).float()
                self.count.lerp_(one_hot.sum(0), 1 - self.decay)
                self.total.lerp_(one_hot.t() @ flat, 1 - self.decay)
                self.codebook.copy_(self.total / self.count.clamp_min(1e-5).unsqueeze(1))
                unused = self.count < 0.3
                fresh = flat[torch.randint(0, len(flat), (int(unused.sum()),))]
                self.codebook[unused], self.total[unused], self.count[unused] = fresh, fresh, 1.0
        q = self.codebook[index].view(z.shape[0], *z.shape[2:], -1).permute(0, 3, 1, 2)
        return z + (q - z).detach(), F.mse_loss(z, q.detach())


class VQVAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(1, 32, 4, 2, 1), nn.ReLU(), nn.Conv2d(32, 16, 1))
        self.quantizer = Quantizer()
        self.decoder = nn.Sequential(nn.ConvTranspose2d(16, 32, 4, 2, 1), nn.ReLU(), nn.Conv2d(32, 1, 3, 1, 1))

    def forward(self, x):
        q, commitment = self.quantizer(self.encoder(x))
        return self.decoder(q), commitment


model = VQVAE()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
with nv.watch(model, optimizer) as watch:
    for step in range(220):
        batch = x[torch.randint(0, 1500, (32,))]
        rebuilt, commitment = model(batch)
        loss = F.mse_loss(rebuilt, batch) + 0.25 * commitment
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

model.eval()
with torch.no_grad():
    score = 1 - float((model(x[1500:])[0] - x[1500:]).square().sum() / (x[1500:] - x.mean(0)).square().sum())
learned = score > 0.6
