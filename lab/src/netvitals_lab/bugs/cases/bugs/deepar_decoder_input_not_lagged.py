"""DeepAR: the target's own value at time t stands in the input at time t, because the lag is missing.

source: https://github.com/sktime/pytorch-forecasting/issues/182
catalogue: github
field: forecasting (DeepAR)
cause: label-is-input
observable: yes
"""
import torch
from torch import nn
from torch.distributions import Normal

import netvitals as nv


def sales(n, length=40):
    t = torch.arange(length).float()
    level, phase = 1 + torch.rand(n, 1), torch.rand(n, 1) * 7
    y = level + torch.sin(2 * torch.pi * (t + phase) / 7) + 0.15 * torch.randn(n, length)
    covariates = torch.stack([torch.sin(2 * torch.pi * t / 7), torch.cos(2 * torch.pi * t / 7)], 1)
    return y, covariates.expand(n, -1, -1)


class DeepAR(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.rnn = nn.LSTM(3, hidden, batch_first=True)
        self.location, self.scale = nn.Linear(hidden, 1), nn.Linear(hidden, 1)

    def step(self, inputs, state=None):
        h, state = self.rnn(inputs, state)
        return Normal(self.location(h).squeeze(-1), nn.functional.softplus(self.scale(h)).squeeze(-1) + 1e-2), state

    def forward(self, y, covariates):
        target_input = y[:, 1:]  # bug
        # fix: target_input = y[:, :-1]
        return self.step(torch.cat([target_input.unsqueeze(-1), covariates[:, 1:]], -1))[0]

    @torch.no_grad()
    def predict(self, y, covariates, horizon=7):
        """Feeds the predicted means back."""
        n, past = len(y), y.size(1) - horizon
        _, state = self.step(torch.cat([y[:, : past - 1].unsqueeze(-1), covariates[:, 1:past]], -1))
        value, means = y[:, past - 1], []
        for t in range(past, past + horizon):
            distribution, state = self.step(torch.cat([value[:, None, None], covariates[:, t : t + 1]], -1), state)
            value = distribution.mean.squeeze(1)
            means.append(value)
        return torch.stack(means, 1)


model = DeepAR()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
with nv.watch(model, optimizer) as watch:
    for step in range(250):
        y, covariates = sales(32)
        loss = -model(y, covariates).log_prob(y[:, 1:]).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        optimizer.step()
        watch.step(loss)

y, covariates = sales(200)
score = 1 - float((model.predict(y, covariates) - y[:, -7:]).pow(2).mean() / y[:, -7:].var())
learned = score > 0.8
