"""Sound in [-1, 1] is stored as 16-bit integers without scaling: every spectrogram is the floor of -80 dB.

source: https://github.com/keunwoochoi/kapre/issues/36
catalogue: github
field: audio classification (mel spectrograms)
cause: inputs-lost
observable: yes
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv

RATE, SAMPLES = 2000, 1000
t = torch.arange(SAMPLES) / RATE


def sounds(n):
    """Four instruments: overtones of different strength on a tone of any height."""
    kind = torch.randint(0, 4, (n,))
    pitch = 80 + 120 * torch.rand(n, 1)
    strength = torch.tensor([[1, 0, 0, 0], [1, 0.8, 0, 0], [1, 0, 0.8, 0], [1, 0.6, 0.6, 0.6]])[kind]
    waves = [strength[:, k : k + 1] * (2 * torch.pi * (k + 1) * pitch * t + 6 * torch.rand(n, 1)).sin() for k in range(4)]
    return 0.3 * sum(waves) + 0.01 * torch.randn(n, SAMPLES), kind


def pickle(wave):
    return wave.to(torch.int16)  # bug
    # fix: return (wave * 32767).clamp(-32768, 32767).to(torch.int16)


def spectrogram(wave):
    power = torch.stft(wave.float() / 32767, 128, 64, window=torch.hann_window(128), return_complex=True).abs().pow(2)
    decibel = 10 * torch.log10(power.clamp(min=1e-10))
    top = decibel.amax((1, 2), keepdim=True).clamp(min=0)
    return (torch.maximum(decibel, top - 80) / 40 + 1).unsqueeze(1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(1, 16, (7, 3), (2, 2)), nn.ReLU(), nn.Conv2d(16, 32, (7, 3), (2, 2)), nn.ReLU())
        self.fc = nn.Linear(32 * 12, 4)

    def forward(self, x):
        return self.fc(self.conv(x).mean(3).flatten(1))


wave, label = sounds(800)
stored = pickle(wave)
model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
with nv.watch(model, optimizer) as watch:
    for epoch in range(12):
        for i in torch.randperm(800).split(32):
            loss = F.cross_entropy(model(spectrogram(stored[i])), label[i])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)

wave, label = sounds(300)
score = float((model(spectrogram(pickle(wave))).argmax(1) == label).float().mean())
learned = score > 0.8
