"""Detection head: the box regression loss of the few positive anchors is divided by the number of all anchors.

source: https://github.com/fizyr/keras-retinanet/issues/184
catalogue: github
field: object detection
cause: reduction-wrong
observable: yes
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv

ANCHORS = torch.arange(0, 256, 2).float()  # 128 anchors along a line of 256 samples


def signals(n):
    """A bump of random place and width in a long signal; an anchor within 2 samples of its centre is positive."""
    centre, width = 20 + 216 * torch.rand(n, 1), 4 + 6 * torch.rand(n, 1)
    t = torch.arange(256).float()
    x = torch.exp(-(((t - centre) / width) ** 2)) + 0.05 * torch.randn(n, 256)
    offset = centre - ANCHORS
    positive = (offset.abs() <= 2).float()
    return x.unsqueeze(1), positive, torch.stack([offset / 2, width.expand(-1, 128).log() - 1.9], 1)


class RetinaNet1d(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv1d(1, 16, 9, stride=2, padding=3), nn.ReLU(), nn.Conv1d(16, 32, 9, padding=4), nn.ReLU())
        self.classification = nn.Conv1d(32, 1, 5, padding=2)
        self.regression = nn.Sequential(nn.Conv1d(32, 32, 5, padding=2), nn.ReLU(), nn.Conv1d(32, 2, 5, padding=2))

    def forward(self, x):
        h = F.pad(self.backbone(x), (1, 0))[..., :128]
        return self.classification(h).squeeze(1), self.regression(h)


net = RetinaNet1d()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
with nv.watch(net, optimizer) as watch:
    for step in range(150):
        x, positive, boxes = signals(16)
        logits, regression = net(x)
        class_loss = F.binary_cross_entropy_with_logits(logits, positive, reduction="sum") / positive.sum()
        error = F.smooth_l1_loss(regression, boxes, reduction="none").sum(1) * positive
        box_loss = error.mean()  # bug
        # fix: box_loss = error.sum() / positive.sum()
        loss = class_loss + box_loss
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 5.0)
        optimizer.step()
        watch.step(loss)

with torch.no_grad():
    x, positive, boxes = signals(200)
    mask = positive.bool().unsqueeze(1).expand_as(boxes)
    score = 1 - float((net(x)[1][mask] - boxes[mask]).pow(2).mean() / boxes[mask].var())
learned = score > 0.85
