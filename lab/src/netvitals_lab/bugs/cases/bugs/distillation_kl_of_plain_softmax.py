"""Self-distillation where kl_div gets the softmax of the student in place of its log-softmax.

source: https://github.com/microsoft/ProDA/issues/20 (and 43)
catalogue: github
field: knowledge distillation for segmentation
cause: missing-log-softmax
observable: yes
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv


def street(n):
    """Column heights: sky above, a building, a road below; 12 x 12 pixels."""
    building = torch.randint(2, 6, (n, 1, 12)).float()
    road = torch.randint(8, 11, (n, 1, 1)).float()
    row = torch.arange(12.0).view(1, 12, 1)
    label = (row >= building).long() + (row >= road).long()
    colour = torch.tensor([[0.9, 0.9], [0.5, 0.2], [0.2, 0.4]])[label].permute(0, 3, 1, 2)
    return colour + 0.3 * torch.randn(n, 2, 12, 12), label


def deeplab(width):
    return nn.Sequential(nn.Conv2d(2, width, 3, padding=1), nn.ReLU(),
                         nn.Conv2d(width, width, 3, padding=2, dilation=2), nn.ReLU(), nn.Conv2d(width, 3, 1))


source_images, source_labels = street(300)
teacher = deeplab(24)
stage_one = torch.optim.Adam(teacher.parameters(), lr=3e-3)
for _ in range(120):
    rows = torch.randint(0, 300, (32,))
    stage_one.zero_grad()
    F.cross_entropy(teacher(source_images[rows]), source_labels[rows]).backward()
    stage_one.step()
teacher.eval()

target_images, target_labels = street(500)
student = deeplab(12)
optimizer = torch.optim.SGD(student.parameters(), lr=0.1, momentum=0.9)
with nv.watch(student, optimizer) as watch:
    for step in range(300):
        image = target_images[torch.randint(0, 400, (24,))]
        out = F.softmax(student(image), dim=1)  # bug
        # fix: out = F.log_softmax(student(image), dim=1)
        with torch.no_grad():
            soft = F.softmax(teacher(image), dim=1)
        loss_kd = F.kl_div(out, soft, reduction="none").sum(1).mean()
        optimizer.zero_grad()
        loss_kd.backward()
        optimizer.step()
        watch.step(loss_kd)

with torch.no_grad():
    log_student = F.log_softmax(student(target_images[400:]), 1)
    score = -float(F.kl_div(log_student, teacher(target_images[400:]).softmax(1), reduction="none").sum(1).mean())
learned = score > -0.1
