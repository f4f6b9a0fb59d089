"""One linear neuron should learn fahrenheit from celsius; RMSprop's default rate needs forever.

source: https://stackoverflow.com/questions/51181393
catalogue: deepfd
field: regression
cause: lr-too-low
observable: yes
"""
import torch

import netvitals as nv

celsius = torch.linspace(-5, 5, 100).unsqueeze(1)
fahrenheit = 1.8 * celsius + 3.2

model = torch.nn.Linear(1, 1)
optimizer = torch.optim.RMSprop(model.parameters(), lr=0.001)  # bug
# fix: optimizer = torch.optim.RMSprop(model.parameters(), lr=0.1)
mean_squared_error = torch.nn.MSELoss()

with nv.watch(model, optimizer) as watch:
    for epoch in range(100):
        for batch in torch.randperm(100).split(32):
            y = model(celsius[batch])
            loss = mean_squared_error(y, fahrenheit[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)

with torch.no_grad():
    score = -float(mean_squared_error(model(celsius), fahrenheit))
learned = score > -0.5
