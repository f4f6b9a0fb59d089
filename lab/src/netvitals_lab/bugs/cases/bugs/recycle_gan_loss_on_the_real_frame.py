"""Translation GAN: the generator's adversarial loss is computed on a real target instead of on its own output.

source: https://github.com/SunnerLi/RecycleGAN/issues/2
catalogue: github
field: generative models (image translation)
cause: wrong-network-updated
observable: yes
"""
import itertools

import torch
from torch import nn

import netvitals as nv


def net(i, o):
    return nn.Sequential(nn.Linear(i, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, o))


rotation = torch.linalg.qr(torch.randn(3, 3))[0]


def domains(n):  # unpaired samples: a skewed blob, and the same shape far away
    a = torch.randn(n, 3) * torch.tensor([1.0, 0.5, 0.2])
    b = torch.randn(n, 3) * torch.tensor([0.2, 0.5, 1.0]) + torch.tensor([2.0, -2.0, 1.0])
    return a, b


models = nn.ModuleDict({"a2b": net(3, 3), "b2a": net(3, 3), "d_a": net(3, 1), "d_b": net(3, 1)})
g_opt = torch.optim.Adam(itertools.chain(models["a2b"].parameters(), models["b2a"].parameters()), lr=1e-3, betas=(0.5, 0.99))
d_opt = torch.optim.Adam(itertools.chain(models["d_a"].parameters(), models["d_b"].parameters()), lr=1e-3, betas=(0.5, 0.99))
mse = nn.MSELoss()
one, zero = torch.ones(64, 1), torch.zeros(64, 1)
with nv.watch(models, [g_opt, d_opt]) as watch:
    for step in range(420):
        real_a, real_b = domains(64)
        fake_b, fake_a = models["a2b"](real_a), models["b2a"](real_b)
        cycle = (models["b2a"](fake_b) - real_a).abs().mean() + (models["a2b"](fake_a) - real_b).abs().mean()
        adversarial = mse(models["d_b"](real_b), one) + mse(models["d_a"](real_a), one)  # bug
        # fix: adversarial = mse(models["d_b"](fake_b), one) + mse(models["d_a"](fake_a), one)
        g_loss = adversarial + 1.0 * cycle
        g_opt.zero_grad()
        g_loss.backward()
        g_opt.step()

        d_loss = sum(
            mse(models[d](real), one) + mse(models[d](fake.detach()), zero)
            for d, real, fake in (("d_a", real_a, fake_a), ("d_b", real_b, fake_b))
        )
        d_opt.zero_grad()
        d_loss.backward()
        d_opt.step()
        watch.step(g_loss)

with torch.no_grad():
    a, b = domains(1000)
    fake_b, fake_a = models["a2b"](a), models["b2a"](b)
    score = -float((fake_b.mean(0) - b.mean(0)).abs().mean() + (fake_a.mean(0) - a.mean(0)).abs().mean())
learned = score > -0.8
