"""A network with three inputs (picture, category, numbers) joined before the head.

source: Cheng et al., Wide & Deep Learning (2016); https://keras.io/guides/functional_api/ (multi-input models)
field: multi-modal regression
unusual: forward takes a dictionary, branches of very different size, a direct linear path past the deep part
"""
import torch
from torch import nn

import netvitals as nv

CITIES = 12
city_level = torch.randn(CITIES)


def flats(n):
    brightness = torch.rand(n)
    photo = brightness[:, None, None, None] + 0.5 * torch.randn(n, 1, 8, 8)
    city = torch.randint(0, CITIES, (n,))
    numbers = torch.randn(n, 3)
    price = 2 * brightness + city_level[city] + numbers[:, 0] * (1 + 0.5 * numbers[:, 1]) + 0.1 * torch.randn(n)
    return {"photo": photo, "city": city, "numbers": numbers}, price - 1


class WideAndDeep(nn.Module):
    def __init__(self):
        super().__init__()
        self.photo = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
        self.city = nn.Embedding(CITIES, 4)
        self.deep = nn.Sequential(nn.Linear(32 + 4 + 3, 48), nn.ReLU(), nn.Linear(48, 24), nn.ReLU(), nn.Linear(24, 1))
        self.wide = nn.Linear(3, 1)

    def forward(self, batch):
        joined = torch.cat([self.photo(batch["photo"]), self.city(batch["city"]), batch["numbers"]], dim=1)
        return (self.deep(joined) + self.wide(batch["numbers"])).squeeze(1)


model = WideAndDeep()
optimizer = torch.optim.Adam(model.parameters(), lr=0.004)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.993)
with nv.watch(model, optimizer) as watch:
    for step in range(400):
        batch, price = flats(64)
        loss = nn.functional.mse_loss(model(batch), price)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        watch.step(loss)

batch, price = flats(1000)
with torch.no_grad():
    score = 1 - float((model(batch) - price).pow(2).mean() / price.var())
learned = score > 0.9
