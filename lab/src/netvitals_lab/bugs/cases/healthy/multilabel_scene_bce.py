"""Multi-label tagging with one sigmoid per tag; a row may have no tag at all.

source: https://pytorch.org/docs/stable/generated/torch.nn.BCEWithLogitsLoss.html
field: multi-label classification
unusual: some target rows are all zero, tags of very different frequency, targets are float matrices
"""
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import netvitals as nv

TAGS = ["beach", "sunset", "trees", "snow", "city", "night"]
mixing = torch.randn(len(TAGS), 24)
frequency = torch.tensor([0.3, 0.05, 0.4, 0.1, 0.2, 0.15])


class Scenes(Dataset):
    def __init__(self, n):
        self.tags = (torch.rand(n, len(TAGS)) < frequency).float()
        self.pixels = self.tags @ mixing + 0.6 * torch.randn(n, 24)

    def __len__(self):
        return len(self.tags)

    def __getitem__(self, index):
        return {"pixels": self.pixels[index], "tags": self.tags[index]}


train, test = Scenes(1600), Scenes(600)
model = nn.Sequential(nn.Linear(24, 48), nn.ReLU(), nn.Dropout(0.2), nn.Linear(48, len(TAGS)))
optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
criterion = nn.BCEWithLogitsLoss(pos_weight=((1 - frequency) / frequency).sqrt())
with nv.watch(model, optimizer) as watch:
    for epoch in range(8):
        model.train()
        for batch in DataLoader(train, batch_size=32, shuffle=True):
            optimizer.zero_grad()
            loss = criterion(model(batch["pixels"]), batch["tags"])
            loss.backward()
            optimizer.step()
            watch.step(loss)

model.eval()
with torch.no_grad():
    guess = model(test.pixels) > 0
tp = (guess & test.tags.bool()).sum()
score = float(2 * tp / (guess.sum() + test.tags.sum()))
learned = score > 0.88
