r"""The fixed-kernel reconstruction problem: find x in the unit box with $h(Ax) \approx y$, h a sigmoid of stiffness α.

$h(z) = 1/(1 + e^{-\alpha(z - c)})$, A a convolution with a fixed 3 × 3 kernel, y binary, $J(x) = \|y - h(Ax)\|^2$
(gate-density App. A.9). The gate $\Gamma_i = \alpha h_i (1 - h_i)$ is the share of the residual that reaches the pixel.
Everything is batched: the first dimension runs over stiffness values, seeds and kernels alike.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

GATE_FLOOR = 0.01  # ε: a pixel with a smaller gate does not count as active
PADDINGS = ("zero", "circular")


def kernel(name: str, scale: float = 1.0, seed: int = 0) -> Tensor:
    """A 3 × 3 kernel by name, times ``scale``.

    The paper's norm of 4 for Sobel needs ``scale=0.5``: the usual integer Sobel has norm 8.

    >>> kernel("avg_blur").sum().item()
    1.0
    """
    table = {
        "identity": [[0, 0, 0], [0, 1, 0], [0, 0, 0]],
        "avg_blur": [[1 / 9] * 3] * 3,
        "sobel_x": [[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]],
        "laplacian": [[0, 1, 0], [1, -4, 1], [0, 1, 0]],
    }
    if name == "random_norm":
        k = torch.randn(3, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        return scale * k / k.norm()
    if name not in table:
        raise ValueError(f"there is no kernel {name!r}; there are {', '.join([*table, 'random_norm'])}")
    return scale * torch.tensor(table[name], dtype=torch.float64)


KERNELS = ("identity", "avg_blur", "random_norm", "sobel_x", "laplacian")


def target(name: str, size: int, block: int = 8, seed: int = 0) -> Tensor:
    """A binary picture of ``size`` × ``size``: checkerboard, stripes, disc, cross, noise.

    >>> target("checkerboard", 4, block=2).tolist()[0]
    [0.0, 0.0, 1.0, 1.0]
    """
    if size < 1 or block < 1:
        raise ValueError(f"a target needs a size and a block of at least 1 pixel, got size {size} and block {block}")
    rows, cols = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    centre = (size - 1) / 2
    pictures = {
        "checkerboard": (rows // block + cols // block) % 2,
        "stripes": (cols // block) % 2,
        "disc": ((rows - centre) ** 2 + (cols - centre) ** 2 < (size / 3) ** 2).long(),
        "cross": (((rows - centre).abs() < size / 8) | ((cols - centre).abs() < size / 8)).long(),
        "noise": torch.randint(0, 2, (size, size), generator=torch.Generator().manual_seed(seed)),
    }
    if name not in pictures:
        raise ValueError(f"there is no target {name!r}; there are {', '.join(pictures)}")
    return pictures[name].double()


@dataclass(frozen=True)
class Reconstruction:
    """A batch of problems."""

    alpha: Tensor
    kernels: Tensor
    y: Tensor
    c: float = 0.5
    padding: str = "zero"
    observed: Tensor | None = None

    def __post_init__(self) -> None:
        if self.alpha.ndim != 1 or not len(self.alpha) or not bool(((self.alpha > 0) & self.alpha.isfinite()).all()):
            raise ValueError(
                f"the stiffness alpha must be a vector of positive finite numbers, got {self.alpha.tolist()[:4]}"
            )
        if not 0 < self.c < 1:
            raise ValueError(f"the cutoff c must lie inside (0, 1), got {self.c}")
        if not bool(((self.y == 0) | (self.y == 1)).all()):
            raise ValueError(f"targets must be binary, got values between {self.y.min():g} and {self.y.max():g}")
        if min(self.y.shape[-2:]) < self.kernels.shape[-1]:
            raise ValueError(
                f"the image {tuple(self.y.shape[-2:])} is smaller than the kernel {tuple(self.kernels.shape[-2:])}"
            )
        if self.padding not in PADDINGS:
            raise ValueError(f"padding is {' or '.join(PADDINGS)}, got {self.padding!r}")
        if self.observed is not None and self.observed.shape[-2:] != self.y.shape[-2:]:
            raise ValueError(
                f"the observed picture {tuple(self.observed.shape[-2:])} is not of the target's size "
                f"{tuple(self.y.shape[-2:])}"
            )
        for name in ("kernels", "y", "observed"):
            value = getattr(self, name)
            if value is not None and value.ndim == 3 and len(value) not in (1, self.batch):
                raise ValueError(f"{name} has {len(value)} entries for a batch of {self.batch}")

    @property
    def batch(self) -> int:
        return len(self.alpha)

    @property
    def pixels(self) -> int:
        return self.y.shape[-1] * self.y.shape[-2]

    def to(self, dtype: torch.dtype) -> Reconstruction:
        return replace(
            self,
            alpha=self.alpha.to(dtype),
            kernels=self.kernels.to(dtype),
            y=self.y.to(dtype),
            observed=None if self.observed is None else self.observed.to(dtype),
        )

    @property
    def seen(self) -> Tensor:
        """The picture that the loss compares with."""
        return self.y if self.observed is None else self.observed

    def part(self, chosen: slice) -> Reconstruction:
        """Some problems of the batch."""

        def cut(value: Tensor) -> Tensor:
            return value if value.ndim == 2 or len(value) == 1 else value[chosen]

        return replace(
            self,
            alpha=self.alpha[chosen],
            kernels=cut(self.kernels),
            y=cut(self.y),
            observed=None if self.observed is None else cut(self.observed),
        )

    def start(self, seeds: Tensor | None = None) -> Tensor:
        """x0 ~ U[0, 1], one generator per entry, so that a batch equals the loop over its entries."""
        seeds = torch.arange(self.batch) if seeds is None else seeds
        shape = tuple(self.y.shape[-2:])
        draws = [torch.rand(shape, generator=torch.Generator().manual_seed(int(s)), dtype=torch.float64) for s in seeds]
        return torch.stack(draws).to(self.alpha.dtype)

    def blur(self, x: Tensor, *, adjoint: bool = False, kernels: Tensor | None = None) -> Tensor:
        """A x, or Aᵀ x: the correlation with the kernel turned by half a turn."""
        k = self.kernels if kernels is None else kernels
        k = k.flip(-1, -2) if adjoint else k
        mode = "constant" if self.padding == "zero" else "circular"
        padded = F.pad(x[:, None], (1, 1, 1, 1), mode=mode)[:, 0]
        k = k[0] if k.ndim == 3 and len(k) == 1 else k
        rows, cols = x.shape[-2:]
        out = torch.zeros_like(x)
        # nine shifted sums: a one-channel convolution is several times slower on a CPU
        for i in range(3):
            for j in range(3):
                shifted = padded[:, i : i + rows, j : j + cols]
                if k.ndim == 3:
                    out.addcmul_(shifted, k[:, i, j, None, None])
                elif float(k[i, j]) != 0:
                    out.add_(shifted, alpha=float(k[i, j]))
        return out

    def sigmoid(self, z: Tensor) -> Tensor:
        return torch.sigmoid(self.alpha[:, None, None] * (z - self.c))

    def forward(self, x: Tensor) -> Tensor:
        return self.sigmoid(self.blur(x))

    def gates(self, h: Tensor) -> Tensor:
        """Γ = α h (1 − h) at outputs h."""
        return self.alpha[:, None, None] * h * (1 - h)

    def loss(self, h: Tensor) -> Tensor:
        return (h - self.seen).square().sum((-1, -2))

    def gradient(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """∇J = 2Aᵀ((h − y) ⊙ Γ), and h."""
        h = self.forward(x)
        return 2 * self.blur((h - self.seen) * self.gates(h), adjoint=True), h

    def active(self, h: Tensor, floor: float = GATE_FLOOR) -> Tensor:
        """F_α: share of pixels whose gate is above ``floor``."""
        return (self.gates(h).abs() > floor).to(h.dtype).mean((-1, -2))

    def iou(self, h: Tensor) -> Tensor:
        """Intersection over union of 1[h > ½] and y."""
        return overlap(h > 0.5, self.y > 0.5)

    def two_layers(self, x: Tensor, second: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """h₂ = h(A₂ h(A₁ x)): output, and the gates of both layers."""
        h1 = self.forward(x)
        h2 = self.sigmoid(self.blur(h1, kernels=second))
        return h2, self.gates(h1), self.gates(h2)

    def gradient_two_layers(self, x: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
        """∇J = 2A₁ᵀ[Γ¹ ⊙ A₂ᵀ(Γ² ⊙ (h₂ − y))], and h₂."""
        h2, g1, g2 = self.two_layers(x, second)
        inner = self.blur(g2 * (h2 - self.seen), adjoint=True, kernels=second)
        return 2 * self.blur(g1 * inner, adjoint=True), h2


def overlap(a: Tensor, b: Tensor) -> Tensor:
    """Intersection over union of two boolean pictures, 1 where both are empty."""
    both, either = (a & b).sum((-1, -2)), (a | b).sum((-1, -2))
    return torch.where(either > 0, both / either.clamp_min(1), torch.ones_like(both, dtype=torch.get_default_dtype()))


def grid(
    alphas: list[float], seeds: int, kernels: list[Tensor], y: Tensor, **options: object
) -> tuple[Reconstruction, list[tuple[int, float, int]]]:
    """All combinations of kernel, stiffness and seed as one batch, and the key of every entry."""
    if not alphas or not kernels or seeds < 1:
        raise ValueError(
            f"a grid needs stiffness values, kernels and seeds, got {len(alphas)}, {len(kernels)} and {seeds}"
        )
    keys = [(i, a, s) for i in range(len(kernels)) for a in alphas for s in range(seeds)]
    problem = Reconstruction(
        torch.tensor([a for _, a, _ in keys], dtype=torch.float64),
        torch.stack([kernels[i] for i, _, _ in keys]) if len(kernels) > 1 else kernels[0],
        y,
        **options,  # type: ignore[arg-type]
    )
    return problem, keys
