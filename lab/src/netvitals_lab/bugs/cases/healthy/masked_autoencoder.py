"""Masked autoencoder on small images: the encoder sees half of the patches, the loss counts the hidden ones only.

source: https://arxiv.org/abs/2111.06377
field: self-supervised learning
unusual: most of the input is dropped at random; mask token as a lone parameter; the targets are the inputs themselves
"""
import torch
from sklearn.datasets import load_digits
from torch import nn

import netvitals as nv

images = torch.tensor(load_digits().images, dtype=torch.float32) / 6 - 0.8
patches = images.unfold(1, 2, 2).unfold(2, 2, 2).reshape(-1, 16, 4)


def block(d):
    return nn.TransformerEncoderLayer(d, 4, 2 * d, dropout=0.0, batch_first=True, norm_first=True, activation="gelu")


class MAE(nn.Module):
    def __init__(self, d=48, keep=8):
        super().__init__()
        self.keep, self.embed = keep, nn.Linear(4, d)
        self.position, self.mask_token = nn.Parameter(0.3 * torch.randn(16, d)), nn.Parameter(0.02 * torch.randn(d))
        self.decoder_position = nn.Parameter(0.3 * torch.randn(16, d))
        self.encoder, self.decoder, self.head = block(d), block(d), nn.Linear(d, 4)

    def forward(self, x):
        n = len(x)
        order = torch.rand(n, 16).argsort(1)
        seen = order[:, : self.keep].unsqueeze(2)
        tokens = (self.embed(x) + self.position).gather(1, seen.expand(-1, -1, self.position.size(1)))
        tokens = self.encoder(tokens)
        full = self.mask_token.expand(n, 16, -1).scatter(1, seen.expand_as(tokens), tokens)
        hidden = torch.ones(n, 16).scatter(1, order[:, : self.keep], 0.0)
        return self.head(self.decoder(full + self.decoder_position)), hidden


model = MAE()
optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, betas=(0.9, 0.95), weight_decay=0.05)
with nv.watch(model, optimizer) as watch:
    for step in range(230):
        x = patches[torch.randint(0, len(patches), (64,))]
        prediction, hidden = model(x)
        loss = ((prediction - x).pow(2).mean(2) * hidden).sum() / hidden.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

with torch.no_grad():
    prediction, hidden = model(patches)
    error = ((prediction - patches).pow(2).mean(2) * hidden).sum() / hidden.sum()
    score = 1 - float(error / (patches - patches.mean(0)).pow(2).mean())
learned = score > 0.25
