"""A denoiser of speech with magnitude and phase side by side, after MP-SENet: one encoder, two decoders."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from netvitals_lab.models.denoiser import ConvStage, DenoiserSpec
from netvitals_lab.models.transformer import EncoderBlock


@dataclass(frozen=True)
class TwoBranchSpec:
    """Compressed magnitude and phase (N, 2, bins, frames) in; the compressed complex spectrum, real and imaginary, out.

    Encoder convolutions, ``depth`` pairs of an encoder block over time and one over frequency, and two decoders: a mask
    2·sigmoid(m) for the magnitude, and two parallel convolutions whose angle is the phase. With the defaults the 2.26
    million parameters that MP-SENet has in print.
    """

    width: int = 112
    depth: int = 4
    heads: int = 4
    hidden: int = 272
    dilations: tuple[int, ...] = (1, 2, 4, 8)
    act: str = "relu"
    norm: str = "layer"
    dropout: float = 0.0

    def build(self) -> nn.Module:
        return TwoBranch(self)


class TwoBranch(nn.Module):
    """The network of a :class:`TwoBranchSpec`.

    >>> net = TwoBranchSpec(width=8, depth=1, heads=2, hidden=16, dilations=(1,)).build()
    >>> tuple(net(torch.rand(3, 2, 9, 5)).shape)
    (3, 2, 9, 5)
    """

    def __init__(self, spec: TwoBranchSpec) -> None:
        super().__init__()
        self.spec = spec
        of = DenoiserSpec(width=spec.width, act=spec.act, norm=spec.norm)
        stage = lambda n_in, dilation: ConvStage(n_in, spec.width, dilation, of)
        block = lambda: EncoderBlock(
            width=spec.width,
            heads=spec.heads,
            hidden=spec.hidden,
            act=spec.act,
            norms=spec.norm,
            dropout=spec.dropout,
        )
        decoder = lambda: nn.Sequential(*(stage(spec.width, d) for d in spec.dilations))
        self.encoder = nn.Sequential(stage(2, 1), *(stage(spec.width, d) for d in spec.dilations))
        self.time = nn.ModuleList(block() for _ in range(spec.depth))
        self.frequency = nn.ModuleList(block() for _ in range(spec.depth))
        self.magnitude, self.phase = decoder(), decoder()
        self.mask = nn.Conv2d(spec.width, 1, 1)
        self.real, self.imaginary = nn.Conv2d(spec.width, 1, 1), nn.Conv2d(spec.width, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        h = self.encoder(x)
        n, c, bins, frames = h.shape
        for over_time, over_frequency in zip(self.time, self.frequency):
            h = over_time(h.permute(0, 2, 3, 1).reshape(n * bins, frames, c))
            h = h.view(n, bins, frames, c).transpose(1, 2).reshape(n * frames, bins, c)
            h = over_frequency(h).view(n, frames, bins, c).permute(0, 3, 2, 1)
        size = x[:, :1] * 2 * self.mask(self.magnitude(h)).sigmoid()
        turned = self.phase(h)
        angle = torch.cat([self.real(turned), self.imaginary(turned)], 1)
        return size * angle / angle.square().sum(1, keepdim=True).add(1e-8).sqrt()


def spectra(waves: Tensor, *, window: int = 400, hop: int = 100, compression: float = 0.3) -> tuple[Tensor, Tensor]:
    r"""$(|X|^c,\arg X)$ and $|X|^c(\cos,\sin)$ of the short-time spectrum X: what a two-branch network reads and gives.

    >>> polar, complex_ = spectra(torch.randn(2, 64), window=16, hop=8)
    >>> torch.allclose(complex_.square().sum(1), polar[:, 0].square(), atol=1e-5)
    True
    """
    x = torch.stft(waves, window, hop, window=torch.hann_window(window), return_complex=True)
    size, angle = x.abs().pow(compression), x.angle()
    return torch.stack([size, angle], 1), torch.stack([size * angle.cos(), size * angle.sin()], 1)
