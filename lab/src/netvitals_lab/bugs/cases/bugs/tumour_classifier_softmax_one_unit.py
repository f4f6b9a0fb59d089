"""Benign or malignant with Dense(1, softmax): every patient has probability 1.

source: https://stackoverflow.com/questions/42800203
catalogue: deepfd
field: tabular classification
cause: softmax-over-one-class
observable: yes
"""
import numpy as np
import torch
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import MinMaxScaler
from torch import nn
from torch.utils.data import DataLoader, Dataset

import netvitals as nv


class Patients(Dataset):
    def __init__(self, features, diagnosis):
        self.features = features.astype(np.float32)
        self.diagnosis = diagnosis.astype(np.float32)

    def __len__(self):
        return len(self.features)

    def __getitem__(self, i):
        return self.features[i], self.diagnosis[i]


X, y = load_breast_cancer(return_X_y=True)
X = MinMaxScaler().fit_transform(X)
parts = train_test_split(X, y, test_size=0.25, stratify=y)
train, test = Patients(parts[0], parts[2]), Patients(parts[1], parts[3])

model = nn.Sequential(nn.Linear(30, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 1),
                      nn.Softmax(dim=1),  # bug
                      # fix: nn.Sigmoid(),
                      )
optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
criterion = nn.BCELoss()
with nv.watch(model, optimizer) as watch:
    for epoch in range(20):
        for features, diagnosis in DataLoader(train, batch_size=32, shuffle=True):
            output = model(features).squeeze(1)
            loss = criterion(output, diagnosis)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)

with torch.no_grad():
    guess = model(torch.from_numpy(test.features)).squeeze(1) > 0.5
score = float((guess.numpy() == (test.diagnosis > 0.5)).mean())
learned = score > 0.9
