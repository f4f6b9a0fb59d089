"""Synthetic sound for the denoiser: harmonic tones under noise, as compressed magnitude spectrograms."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Generator, Tensor

from netvitals_lab.data.dataset import Dataset, Split, probe_of


@dataclass(frozen=True)
class Audio:
    """Noisy and clean |STFT|^compression of tones, each (N, 1, bins, frames) with bins = window/2 + 1.

    A sound is three notes, each with four harmonics falling as 1/k and an envelope that rises and decays; white
    noise is added at a signal-to-noise ratio drawn between ``snr_low`` and ``snr_high`` decibels.
    """

    samples: int = 1024
    window: int = 64
    hop: int = 32
    compression: float = 0.3
    snr_low: float = 0.0
    snr_high: float = 15.0
    count: int = 256
    test: int = 64
    seed: int = 0

    def load(self, folder: Path | None) -> Dataset:
        if self.samples < self.window:
            raise ValueError(f"a sound of {self.samples} samples is shorter than the window of {self.window}")

        def draw(count: int, g: Generator) -> tuple[Tensor, Tensor]:
            noisy, clean = self.sounds(count, g)
            return self.magnitudes(noisy), self.magnitudes(clean)

        generator = torch.Generator().manual_seed(self.seed)
        train, test = Split(*draw(self.count, generator)), Split(*draw(self.test, generator))
        return Dataset(name="audio", train=train, test=test, probe=probe_of(test), task="values", draw=draw)

    def sounds(self, count: int, g: Generator) -> tuple[Tensor, Tensor]:
        """Waveforms (count, samples): with noise, and clean."""
        time = torch.arange(self.samples) / self.samples
        notes, harmonics = 3, torch.arange(1, 5)
        # cycles over the sound, so that the fourth harmonic stays below the Nyquist frequency
        pitch = (0.02 + 0.08 * torch.rand(count, notes, 1, 1, generator=g)) * self.samples
        phase = 2 * math.pi * torch.rand(count, notes, 4, 1, generator=g)
        start, decay = torch.rand(2, count, notes, 1, generator=g)
        waves = torch.sin(2 * math.pi * pitch * harmonics.view(1, 1, 4, 1) * time + phase) / harmonics.view(1, 1, 4, 1)
        since = (time - 0.7 * start).clamp_min(0)
        envelope = (since > 0) * (1 - torch.exp(-50 * since)) * torch.exp(-(1 + 4 * decay) * since)
        clean = (waves.sum(2) * envelope).sum(1)
        clean = clean / clean.std(1, keepdim=True).clamp_min(1e-6)
        decibels = self.snr_low + (self.snr_high - self.snr_low) * torch.rand(count, 1, generator=g)
        return clean + torch.randn(count, self.samples, generator=g) * 10 ** (-decibels / 20), clean

    def magnitudes(self, waves: Tensor) -> Tensor:
        """(N, samples) to (N, 1, bins, frames)."""
        spectrum = torch.stft(waves, self.window, self.hop, window=torch.hann_window(self.window), return_complex=True)
        return spectrum.abs().pow(self.compression).unsqueeze(1)
