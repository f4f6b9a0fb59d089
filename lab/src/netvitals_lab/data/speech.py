"""Recorded speech from folders of noisy and clean wave files with equal names, and how well noise was taken away."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from netvitals_lab.data.audio import Audio
from netvitals_lab.data.dataset import Dataset, Split, probe_of
from netvitals_lab.data.folder import missing, places

# the layout of VoiceBank with DEMAND noise, and a plain one
LAYOUTS = (
    ("noisy_trainset_28spk_wav", "clean_trainset_28spk_wav", "noisy_testset_wav", "clean_testset_wav"),
    ("train/noisy", "train/clean", "test/noisy", "test/clean"),
)


@dataclass(frozen=True)
class Speech:
    """Noisy and clean |STFT|^compression of pieces of ``seconds``, each (N, 1, window/2 + 1, frames).

    Defaults are those of MP-SENet: 16 kHz, pieces of two seconds, window 400, hop 100, compression 0.3. Sounds of
    another rate are resampled; what is left at the end of a sound is padded with silence.
    """

    file: str = ""  # the folder with the four folders
    rate: int = 16_000
    seconds: float = 2.0
    window: int = 400
    hop: int = 100
    compression: float = 0.3
    train: int | None = None  # keep so many sounds
    test: int | None = None

    def load(self, folder: Path | None) -> Dataset:
        observed = [Path(self.file).expanduser()] if self.file else []
        observed += places(folder, [self.file] if self.file else ["voicebank", "VoiceBank", "speech", ""])
        for place in observed:
            for layout in LAYOUTS:
                if all((place / part).is_dir() for part in layout):
                    train, test = (
                        self._pairs(place / layout[i], place / layout[i + 1], count)
                        for i, count in ((0, self.train), (2, self.test))
                    )
                    return Dataset(name="speech", train=train, test=test, probe=probe_of(test), task="values")
        raise missing("speech", [f"{part}/*.wav" for part in LAYOUTS[0]], observed)

    def _pairs(self, noisy: Path, clean: Path, count: int | None) -> Split:
        names = sorted(p.name for p in noisy.glob("*.wav"))[:count]
        absent = [n for n in names if not (clean / n).is_file()]
        if not names or absent:
            raise ValueError(
                f"{noisy} and {clean} must hold wave files of the same names, "
                + (f"{absent[0]} is only in the first" if absent else f"{noisy.name} has none")
            )
        form = Audio(samples=self._length, window=self.window, hop=self.hop, compression=self.compression)
        pieces: list[tuple[Tensor, Tensor]] = []
        for name in names:
            dirty, pure = (waveform(p / name, self.rate) for p in (noisy, clean))
            if len(dirty) != len(pure):
                raise ValueError(f"{name} is {len(dirty)} samples long with noise and {len(pure)} without")
            pieces.append((self._cut(dirty), self._cut(pure)))
        return Split(*(form.magnitudes(torch.cat(part)) for part in zip(*pieces)))

    @property
    def _length(self) -> int:
        return round(self.seconds * self.rate)

    def _cut(self, wave: Tensor) -> Tensor:
        count = max(1, -(-len(wave) // self._length))
        return torch.nn.functional.pad(wave, (0, count * self._length - len(wave))).view(count, self._length)


def waveform(path: Path, rate: int) -> Tensor:
    """One channel of a wave file between −1 and 1, resampled to ``rate``."""
    from scipy.io import wavfile
    from scipy.signal import resample_poly

    try:
        own, raw = wavfile.read(path)
    except ValueError as error:
        raise ValueError(f"{path} cannot be read as a wave file ({error})") from None
    top = float(np.iinfo(raw.dtype).max) if np.issubdtype(raw.dtype, np.integer) else 1.0
    wave = (raw if raw.ndim == 1 else raw[:, 0]).astype(np.float64) / top
    if own != rate:
        common = gcd(own, rate)
        wave = resample_poly(wave, rate // common, own // common)
    return torch.from_numpy(wave).float()


def si_sdr(estimate: Tensor, clean: Tensor) -> Tensor:
    r"""$10 \log_{10} (\|\alpha s\|^2/\|\alpha s - \hat s\|^2)$ decibels, $\alpha = \langle \hat s, s\rangle/\|s\|^2$.

    >>> clean = torch.tensor([1.0, -1.0, 1.0, -1.0])
    >>> round(float(si_sdr(3 * clean + torch.tensor([0.3, 0.3, -0.3, -0.3]), clean)), 4)
    20.0
    """
    if estimate.shape != clean.shape:
        raise ValueError(f"both sounds must have one shape, got {tuple(estimate.shape)} and {tuple(clean.shape)}")
    power = clean.square().sum(-1, keepdim=True).clamp_min(1e-12)
    target = (estimate * clean).sum(-1, keepdim=True) / power * clean
    noise = (estimate - target).square().sum(-1).clamp_min(1e-12)
    return 10 * torch.log10(target.square().sum(-1).clamp_min(1e-12) / noise)
