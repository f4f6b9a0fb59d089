"""SWA: a high constant rate at the end, the mean of the weights of each epoch, batch norm made anew.

source: https://arxiv.org/abs/1803.05407
field: image classification
unusual: the rate stays high at the end; a copy in the optimizer's shadow; a pass over the data without training
"""
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.optim.swa_utils import SWALR, AveragedModel, update_bn
from torch.utils.data import DataLoader, TensorDataset

import netvitals as nv

digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
labels = torch.tensor(digits.target)
loader = DataLoader(TensorDataset(images[:1400], labels[:1400]), batch_size=50, shuffle=True)

model = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
                      nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
                      nn.Flatten(), nn.Linear(128, 10))
swa_model = AveragedModel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10)
swa_start, swa_scheduler = 7, SWALR(optimizer, swa_lr=0.05, anneal_epochs=2)
with nv.watch(model, optimizer) as watch:
    for epoch in range(14):
        for batch, target in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(batch), target)
            loss.backward()
            optimizer.step()
            watch.step(loss)
        if epoch >= swa_start:
            swa_model.update_parameters(model)
            swa_scheduler.step()
        else:
            scheduler.step()
    update_bn(loader, swa_model)

swa_model.eval()
with torch.no_grad():
    score = float((swa_model(images[1400:]).argmax(1) == labels[1400:]).float().mean())
learned = score > 0.86
