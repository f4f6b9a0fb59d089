"""Three percent of the parts are defect; plain binary cross-entropy says 'fine' to all of them.

source: Humbatova et al., Taxonomy of Real Faults (ICSE 2020), leaf "unbalanced training data" (interviews)
catalogue: humbatova
field: imbalanced classification
cause: class-imbalance
observable: yes
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv


def parts(n):
    defect = (torch.rand(n) < 0.03).float()
    x = torch.randn(n, 6)
    x[:, :3] += 1.1 * defect[:, None]
    return x, defect


x_train, y_train = parts(5000)
x_test, y_test = parts(5000)
model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))
adam = torch.optim.Adam(model.parameters(), lr=0.003)
weight = None  # bug
# fix: weight = (y_train == 0).sum() / (y_train == 1).sum()

with nv.watch(model, adam) as watch:
    for epoch in range(5):
        for rows in torch.randperm(len(x_train)).split(64):
            logit = model(x_train[rows]).squeeze(1)
            loss = F.binary_cross_entropy_with_logits(logit, y_train[rows], pos_weight=weight)
            adam.zero_grad()
            loss.backward()
            adam.step()
            watch.step(loss)

with torch.no_grad():
    flagged = model(x_test).squeeze(1) > 0
recall = float(flagged[y_test == 1].float().mean())
specificity = float((~flagged[y_test == 0]).float().mean())
score = (recall + specificity) / 2
learned = score > 0.68
