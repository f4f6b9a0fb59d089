"""An evaluation in the training loop puts the network into eval mode and nobody puts it back.

source: https://github.com/huggingface/lerobot/issues/3668 (and https://github.com/ThilinaRajapakse/simpletransformers/issues/941)
catalogue: github
field: imitation learning
cause: dropout-train-eval, batchnorm-train-eval
observable: yes
"""
import torch
from torch import nn

import netvitals as nv


class Policy(nn.Module):
    """Reads two noisy pictures of a cart with a pole and proposes a push."""

    def __init__(self):
        super().__init__()
        self.vision = nn.Sequential(nn.Conv2d(2, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
                                    nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
                                    nn.Flatten())
        self.act = nn.Sequential(nn.Linear(32 * 9, 64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 1))

    def forward(self, frames):
        return self.act(self.vision(frames)).squeeze(1)


def demonstrations(n):
    position, speed = torch.rand(n) * 2 - 1, torch.rand(n) * 0.8 - 0.4
    column = torch.linspace(-1.4, 1.4, 12)
    frames = [40 * torch.exp(-((column - (position + shift * speed)[:, None]) ** 2) / 0.05) for shift in (0, 1)]
    frames = torch.stack(frames, 1).unsqueeze(2).expand(n, 2, 12, 12)
    return 100 + frames + 15 * torch.randn(n, 2, 12, 12), -position - 2 * speed


def eval_policy(policy, frames, action):
    policy.eval()
    with torch.no_grad():
        error = float((policy(frames) - action).square().mean())
    # fix: policy.train()
    return error


frames, action = demonstrations(250)
test_frames, test_action = demonstrations(400)
policy = Policy()
optimizer = torch.optim.AdamW(policy.parameters(), lr=2e-3, weight_decay=1e-4)
history = []
with nv.watch(policy, optimizer) as watch:
    policy.train()
    for step in range(300):
        if step % 100 == 0:
            history.append(eval_policy(policy, test_frames, test_action))
        rows = torch.randint(0, 250, (32,))
        loss = (policy(frames[rows]) - action[rows]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

score = 1 - eval_policy(policy, test_frames, test_action) / float(test_action.var())
learned = score > 0.75
