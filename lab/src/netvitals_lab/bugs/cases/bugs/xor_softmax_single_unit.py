"""XOR on six rows where the only output unit has a softmax: both answers are 1 for ever.

source: https://stackoverflow.com/questions/34311586
catalogue: deepfd
field: toy classification
cause: softmax-over-one-class
observable: yes
"""
import torch
from torch import nn

import netvitals as nv

X = torch.tensor([[1., 1.], [0., 0.], [1., 0.], [0., 1.], [1., 1.], [0., 0.]])
y = torch.tensor([[0.], [0.], [1.], [1.], [0.], [0.]])


class XorNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(2, 10)
        self.second = nn.Linear(10, 1)

    def forward(self, x):
        x = torch.tanh(self.first(x))
        return torch.softmax(self.second(x), dim=-1)  # bug
        # fix: return torch.sigmoid(self.second(x))


net = XorNet()
adam = torch.optim.Adam(net.parameters(), lr=0.02)
loss_history = []
with nv.watch(net, adam) as watch:
    for epoch in range(400):
        adam.zero_grad()
        loss = nn.functional.mse_loss(net(X), y)
        loss.backward()
        adam.step()
        loss_history.append(loss.item())
        watch.step(loss)

score = -loss_history[-1]
learned = score > -0.05
