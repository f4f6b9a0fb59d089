"""Sinusoidal positions are cut by x.size(0) and added along the batch: every step of a sequence gets the same.

source: https://github.com/songyangco/GETNext/issues/2 (and https://github.com/AkiRusProd/numpy-transformer/issues/1)
catalogue: github
field: next place prediction with a transformer
cause: positions-missing
observable: yes
"""
import math

import torch
import torch.nn as nn

import netvitals as nv


class PositionalEncoding(nn.Module):
    def __init__(self, d_model, max_len=200):
        super().__init__()
        position = torch.arange(max_len).unsqueeze(1)
        div_term = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
        pe = torch.zeros(max_len, 1, d_model)
        pe[:, 0, 0::2] = torch.sin(position * div_term)
        pe[:, 0, 1::2] = torch.cos(position * div_term)
        self.register_buffer("pe", pe)

    def forward(self, x):
        return x + self.pe[:x.size(0)]  # bug
        # fix: return x + self.pe[:x.size(1), 0]


class TransformerModel(nn.Module):
    def __init__(self, num_poi, embed_size=32):
        super().__init__()
        self.pos_encoder = PositionalEncoding(embed_size)
        layer = nn.TransformerEncoderLayer(embed_size, 2, 64, dropout=0.0, batch_first=True)
        self.transformer_encoder = nn.TransformerEncoder(layer, 2)
        self.encoder = nn.Embedding(num_poi, embed_size)
        self.decoder_poi = nn.Linear(embed_size, num_poi)

    def forward(self, src):
        x = self.pos_encoder(self.encoder(src))
        return self.decoder_poi(self.transformer_encoder(x)[:, -1])


def check_ins(n):
    """People go back to the place where they were two stops before their last one."""
    trajectory = torch.stack([torch.randperm(20)[:8] for _ in range(n)])
    return trajectory, trajectory[:, -3]


trajectories, targets = check_ins(3000)
model = TransformerModel(20)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, weight_decay=1e-5)
with nv.watch(model, optimizer) as watch:
    for epoch in range(4):
        for rows in torch.randperm(2600).split(50):
            loss = nn.functional.cross_entropy(model(trajectories[rows]), targets[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)

model.eval()
with torch.no_grad():
    guess = torch.cat([model(batch).argmax(1) for batch in trajectories[2600:].split(50)])
    score = float((guess == targets[2600:]).float().mean())
learned = score > 0.8
