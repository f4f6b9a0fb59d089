"""A flow-matching planner is trained by regressing its Euler rollout from noise: it learns the mean of all plans.

source: https://github.com/autowarefoundation/auto_e2e/issues/115
catalogue: github
field: trajectory planning (flow matching)
cause: loss-mismatch
observable: no, the regression loss falls to the spread of the plans, as it would for any noisy target
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv

POINTS = 6


def scenes(n):
    """An obstacle ahead; a driver passes it on the left or on the right."""
    where = torch.rand(n, 1) * 2 - 1
    side = torch.randint(0, 2, (n, 1)) * 2.0 - 1
    s = torch.linspace(0, 1, POINTS).unsqueeze(0)
    return where, side * torch.exp(-8 * (s - 0.5 - 0.2 * where).pow(2)) + 0.03 * torch.randn(n, POINTS)


class FlowMatchingPlanner(nn.Module):
    def __init__(self, steps=6):
        super().__init__()
        self.steps = steps
        self.net = nn.Sequential(nn.Linear(POINTS + 2, 96), nn.SiLU(), nn.Linear(96, 96), nn.SiLU(), nn.Linear(96, POINTS))

    def velocity(self, x, t, scene):
        return self.net(torch.cat([x, t, scene], 1))

    def forward(self, scene):
        x = torch.randn(len(scene), POINTS)
        for k in range(self.steps):
            x = x + self.velocity(x, torch.full((len(x), 1), k / self.steps), scene) / self.steps
        return x

    def compute_planner_loss(self, scene, plan):
        x0, t = torch.randn_like(plan), torch.rand(len(plan), 1)
        return F.mse_loss(self.velocity((1 - t) * x0 + t * plan, t, scene), plan - x0)


planner = FlowMatchingPlanner()
optimizer = torch.optim.AdamW(planner.parameters(), lr=2e-3)
with nv.watch(planner, optimizer) as watch:
    for step in range(600):
        scene, plan = scenes(128)
        loss = F.smooth_l1_loss(planner(scene), plan)  # bug
        # fix: loss = planner.compute_planner_loss(scene, plan)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

with torch.no_grad():
    plan = planner(scenes(1000)[0])
score = float((plan.abs().max(1)[0] > 0.7).float().mean())  # passes the obstacle at a distance
learned = score > 0.7
