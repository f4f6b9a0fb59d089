"""Copy and paste: the optimizer that minimises the generator's loss was given the discriminator's parameters.

source: https://medium.com/@keeper6928/how-to-unit-test-machine-learning-code-57cf6fd81765 (GAN example)
catalogue: torchtest
field: GAN
cause: wrong-network-updated
observable: yes
"""
import torch
import torch.nn.functional as F
from torch import nn, optim

import netvitals as nv


def real_points(n):
    angle = torch.rand(n, 1) * 6.2832
    return 2 + torch.cat([torch.cos(angle), torch.sin(angle)], 1) + 0.1 * torch.randn(n, 2)


def mlp(n_in, n_out):
    return nn.Sequential(nn.Linear(n_in, 48), nn.LeakyReLU(0.1), nn.Linear(48, 48), nn.LeakyReLU(0.1), nn.Linear(48, n_out))


networks = nn.ModuleDict({"gen": mlp(4, 2), "dis": mlp(2, 1)})
gen, dis = networks["gen"], networks["dis"]
dis_optimizer = optim.Adam(dis.parameters(), lr=0.002, betas=(0.5, 0.9))
gen_optimizer = optim.Adam(dis.parameters(), lr=0.001, betas=(0.5, 0.9))  # bug
# fix: gen_optimizer = optim.Adam(gen.parameters(), lr=0.001, betas=(0.5, 0.9))

with nv.watch(networks, [gen_optimizer, dis_optimizer]) as watch:
    for iteration in range(500):
        real, noise = real_points(64), torch.randn(64, 4)
        dis_loss = F.softplus(-dis(real)).mean() + F.softplus(dis(gen(noise).detach())).mean()
        dis_optimizer.zero_grad()
        dis_loss.backward()
        dis_optimizer.step()

        gen_loss = F.softplus(-dis(gen(torch.randn(64, 4)))).mean()
        gen_optimizer.zero_grad()
        gen_loss.backward()
        gen_optimizer.step()
        watch.step(gen_loss)

with torch.no_grad():
    fake, real = gen(torch.randn(500, 4)), real_points(500)
score = -float((fake.mean(0) - real.mean(0)).norm())
learned = score > -0.6
