"""Every loader worker starts each epoch from the same random state: the same augmentation again and again.

source: https://stackoverflow.com/questions/67180955 and https://tanelp.github.io/posts/a-bug-that-plagues-thousands-of-open-source-ml-projects/
catalogue: traincheck
field: image classification with augmentation
cause: augmentation-wrong
observable: yes
"""
import copy

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import netvitals as nv

digits = load_digits()
rows = np.random.permutation(len(digits.target))
train_rows, test_rows = rows[:60], rows[800:]


class Augmented:
    def __init__(self, rows):
        self.rows = rows
        self.rng = np.random.RandomState(np.random.randint(2**31))

    def __getitem__(self, i):
        image = digits.images[self.rows[i]] / 16
        image = np.roll(image, self.rng.randint(-1, 2, 2), (0, 1))
        image = image * self.rng.uniform(0.6, 1.4) + 0.15 * self.rng.randn(8, 8)
        return torch.tensor(image, dtype=torch.float32)[None], int(digits.target[self.rows[i]])


def load(dataset, batch_size, workers=2):
    """A forking loader: every epoch each worker gets a copy of the data set and every second batch."""
    copies = [copy.deepcopy(dataset) for _ in range(workers)]
    # fix: for fork in copies:
    # fix:     fork.rng = np.random.RandomState(torch.randint(2**31, ()).item())
    order = torch.arange(len(dataset.rows))
    for number, batch in enumerate(order.split(batch_size)):
        images, labels = zip(*(copies[number % workers][i] for i in batch.tolist()))
        yield torch.stack(images), torch.tensor(labels)


model = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(),
                      nn.MaxPool2d(2), nn.Flatten(), nn.Linear(512, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
train_set = Augmented(train_rows)
with nv.watch(model, optimizer) as watch:
    for epoch in range(160):
        for images, labels in load(train_set, 15):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            watch.step(loss)

x = torch.tensor(np.stack([np.roll(digits.images[r] / 16, (r % 3 - 1, r // 3 % 3 - 1), (0, 1)) for r in test_rows]))
with torch.no_grad():
    guess = model(x.float()[:, None]).argmax(1)
score = float((guess == torch.tensor(digits.target[test_rows])).float().mean())
learned = score > 0.72
