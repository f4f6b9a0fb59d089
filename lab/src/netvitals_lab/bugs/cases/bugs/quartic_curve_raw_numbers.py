"""The curve x**4 on -100..100, with targets up to a hundred million, is fitted as it is.

source: https://stackoverflow.com/questions/52800582
catalogue: deepfd
field: regression
cause: targets-not-scaled, inputs-not-scaled
observable: yes
"""
import torch
import torch.nn as nn

import netvitals as nv

x = torch.arange(-100, 100, 0.5)
y = x ** 4
x, y = x.view(-1, 1), y.view(-1, 1)
# fix: x, y = (x - x.mean()) / x.std(), (y - y.mean()) / y.std()

model = nn.Sequential(nn.Linear(1, 50), nn.Sigmoid(), nn.Linear(50, 50), nn.ELU(), nn.Linear(50, 1))
opt = torch.optim.Adam(model.parameters(), lr=0.01)
mse = nn.MSELoss()

with nv.watch(model, opt) as watch:
    for i in range(700):
        opt.zero_grad()
        y_pred = model(x)
        loss = mse(y_pred, y)
        loss.backward()
        opt.step()
        watch.step(loss)

score = 1 - float(loss.detach() / y.var())
learned = score > 0.95
