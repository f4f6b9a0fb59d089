"""A weighted sum is to be learned, but the single output neuron has a softmax: it always says 1.

source: https://stackoverflow.com/questions/33969059
catalogue: deepfd
field: regression
cause: softmax-over-one-class
observable: yes
"""
import torch
from torch import nn

import netvitals as nv

WEIGHTS = torch.tensor([2.0, 1.0, 0.5])


def get_data(count, offset=2.2, noise=0.1):
    xt = torch.rand(count, 3)
    yt = xt @ WEIGHTS + offset + noise * (torch.rand(count) - 0.5)
    return xt * 2 - 1, yt.unsqueeze(1)


x_train, y_train = get_data(2000)
x_test, y_test = get_data(500)

model = nn.Sequential(
    nn.Linear(3, 12),
    nn.Tanh(),
    nn.Linear(12, 1),
    nn.Softmax(dim=1),  # bug
)
sgd = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, nesterov=True)
objective = nn.MSELoss()

with nv.watch(model, sgd) as watch:
    for epoch in range(6):
        for k in torch.randperm(len(x_train)).split(40):
            sgd.zero_grad()
            loss = objective(model(x_train[k]), y_train[k])
            loss.backward()
            sgd.step()
            watch.step(loss)

with torch.no_grad():
    residual = model(x_test) - y_test
    score = 1 - float((residual ** 2).mean() / y_test.var())
learned = score > 0.9
