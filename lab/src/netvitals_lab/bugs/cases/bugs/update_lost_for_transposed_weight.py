"""A sparse autoencoder whose encoder starts as decoder.weight.T: the update of the non-contiguous weight is lost.

source: https://elanapearl.github.io/blog/2025/the-bug-that-taught-me-pytorch/
catalogue: traincheck
field: sparse autoencoder
cause: update-lost NEW, frozen-by-mistake
observable: yes
"""
import torch
from torch import nn

import netvitals as nv


class Adam(torch.optim.Optimizer):
    """Adam with a fused kernel that works on contiguous memory only."""

    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})
        self.t = 0

    @torch.no_grad()
    def step(self):
        self.t += 1
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["m"], state["v"] = torch.zeros_like(p), torch.zeros_like(p)
                state["m"].lerp_(p.grad, 0.1)
                state["v"].lerp_(p.grad.square(), 0.001)
                m, v = state["m"] / (1 - 0.9**self.t), state["v"] / (1 - 0.999**self.t)
                weights = p.contiguous()  # the kernel wants contiguous memory
                weights.addcdiv_(m, v.sqrt() + 1e-8, value=-group["lr"])
                # fix: p.copy_(weights)


class SparseAutoencoder(nn.Module):
    def __init__(self, inputs, features):
        super().__init__()
        self.encoder = nn.Linear(inputs, features)
        self.decoder = nn.Linear(features, inputs)
        self.encoder.weight = nn.Parameter(self.decoder.weight.detach().T.clone())  # starts tied, is then trained apart

    def forward(self, x):
        code = torch.relu(self.encoder(x - self.decoder.bias))
        return self.decoder(code), code


dictionary = nn.functional.normalize(torch.randn(48, 24), dim=1)
active = (torch.rand(4096, 48) < 0.05) * torch.rand(4096, 48) * 2
activations = active @ dictionary

model = SparseAutoencoder(24, 64)
optimizer = Adam(model.parameters(), lr=5e-3)
before = model.encoder.weight.detach().clone()
with nv.watch(model, optimizer) as watch:
    for step in range(600):
        x = activations[torch.randint(0, 4096, (256,))]
        reconstruction, code = model(x)
        loss = (reconstruction - x).square().sum(1).mean() + 0.02 * code.abs().sum(1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

with torch.no_grad():
    reconstruction, _ = model(activations)
    score = 1 - float((reconstruction - activations).square().sum() / (activations - activations.mean(0)).square().sum())
learned = score > 0.9 and float((model.encoder.weight - before).abs().max()) > 0.01
