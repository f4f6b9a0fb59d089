"""Census-like columns (weights of 200000, gains of 10000, codes of 0..15) straight into a small classifier.

source: https://stackoverflow.com/questions/47724077
catalogue: deepfd
field: tabular classification
cause: inputs-not-scaled
observable: yes
"""
import numpy as np
import torch
from sklearn.preprocessing import StandardScaler
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import netvitals as nv

n = 3000
age = np.random.randint(17, 80, n)
fnlwgt = np.random.lognormal(12, 0.5, n)
gain = np.where(np.random.rand(n) < 0.1, np.random.rand(n) * 20000, 0)
education = np.random.randint(1, 17, n)
hours = np.random.normal(40, 10, n)
workclass, married = np.random.randint(0, 8, n), np.random.randint(0, 2, n)
rich = 0.35 * (education - 9) + 1.2 * (married - 0.5) + 0.05 * (hours - 40) + 0.03 * (age - 45) + (gain > 5000) * 3 - 0.7
Y = (rich + 0.3 * np.random.randn(n) > 0).astype("int64")
X = np.stack([age, fnlwgt, gain, education, hours, workclass, married], axis=1)
# fix: X = StandardScaler().fit_transform(X)
X, Y = torch.tensor(X, dtype=torch.float32), torch.tensor(Y)
x_test, y_test = X[2500:], Y[2500:]

model = nn.Sequential(nn.Linear(7, 21), nn.ReLU(), nn.Linear(21, 2))
adam = torch.optim.Adam(model.parameters(), lr=0.003)
cross_entropy = nn.CrossEntropyLoss()
train = DataLoader(TensorDataset(X[:2500], Y[:2500]), batch_size=100, shuffle=True)

with nv.watch(model, adam) as watch:
    for epoch in range(20):
        for features, target in train:
            adam.zero_grad()
            loss = cross_entropy(model(features), target)
            loss.backward()
            adam.step()
            watch.step(loss)

with torch.no_grad():
    score = float((model(x_test).argmax(1) == y_test).float().mean())
learned = score > 0.87
