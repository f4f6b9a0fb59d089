"""Label smoothing, linear warm-up, cosine schedule, Nesterov momentum: the ImageNet recipe.

source: https://arxiv.org/abs/1812.01187
field: image classification
unusual: the loss cannot go below its floor of about 0.5; the rate starts near zero and ends there
"""
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR
from torch.utils.data import DataLoader, TensorDataset

import netvitals as nv


def conv_bn(i, o, stride=1):
    return nn.Sequential(nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True))


class BasicBlock(nn.Module):
    def __init__(self, i, o, stride):
        super().__init__()
        self.body = nn.Sequential(conv_bn(i, o, stride), nn.Conv2d(o, o, 3, 1, 1, bias=False), nn.BatchNorm2d(o))
        self.skip = nn.Sequential(nn.Conv2d(i, o, 1, stride, bias=False), nn.BatchNorm2d(o))
        nn.init.zeros_(self.body[2].weight)  # the residual branch starts at zero

    def forward(self, x):
        return torch.relu(self.body(x) + self.skip(x))


digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
labels = torch.tensor(digits.target)
loader = DataLoader(TensorDataset(images[:1500], labels[:1500]), batch_size=64, shuffle=True, drop_last=True)
model = nn.Sequential(conv_bn(1, 16), BasicBlock(16, 16, 1), BasicBlock(16, 32, 2), nn.AdaptiveAvgPool2d(2),
                      nn.Flatten(), nn.Linear(128, 10))
criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
no_decay = [p for p in model.parameters() if p.dim() < 2]
decay = [p for p in model.parameters() if p.dim() >= 2]
optimizer = torch.optim.SGD([{"params": decay}, {"params": no_decay, "weight_decay": 0.0}], lr=0.1, momentum=0.9,
                            weight_decay=5e-4, nesterov=True)
epochs, warm = 8, 2 * len(loader)
schedule = SequentialLR(optimizer, [LinearLR(optimizer, 0.01, 1.0, warm),
                                    CosineAnnealingLR(optimizer, epochs * len(loader) - warm)], [warm])
with nv.watch(model, optimizer) as watch:
    for epoch in range(epochs):
        model.train()
        for batch, target in loader:
            optimizer.zero_grad()
            loss = criterion(model(batch), target)
            loss.backward()
            optimizer.step()
            schedule.step()
            watch.step(loss)

model.eval()
with torch.no_grad():
    score = float((model(images[1500:]).argmax(1) == labels[1500:]).float().mean())
learned = score > 0.88
