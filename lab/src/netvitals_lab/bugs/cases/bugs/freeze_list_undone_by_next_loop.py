"""The first stages are frozen by name, and the loop that sorts the optimizer groups thaws them all again.

source: https://github.com/ultralytics/yolov5/issues/1213
catalogue: github
field: object localisation
cause: not-frozen
observable: yes
silent: yes
"""
import torch
import torch.nn as nn
import torch.optim as optim

import netvitals as nv


class Conv(nn.Module):
    def __init__(self, c1, c2, s=1):
        super().__init__()
        self.conv = nn.Conv2d(c1, c2, 3, s, 1, bias=False)
        self.bn = nn.BatchNorm2d(c2)

    def forward(self, x):
        return nn.functional.silu(self.bn(self.conv(x)))


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = nn.Sequential(Conv(1, 8), Conv(8, 16, 2), Conv(16, 32, 2), nn.Flatten(), nn.Linear(32 * 9, 4))

    def forward(self, x):
        return self.model(x).sigmoid()


def scenes(n, contrast=1.0):
    images, boxes = 0.3 * torch.randn(n, 1, 12, 12), torch.zeros(n, 4)
    for i in range(n):
        w, h = torch.randint(2, 6, (2,)).tolist()
        x, y = int(torch.randint(0, 13 - w, ())), int(torch.randint(0, 13 - h, ()))
        images[i, 0, y:y + h, x:x + w] += contrast
        boxes[i] = torch.tensor([x + w / 2, y + h / 2, w, h]) / 12
    return images, boxes


def train(model, optimizer, images, boxes, epochs, watch=None):
    for _ in range(epochs):
        for rows in torch.randperm(len(images)).split(32):
            loss = nn.functional.smooth_l1_loss(model(images[rows]), boxes[rows], beta=0.05)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch and watch.step(loss)


model = Detector()
train(model, optim.Adam(model.parameters(), lr=3e-3), *scenes(400), 6)
pretrained = model.model[0].conv.weight.detach().clone()

freeze = ["model.0.", "model.1."]
for k, v in model.named_parameters():
    if any(k.startswith(x) for x in freeze):
        v.requires_grad = False
pg0, pg1, pg2 = [], [], []
for k, v in model.named_parameters():
    v.requires_grad = True  # bug
    if not v.requires_grad:
        continue
    (pg2 if k.endswith("bias") else pg0 if "bn" in k else pg1).append(v)
optimizer = optim.SGD(pg0, lr=0.02, momentum=0.9, nesterov=True)
optimizer.add_param_group({"params": pg1, "weight_decay": 5e-4})
optimizer.add_param_group({"params": pg2})
images, boxes = scenes(400, contrast=0.8)
with nv.watch(model, optimizer) as watch:
    train(model, optimizer, images[:340], boxes[:340], 15, watch)

model.eval()
error = float((model(images[340:]) - boxes[340:]).abs().mean())
score = -float((model.model[0].conv.weight - pretrained).abs().max())
learned = score == 0 and error < 0.085
