"""InfoGAN-like generator: the code classifier Q ends in a softmax and goes into cross_entropy.

source: https://github.com/wiseodd/generative-models/issues/20 (gDefects4DL generative-models20)
catalogue: gdefects4dl
field: conditional generation
cause: double-softmax
observable: yes
"""
import torch
import torch.nn.functional as nnf
from torch import nn

import netvitals as nv

n_code, z_dim = 8, 4


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(z_dim + n_code, 64), nn.ReLU(), nn.Linear(64, 2))

    def forward(self, z, c):
        return self.net(torch.cat([z, c], 1))


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2))
        self.d = nn.Linear(64, 1)
        self.q = nn.Linear(64, n_code)

    def forward(self, x):
        h = self.body(x)
        c = self.q(h)
        c = nnf.softmax(c, dim=1)  # bug
        return self.d(h), c


def real_batch(n):
    k = torch.randint(0, n_code, (n,))
    angle = 2 * torch.pi * k / n_code
    return torch.stack([angle.cos(), angle.sin()], 1) * 2 + 0.05 * torch.randn(n, 2), k


G, C = Generator(), Critic()
nets = nn.ModuleDict({"g": G, "c": C})
G_solver = torch.optim.Adam(G.parameters(), lr=1e-3, betas=(0.5, 0.999))
C_solver = torch.optim.Adam(C.parameters(), lr=1e-3, betas=(0.5, 0.999))
with nv.watch(nets, [G_solver, C_solver]) as watch:
    for it in range(700):
        X, k = real_batch(64)
        c = torch.randint(0, n_code, (64,))
        fake = G(torch.randn(64, z_dim), torch.eye(n_code)[c])
        d_real, q_real = C(X)
        d_fake, q_fake = C(fake.detach())
        C_loss = nnf.softplus(-d_real).mean() + nnf.softplus(d_fake).mean() + nnf.cross_entropy(q_real, k)
        C_solver.zero_grad()
        C_loss.backward()
        C_solver.step()
        d_fake, q_fake = C(fake)
        G_loss = nnf.softplus(-d_fake).mean() + nnf.cross_entropy(q_fake, c)
        G_solver.zero_grad()
        G_loss.backward()
        G_solver.step()
        watch.step(G_loss)

with torch.no_grad():
    X, k = real_batch(1000)
    q = C(X)[1]
    score = -float(nnf.cross_entropy(q, k))
learned = score > -0.3
