"""VQ-VAE: the codebook loss is computed after the straight-through patch, so the codebook itself gets no gradient.

source: https://github.com/andylolu2/jax-vqvae-gpt/issues/2
catalogue: github
field: generative models (VQ-VAE)
cause: detached-graph
observable: yes
"""
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import netvitals as nv

images = torch.tensor(load_digits().data, dtype=torch.float32) / 16


class VectorQuantizer(nn.Module):
    def __init__(self, codes=32, dim=8, beta=0.25):
        super().__init__()
        self.codebook = nn.Embedding(codes, dim)
        self.beta = beta

    def forward(self, inputs):
        distance = torch.cdist(inputs.reshape(-1, inputs.shape[-1]), self.codebook.weight)
        quantize = self.codebook(distance.argmin(1)).view_as(inputs)
        # fix: codebook_loss = F.mse_loss(quantize, inputs.detach())
        commit_loss = F.mse_loss(inputs, quantize.detach())
        quantize = inputs + (quantize - inputs).detach()
        codebook_loss = F.mse_loss(quantize, inputs.detach())  # bug
        return quantize, codebook_loss + self.beta * commit_loss


class VQVAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 4 * 8))
        self.quantizer = VectorQuantizer()
        self.decoder = nn.Sequential(nn.Linear(4 * 8, 128), nn.ReLU(), nn.Linear(128, 64))

    def forward(self, x):
        z, vq_loss = self.quantizer(self.encoder(x).view(-1, 4, 8))
        return self.decoder(z.flatten(1)), vq_loss


model = VQVAE()
start = model.quantizer.codebook.weight.detach().clone()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
with nv.watch(model, optimizer) as watch:
    for step in range(600):
        x = images[torch.randint(0, len(images), (64,))]
        recon, vq_loss = model(x)
        loss = F.mse_loss(recon, x) / 0.05 + vq_loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

with torch.no_grad():
    score = 1 - float((model(images)[0] - images).pow(2).mean() / images.var(0).mean())
moved = float((model.quantizer.codebook.weight - start).abs().mean())
learned = score > 0.3 and moved > 0.01
