"""An overcomplete autoencoder with an L1 penalty: most code units are zero for most images, on purpose.

source: Ng, CS294A Sparse autoencoder (2011); https://transformer-circuits.pub/2023/monosemantic-features
field: autoencoder
unusual: more hidden units than inputs, most ReLU outputs are zero, loss has a second term, decoder columns are renormalised by hand
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv

TRUE, DIM, CODE = 24, 16, 48
dictionary = F.normalize(torch.randn(TRUE, DIM), dim=1)


def activations(n):
    amount = torch.rand(n, TRUE) * (torch.rand(n, TRUE) < 0.08)
    return 2 * amount @ dictionary


class SparseAutoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(DIM, CODE)
        self.decoder = nn.Linear(CODE, DIM)
        with torch.no_grad():
            self.decoder.weight.copy_(F.normalize(self.decoder.weight, dim=0))
            self.encoder.weight.copy_(self.decoder.weight.T)
            self.encoder.bias.zero_()

    def forward(self, x):
        code = F.relu(self.encoder(x))
        return self.decoder(code), code


model = SparseAutoencoder()
optimizer = torch.optim.Adam(model.parameters(), lr=0.003, betas=(0.9, 0.99))
with nv.watch(model, optimizer) as watch:
    for step in range(600):
        x = activations(128)
        reconstruction, code = model(x)
        loss = (reconstruction - x).pow(2).sum(1).mean() + 0.1 * code.sum(1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            model.decoder.weight.copy_(F.normalize(model.decoder.weight, dim=0))
        watch.step(loss)

x = activations(2000)
with torch.no_grad():
    reconstruction, code = model(x)
sparsity = float((code > 0.01).float().mean())
score = 1 - float((reconstruction - x).pow(2).mean() / x.var())
learned = score > 0.9 and sparsity < 0.3
