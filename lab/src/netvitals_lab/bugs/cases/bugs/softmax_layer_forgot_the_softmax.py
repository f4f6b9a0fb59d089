"""A "softmax layer" that is only the linear map, under a negative log-likelihood.

source: https://github.com/gabrieleangeletti/Deep-Learning-TensorFlow/issues/5 (gDefects4DL deep-learning-tensorflow5)
catalogue: gdefects4dl
field: convolutional network
cause: missing-log-softmax
observable: yes
"""
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import netvitals as nv


class SoftmaxLayer(nn.Module):
    def __init__(self, n_inputs, n_classes):
        super().__init__()
        self.linear = nn.Linear(n_inputs, n_classes)

    def forward(self, x):
        return self.linear(x)  # bug
        # fix: return self.linear(x).log_softmax(dim=1)


class ConvolutionalNetwork(nn.Module):
    def __init__(self, layers="conv-pool-full-softmax"):
        super().__init__()
        built, channels = [], 1
        for kind in layers.split("-"):
            if kind == "conv":
                built += [nn.Conv2d(channels, 16, 3, padding=1), nn.ReLU()]
            elif kind == "pool":
                built += [nn.MaxPool2d(2), nn.Flatten()]
            elif kind == "full":
                built += [nn.Linear(16 * 16, 64), nn.ReLU(), nn.Dropout(0.25)]
            elif kind == "softmax":
                built += [SoftmaxLayer(64, 10)]
        self.layers = nn.Sequential(*built)

    def forward(self, x):
        return self.layers(x)

    def fit(self, loader, epochs, optimizer, watch):
        cost = nn.NLLLoss()
        for _ in range(epochs):
            for images, labels in loader:
                optimizer.zero_grad()
                loss = cost(self(images), labels)
                loss.backward()
                optimizer.step()
                watch.step(loss)


digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
labels = torch.tensor(digits.target)
network = ConvolutionalNetwork()
optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
loader = DataLoader(TensorDataset(images[:1500], labels[:1500]), batch_size=64, shuffle=True)
with nv.watch(network, optimizer) as watch:
    network.fit(loader, 15, optimizer, watch)
network.eval()
score = float((network(images[1500:]).argmax(1) == labels[1500:]).float().mean())
learned = score > 0.85
