"""The tutorial's CNN got activation='relu' in its last layer too: negative scores are lost.

source: https://stackoverflow.com/questions/47352366
catalogue: deepfd
field: image classification
cause: output-activation, dead-units
observable: yes
"""
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import netvitals as nv

bunch = load_digits()
images = torch.tensor(bunch.images, dtype=torch.float32).div(16).unsqueeze(1)
targets = torch.tensor(bunch.target)
shuffled = torch.randperm(1797)
train, test = shuffled[:1500], shuffled[1500:]


class DeepMnist(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 5, padding=2)
        self.conv2 = nn.Conv2d(16, 32, 5, padding=2)
        self.dense1 = nn.Linear(32 * 2 * 2, 128)
        self.dense2 = nn.Linear(128, 10)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = self.dropout(F.relu(self.dense1(x.flatten(1))))
        return F.relu(self.dense2(x))  # bug
        # fix: return self.dense2(x)


model = DeepMnist()
adam = torch.optim.Adam(model.parameters(), lr=0.001)
with nv.watch(model, adam) as watch:
    for i in range(350):
        batch = train[torch.randint(0, len(train), (50,))]
        adam.zero_grad()
        loss = F.cross_entropy(model(images[batch]), targets[batch])
        loss.backward()
        adam.step()
        watch.step(loss)

model.eval()
with torch.no_grad():
    score = -float(F.cross_entropy(model(images[test]), targets[test]))
learned = score > -0.25
