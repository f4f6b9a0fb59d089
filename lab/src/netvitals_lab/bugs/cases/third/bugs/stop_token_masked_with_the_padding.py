"""Speech decoder: the stop loss is masked like the frames, so all that is left of "stop" is one frame in hundreds.

source: https://github.com/coqui-ai/TTS/issues/1192
catalogue: github
field: speech synthesis (stop token)
cause: ignore-index, class-imbalance
observable: yes
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv

LENGTH = 60


def utterances(n):
    """Frames of a voice that breaks off into silence; the decoder has to say when the voice is over."""
    length = torch.randint(15, 50, (n, 1))
    t = torch.arange(LENGTH)
    energy = (t < length).float() + 0.3 * torch.randn(n, LENGTH)
    pitch = torch.where(t < length, (t * 0.9).sin(), 0.0 * t) + 0.5 * torch.randn(n, LENGTH)
    return torch.stack([energy, pitch], 2), length.squeeze(1)


class StopNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.out = nn.GRU(2, 24, batch_first=True), nn.Linear(24, 1)

    def forward(self, x):
        return self.out(self.rnn(x)[0]).squeeze(2)


def stop_loss(logits, length):
    t = torch.arange(LENGTH)
    target = (t >= length.unsqueeze(1) - 1).float()
    mask = (t < length.unsqueeze(1)).float()
    loss = F.binary_cross_entropy_with_logits(logits, target, reduction="none")
    return (loss * mask).sum() / mask.sum()  # bug
    # fix: return loss.mean()


net = StopNet()
optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
with nv.watch(net, optimizer) as watch:
    for step in range(250):
        x, length = utterances(32)
        loss = stop_loss(net(x), length)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        watch.step(loss)

with torch.no_grad():
    x, length = utterances(400)
    stop = net(x) > 0
first = torch.where(stop.any(1), stop.float().argmax(1), torch.tensor(LENGTH))
score = float(((first - length).abs() < 10).float().mean())
learned = score > 0.7
