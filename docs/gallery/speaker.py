"""A speaker encoder (three LSTM layers, from Resemblyzer): a checkup of its weights, then a fine-tune for 60 steps.

    pip install --no-deps resemblyzer
    python docs/gallery/speaker.py

The package carries the weights (Apache-2.0); nothing else is fetched. The voices are made here: a pulse train and two
formants each, four voices.
"""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path

import torch
from exhibit import Piece, pretrained
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

VOICES = ((110.0, 700.0, 1200.0), (150.0, 500.0, 1700.0), (190.0, 600.0, 1000.0), (230.0, 400.0, 2000.0))
RATE, WINDOW, HOP, CHANNELS = 16_000, 400, 160, 40


class Encoder(nn.Module):
    """LSTM, the last state, linear, ReLU, unit length; and a new head that tells the voices apart."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(CHANNELS, width, layers, batch_first=True)
        self.linear, self.relu = nn.Linear(width, width), nn.ReLU()
        self.head = nn.Linear(width, len(VOICES))

    def forward(self, mels: Tensor) -> Tensor:
        _, (hidden, _) = self.lstm(mels)
        voice = self.relu(self.linear(hidden[-1]))
        return self.head(10 * voice / voice.norm(dim=1, keepdim=True))


def weights() -> dict[str, Tensor]:
    found = importlib.util.find_spec("resemblyzer")
    if found is None or found.origin is None:
        raise SystemExit("pip install --no-deps resemblyzer brings the weights; or try --smoke")
    return torch.load(Path(found.origin).parent / "pretrained.pt", map_location="cpu", weights_only=True)["model_state"]


def mel_filters() -> Tensor:
    """Triangles that lie evenly on the mel scale, (frequencies, channels)."""
    mel = torch.linspace(0, 2595 * math.log10(1 + RATE / 2 / 700), CHANNELS + 2)
    edges = 700 * (10 ** (mel / 2595) - 1)
    low, middle, high = edges[:-2], edges[1:-1], edges[2:]
    f = torch.linspace(0, RATE / 2, WINDOW // 2 + 1)[:, None]
    up, down = (f - low) / (middle - low), (high - f) / (high - middle)
    return torch.minimum(up, down).clamp_min(0) * 2 / (high - low)


def piece(smoke: bool) -> Piece:
    torch.manual_seed(0)
    model = Encoder(*((8, 1) if smoke else (256, 3)))
    if not smoke:
        unused = model.load_state_dict(weights(), strict=False).missing_keys
        assert set(unused) == {"head.weight", "head.bias"}, unused
    filters, frames, batch = mel_filters(), 12 if smoke else 60, 8

    def draw(step: int) -> tuple[Tensor, Tensor]:
        chosen = torch.Generator().manual_seed(step)
        who = torch.randint(len(VOICES), (batch,), generator=chosen)
        pitch, *formants = torch.tensor(VOICES)[who].T[..., None]
        pitch = pitch * (1 + 0.05 * torch.randn(batch, 1, generator=chosen))
        t = torch.arange(frames * HOP) / RATE
        wave = 0.01 * torch.randn(batch, len(t), generator=chosen)
        for k in range(1, 20):  # harmonics, louder near a formant
            loud = sum(torch.exp(-(((k * pitch - f) / 150) ** 2)) for f in formants) + 0.02
            wave = wave + loud * torch.sin(2 * math.pi * k * pitch * t)
        wave = 0.03 * wave / wave.std(1, keepdim=True)
        spectrum = torch.stft(wave, WINDOW, HOP, window=torch.hann_window(WINDOW), return_complex=True).abs() ** 2
        return spectrum.transpose(1, 2) @ filters, who

    return Piece(
        name="speaker",
        model=model,
        optimizer=torch.optim.Adam(model.parameters(), lr=1e-3 if smoke else 1e-4),
        loss_fn=cross_entropy,
        draw=draw,
        steps=22 if smoke else 60,
        every=2,
    )


if __name__ == "__main__":
    pretrained(piece, "Speaker encoder", __doc__ or "")
