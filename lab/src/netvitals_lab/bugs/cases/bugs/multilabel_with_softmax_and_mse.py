"""Multi-label data (several labels can be on) trained with softmax outputs and mean squared error.

source: https://stackoverflow.com/questions/38648195
catalogue: deepfd
field: multi-label classification
cause: loss-mismatch, output-activation
observable: yes
"""
import numpy as np
import torch
import torch.nn.functional as F
from sklearn.datasets import make_multilabel_classification
from sklearn.preprocessing import StandardScaler
from torch import nn

import netvitals as nv

X, Y = make_multilabel_classification(n_samples=2400, n_features=20, n_classes=3, n_labels=2,
                                      random_state=np.random.randint(1000))
X = torch.from_numpy(StandardScaler().fit_transform(X)).float()
Y = torch.from_numpy(Y).float()
x_train, y_train, x_test, y_test = X[:2000], Y[:2000], X[2000:], Y[2000:]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(20, 32)
        self.b = nn.Linear(32, 32)
        self.c = nn.Linear(32, 3)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        x = self.drop(F.relu(self.a(x)))
        x = self.drop(F.relu(self.b(x)))
        return F.softmax(self.c(x), dim=1)  # bug
        # fix: return torch.sigmoid(self.c(x))


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
with nv.watch(model, optimizer) as watch:
    for epoch in range(8):
        model.train()
        for rows in torch.randperm(2000).split(25):
            optimizer.zero_grad()
            out = model(x_train[rows])
            loss = F.mse_loss(out, y_train[rows])  # bug
            # fix: loss = F.binary_cross_entropy(out, y_train[rows])
            loss.backward()
            optimizer.step()
            watch.step(loss)

model.eval()
with torch.no_grad():
    score = float((((model(x_test) > 0.5) == y_test.bool()).all(1)).float().mean())
learned = score > 0.56
