"""A distributed sampler whose set_epoch is never called: the same batches in the same order in every epoch.

source: https://github.com/cszn/KAIR/pull/106 (and https://github.com/pytorch/pytorch/issues/31771)
catalogue: github
field: image restoration
cause: not-shuffled
observable: yes
silent: yes
"""
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

import netvitals as nv

digits = torch.tensor(load_digits().images, dtype=torch.float32).unsqueeze(1) / 16


class Denoising(Dataset):
    def __init__(self, clean):
        self.clean = clean

    def __len__(self):
        return len(self.clean)

    def __getitem__(self, i):
        return {"L": self.clean[i] + 0.3 * torch.randn(1, 8, 8), "H": self.clean[i], "index": i}


class DnCNN(nn.Module):
    def __init__(self, channels=24):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, channels, 3, padding=1), nn.ReLU(),
                                  nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU(),
                                  nn.Conv2d(channels, 1, 3, padding=1))

    def forward(self, x):
        return x - self.body(x)


train_set = Denoising(digits[:1200])
train_sampler = DistributedSampler(train_set, num_replicas=1, rank=0, shuffle=True, drop_last=True)
train_loader = DataLoader(train_set, batch_size=40, sampler=train_sampler)
model = DnCNN()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
first_batches = set()
with nv.watch(model, optimizer) as watch:
    for epoch in range(10):
        # fix: train_sampler.set_epoch(epoch)
        for i, data in enumerate(train_loader):
            optimizer.zero_grad()
            loss = nn.functional.l1_loss(model(data["L"]), data["H"])
            loss.backward()
            optimizer.step()
            watch.step(loss)
            if i == 0:
                first_batches.add(tuple(data["index"].tolist()))

with torch.no_grad():
    noisy = digits[1200:] + 0.3 * torch.randn_like(digits[1200:])
    gain = 10 * torch.log10((noisy - digits[1200:]).square().mean() / (model(noisy) - digits[1200:]).square().mean())
score = len(first_batches) / 10  # the share of the epochs that brought a new order
learned = score > 0.9 and float(gain) > 3
