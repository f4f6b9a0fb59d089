"""An autoencoder of standardised features with ReLU everywhere, also on the reconstruction.

source: https://stackoverflow.com/questions/42514960
catalogue: deepfd
field: autoencoder
cause: output-activation
observable: yes
"""
import torch
from sklearn.datasets import load_wine
from sklearn.preprocessing import StandardScaler
from torch import nn

import netvitals as nv

rows = torch.tensor(StandardScaler().fit_transform(load_wine().data)).float()
inputs, bottleneck = rows.shape[1], 6


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(inputs, inputs * 4), nn.Tanh(),
            nn.Linear(inputs * 4, bottleneck), nn.Tanh(),
        )
        self.decoder = nn.Sequential(
            nn.Linear(bottleneck, inputs * 4), nn.Tanh(),
            nn.Linear(inputs * 4, inputs),
            nn.ReLU(),  # bug
        )

    def forward(self, x):
        return self.decoder(self.encoder(x))


autoencoder = Autoencoder()
adam = torch.optim.Adam(autoencoder.parameters(), lr=0.005)
with nv.watch(autoencoder, adam) as watch:
    for epoch in range(80):
        for part in rows[torch.randperm(len(rows))].split(24):
            adam.zero_grad()
            loss = nn.functional.mse_loss(autoencoder(part), part)
            loss.backward()
            adam.step()
            watch.step(loss)

with torch.no_grad():
    score = 1 - float(((autoencoder(rows) - rows) ** 2).mean() / rows.var())
learned = score > 0.75
