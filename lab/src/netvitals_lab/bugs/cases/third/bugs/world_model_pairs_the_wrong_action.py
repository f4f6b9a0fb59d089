"""World model: an observation is predicted from the action before last, because actions and observations are off by one.

source: https://github.com/epignatelli/navix/pull/152
catalogue: github
field: world models (Dreamer)
cause: labels-wrong, layout-mixed
observable: no, observations, actions and losses look as they should; only the meaning of the columns differs
"""
import torch
from torch import nn

import netvitals as nv

LENGTH = 12


def episodes(n):
    """A ball with inertia that is pushed at random."""
    obs, act = [torch.randn(n, 2)], []
    for _ in range(LENGTH):
        a = torch.randint(0, 3, (n, 1)).float() - 1
        v = 0.9 * obs[-1][:, 1:] + 0.3 * a
        obs.append(torch.cat([obs[-1][:, :1] + 0.3 * v, v], 1))
        act.append(a)
    return torch.stack(obs, 1), torch.stack(act, 1)


class WorldModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(3, 48)
        self.decode = nn.Sequential(nn.Linear(48, 48), nn.ELU(), nn.Linear(48, 2))

    def observe(self, obs, act):
        h, out = torch.zeros(len(obs), 48), []
        for t in range(1, LENGTH):
            h = self.cell(torch.cat([obs[:, t], act[:, t - 1]], 1), h)  # bug
            # fix: h = self.cell(torch.cat([obs[:, t], act[:, t]], 1), h)
            out.append(obs[:, t] + self.decode(h))
        return torch.stack(out, 1)


model = WorldModel()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, eps=1e-5)
with nv.watch(model, optimizer) as watch:
    for step in range(300):
        obs, act = episodes(64)
        loss = (model.observe(obs, act) - obs[:, 2:]).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 100.0)
        optimizer.step()
        watch.step(loss)

with torch.no_grad():
    obs, act = episodes(500)
    change = obs[:, 2:, 1] - obs[:, 1:-1, 1]
    score = 1 - float((model.observe(obs, act) - obs[:, 2:])[..., 1].pow(2).mean() / change.var())
learned = score > 0.8
