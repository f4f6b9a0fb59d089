"""Passenger table: ticket and cabin strings become codes of 0..900 and are not scaled; predictions hardly vary.

source: https://stackoverflow.com/questions/31627380
catalogue: deepfd
field: tabular classification
cause: inputs-not-scaled
observable: yes
"""
import numpy as np
import torch
import torch.nn.functional as F
from sklearn.preprocessing import LabelEncoder
from torch import nn

import netvitals as nv

n = 1200
sex = np.random.choice(["male", "female"], n)
klass = np.random.choice([1, 2, 3], n, p=[0.25, 0.25, 0.5])
age = np.clip(np.random.normal(30, 14, n), 1, 80)
ticket = np.array([f"T{v}" for v in np.random.randint(0, 2000, n)])
cabin = np.array([f"C{v}" for v in np.random.randint(0, 400, n)])
fare = np.random.gamma(1.5, 25, n) * (4 - klass) ** 2
survived = (2.2 * (sex == "female") - 0.9 * klass - 0.03 * age + 1.8 + 0.3 * np.random.randn(n) > 0).astype(int)
columns = [klass, sex, age, ticket, fare, cabin]
encoded = [LabelEncoder().fit_transform(c) if c.dtype.kind == "U" else c for c in columns]
table = np.stack(encoded, axis=1).astype("float32")
# fix: table = (table - table.mean(axis=0)) / table.std(axis=0)
table, survived = torch.from_numpy(table), torch.from_numpy(survived)


class Classifier(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.inner = nn.Linear(len(columns), width)
        self.outer = nn.Linear(width, 2)

    def forward(self, rows):
        rows = F.dropout(F.relu(self.inner(rows)), 0.5, training=self.training)
        return F.log_softmax(self.outer(rows), dim=1)


model = Classifier()
optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
with nv.watch(model, optimizer) as watch:
    for epoch in range(10):
        for pick in torch.randperm(1000).split(16):
            optimizer.zero_grad()
            loss = F.nll_loss(model(table[pick]), survived[pick])
            loss.backward()
            optimizer.step()
            watch.step(loss)

model.eval()
with torch.no_grad():
    score = float((model(table[1000:]).argmax(1) == survived[1000:]).float().mean())
learned = score > 0.85
