"""Early stopping keeps model.state_dict() without a copy: the "best" weights are always the last ones.

source: https://github.com/pytorch/tutorials/pull/188
catalogue: github
field: regression with early stopping
cause: checkpoint-misuse
observable: no, the stored reference is outside of the training process; only the restored weights differ
silent: yes
"""
import copy

import torch
from sklearn.datasets import load_diabetes
from torch import nn

import netvitals as nv

data = load_diabetes()
x = torch.tensor(data.data, dtype=torch.float32) * 20
y = torch.tensor(data.target, dtype=torch.float32).unsqueeze(1)
y = (y - y.mean()) / y.std()
order = torch.randperm(len(x))
train, validation = order[:120], order[120:]


def train_model(model, criterion, optimizer, num_epochs, watch):
    best_model_wts = copy.deepcopy(model.state_dict())
    best_loss = float("inf")
    for epoch in range(num_epochs):
        model.train()
        for rows in train[torch.randperm(len(train))].split(20):
            optimizer.zero_grad()
            loss = criterion(model(x[rows]), y[rows])
            loss.backward()
            optimizer.step()
            watch.step(loss)
        model.eval()
        with torch.no_grad():
            epoch_loss = criterion(model(x[validation]), y[validation]).item()
        if epoch_loss < best_loss:
            best_loss = epoch_loss
            best_model_wts = model.state_dict()  # bug
            # fix: best_model_wts = copy.deepcopy(model.state_dict())
    model.load_state_dict(best_model_wts)
    return model, best_loss


model = nn.Sequential(nn.Linear(10, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
with nv.watch(model, optimizer) as watch:
    model, best_loss = train_model(model, nn.MSELoss(), optimizer, 80, watch)

with torch.no_grad():
    restored = float((model(x[validation]) - y[validation]).square().mean())
score = best_loss - restored
learned = abs(score) < 1e-5 and best_loss < 0.9
