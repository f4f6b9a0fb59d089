"""Feature distillation: the layer that maps student to teacher features is made inside the loss, no optimizer knows it.

source: https://github.com/huangzongmou/yolov8_Distillation/issues/5
catalogue: github
field: knowledge distillation (features)
cause: parameters-not-in-optimizer
observable: yes
"""
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import netvitals as nv

digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
labels = torch.tensor(digits.target)
train, test = torch.arange(0, 1300), torch.arange(1300, 1797)


def network(width):
    return nn.Sequential(nn.Conv2d(1, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Conv2d(width, width, 3, padding=1), nn.ReLU())


class FeatureLoss(nn.Module):
    def __init__(self, channels_s, channels_t):
        super().__init__()
        self.align = nn.Conv2d(channels_s, channels_t, 1)

    def forward(self, student, teacher):
        return F.mse_loss(self.align(student), teacher)


teacher, t_head = network(48), nn.Sequential(nn.Flatten(), nn.Linear(48 * 16, 10))
opt = torch.optim.Adam([*teacher.parameters(), *t_head.parameters()], lr=2e-3)
for i in torch.randint(0, 1300, (200, 64)):
    opt.zero_grad()
    F.cross_entropy(t_head(teacher(images[i])), labels[i]).backward()
    opt.step()

student = network(8)
feature_loss = FeatureLoss(8, 48)
optimizer = torch.optim.Adam(student.parameters(), lr=3e-3)
# fix: optimizer.add_param_group({"params": feature_loss.parameters()})
with nv.watch({"student": student, "loss": feature_loss}, optimizer) as watch:
    for step in range(300):
        x = images[train[torch.randint(0, 1300, (64,))]]
        with torch.no_grad():
            wanted = teacher(x)
        loss = feature_loss(student(x), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

with torch.no_grad():
    wanted = teacher(images[test])
    score = 1 - float(F.mse_loss(feature_loss.align(student(images[test])), wanted) / wanted.var())
learned = score > 0.62
