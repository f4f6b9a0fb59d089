"""Triplet margin loss with random triplets on unit-norm embeddings.

source: Schroff et al., FaceNet (CVPR 2015); https://pytorch.org/docs/stable/generated/torch.nn.TripletMarginLoss.html
field: metric learning
unusual: three passes through one network, more and more triplets give zero loss, outputs have norm one
"""
import torch
from torch import nn
from torch.nn import functional as F

import netvitals as nv

PEOPLE = 15
identity = torch.randn(PEOPLE, 20)


def portraits(who):
    pose = torch.randn(len(who), 6)
    return torch.cat([identity[who] + 0.5 * torch.randn(len(who), 20), 2 * pose], dim=1)


class FaceNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(26, 64), nn.Linear(64, 64), nn.Linear(64, 12)

    def forward(self, x):
        x = F.leaky_relu(self.fc1(x), 0.1)
        x = F.leaky_relu(self.fc2(x), 0.1)
        return F.normalize(self.fc3(x), dim=1)


model = FaceNet()
optimizer = torch.optim.Adam(model.parameters(), lr=0.002)
triplet = nn.TripletMarginLoss(margin=0.5)
with nv.watch(model, optimizer) as watch:
    for step in range(300):
        person = torch.randint(0, PEOPLE, (64,))
        other = (person + torch.randint(1, PEOPLE, (64,))) % PEOPLE
        loss = triplet(model(portraits(person)), model(portraits(person)), model(portraits(other)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

gallery, probe = torch.arange(PEOPLE).repeat(5), torch.arange(PEOPLE).repeat(20)
with torch.no_grad():
    similarity = model(portraits(probe)) @ model(portraits(gallery)).T
score = float((gallery[similarity.argmax(1)] == probe).float().mean())
learned = score > 0.9
