"""model.eval() is missing in the validation loop: every reported accuracy is measured with dropout active.

source: https://twitter.com/karpathy/status/1013244313327681536 ("you forgot to toggle train/eval mode for the net")
catalogue: blog
field: image classification
cause: dropout-train-eval
observable: yes
"""
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

import netvitals as nv

digits = load_digits()
everything = TensorDataset(torch.tensor(digits.data / 16).float(), torch.tensor(digits.target))
train_set, val_set = random_split(everything, [1400, 397])
model = nn.Sequential(
    nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.6),
    nn.Linear(128, 128), nn.ReLU(), nn.Dropout(0.6),
    nn.Linear(128, 10),
)
optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
criterion = nn.CrossEntropyLoss()


def accuracy(loader):
    # fix: model.eval()
    correct = 0
    with torch.no_grad():
        for x, y in loader:
            correct += int((model(x).argmax(1) == y).sum())
    return correct / len(loader.dataset)


history = []
with nv.watch(model, optimizer) as watch:
    for epoch in range(8):
        model.train()
        for x, y in DataLoader(train_set, batch_size=50, shuffle=True):
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            watch.step(loss)
        history.append(accuracy(DataLoader(val_set, batch_size=100)))

score = history[-1]
learned = score > 0.93
