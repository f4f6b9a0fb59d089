"""A small denoiser of spectrograms: convolutions, attention over time and over frequency, a mask."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from netvitals_lab.models.parts import activation, conv, norm
from netvitals_lab.models.transformer import EncoderBlock


@dataclass(frozen=True)
class DenoiserSpec:
    """Compressed magnitudes (N, 1, bins, frames) in, cleaned magnitudes of the same shape out.

    Encoder convolutions, ``depth`` pairs of an encoder block over time and one over frequency, decoder
    convolutions, and a mask 2·sigmoid(m) that multiplies the input. Only the magnitude branch of two-branch
    speech networks is modelled; the phase is left to the caller.
    """

    width: int = 16
    depth: int = 1
    heads: int = 4
    hidden: int = 64
    dilations: tuple[int, ...] = (1, 2)
    act: str = "relu"
    norm: str = "layer"
    dropout: float = 0.0

    def build(self) -> nn.Module:
        return Denoiser(self)


class ConvStage(nn.Module):
    """f(norm(conv x)), added to x when the widths agree."""

    def __init__(self, n_in: int, n_out: int, dilation: int, spec: DenoiserSpec):
        super().__init__()
        self.conv = conv(n_in, n_out, 3, bias=True, dilation=dilation)
        self.norm = norm(spec.norm, n_out, 4)
        self.act = activation(spec.act)
        self.residual = n_in == n_out

    def forward(self, x: Tensor) -> Tensor:
        y = self.act(self.norm(self.conv(x)))
        return x + y if self.residual else y


class Denoiser(nn.Module):
    def __init__(self, spec: DenoiserSpec):
        super().__init__()
        self.spec = spec

        def stage(n_in: int, dilation: int) -> ConvStage:
            return ConvStage(n_in, spec.width, dilation, spec)

        def block() -> EncoderBlock:
            return EncoderBlock(
                width=spec.width,
                heads=spec.heads,
                hidden=spec.hidden,
                act=spec.act,
                norms=spec.norm,
                dropout=spec.dropout,
            )

        self.encoder = nn.Sequential(stage(1, 1), *(stage(spec.width, d) for d in spec.dilations))
        self.time = nn.ModuleList(block() for _ in range(spec.depth))
        self.frequency = nn.ModuleList(block() for _ in range(spec.depth))
        self.decoder = nn.Sequential(*(stage(spec.width, d) for d in spec.dilations))
        self.mask = nn.Conv2d(spec.width, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        h = self.encoder(x)
        n, c, bins, frames = h.shape
        for over_time, over_frequency in zip(self.time, self.frequency):
            h = over_time(h.permute(0, 2, 3, 1).reshape(n * bins, frames, c))
            h = h.view(n, bins, frames, c).transpose(1, 2).reshape(n * frames, bins, c)
            h = over_frequency(h).view(n, frames, bins, c).permute(0, 3, 2, 1)
        return x * 2 * self.mask(self.decoder(h)).sigmoid()
