r"""The Fisher matrix as products: $F=J^\top\Lambda J$ with $\Lambda$ exact, from drawn labels, or from the given ones.

What a loss is the likelihood of is read off its second derivative at the outputs: $a(\mathrm{diag}\,p-pp^\top)$ is a
softmax, $a$ times the identity a Gaussian, $a\,p(1-p)$ on the diagonal a Bernoulli; $a$ is the weight of each unit (a
token, an example). Then $\nabla^2L=\Lambda$ is the exact Fisher, which Gauss–Newton is for these three.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from netvitals.curvature.engine.probes import generator, signs

Kind = Literal["categorical", "gaussian", "bernoulli"]
FISHERS = ("fisher", "fisher-mc", "fisher-empirical")
CLOSE = 1e-3  # agreement that is asked of a second derivative before a loss is called a likelihood


@dataclass(frozen=True)
class OutputLikelihood:
    """What the loss says of the outputs.

    Attributes:
        kind: the family.
        weight: of every unit, shaped so that it multiplies the outputs.
        dim: of the classes; 0 where there are none.
    """

    kind: Kind
    weight: Tensor
    dim: int = 0

    def drawn(self, out: Tensor, count: int, seed: int) -> Tensor:
        """Gradients at the outputs for labels drawn from the model, (count, …), with mean square Λ."""
        source = generator(seed, out.device)
        root = self.weight.sqrt()
        if self.kind == "gaussian":
            noise = torch.randn(count, *out.shape, generator=source, dtype=out.dtype, device=out.device)
            return root * noise
        if self.kind == "bernoulli":
            p = torch.sigmoid(out)
            uniform = torch.rand(count, *out.shape, generator=source, dtype=out.dtype, device=out.device)
            return root * (p - (uniform < p).to(p.dtype))
        p = out.softmax(self.dim).movedim(self.dim, -1)
        labels = torch.multinomial(p.reshape(-1, p.shape[-1]), count, replacement=True, generator=source)
        ones = torch.nn.functional.one_hot(labels.mT.reshape(count, *p.shape[:-1]), p.shape[-1]).to(p.dtype)
        return root * (p - ones).movedim(-1, self.dim + 1 if self.dim >= 0 else self.dim)

    def signed(self, out: Tensor, count: int, source: torch.Generator) -> Tensor:
        """Roots of Λ times independent signs, (count, …), with mean square Λ: they spread less than labels do."""
        each = signs(count, out.numel(), source, out.device).to(out.dtype).reshape(count, *out.shape)
        root = self.weight.sqrt()
        if self.kind == "gaussian":
            return root * each
        if self.kind == "bernoulli":
            p = torch.sigmoid(out)
            return root * (p * (1 - p)).sqrt() * each
        p = out.softmax(self.dim)
        half = p.sqrt() * each
        along = self.dim + 1 if self.dim >= 0 else self.dim
        return root * (half - p * half.sum(along, keepdim=True))

    def given(self, pull: Tensor) -> Tensor:
        """The same for the labels that were given, (1, …): of each token, or of each example as a whole."""
        if self.kind == "categorical":
            return torch.where(self.weight > 0, pull / self.weight.clamp_min(1e-300).sqrt(), torch.zeros_like(pull))[
                None
            ]
        return (len(pull) ** 0.5 * pull)[None]

    def outer(self, roots: Tensor, tangents: Tensor) -> Tensor:
        """Σ c (cᵀ a) over units, for tangents a (m, …) and roots c (count, …), averaged over the roots."""
        total = torch.zeros_like(tangents)
        dims = (self.dim + 1,) if self.kind == "categorical" else tuple(range(2, tangents.ndim))
        for c in roots:
            inner = c * tangents
            total += c * (inner.sum(dims, keepdim=True) if dims else inner)
        return total / len(roots)


def likelihood_at(outputs: Sequence[Tensor], second: Callable[[Tensor], Tensor]) -> OutputLikelihood:
    """What the loss is the likelihood of."""
    if len(outputs) == 1:
        out = outputs[0].detach()
        v = torch.randn(1, *out.shape, generator=generator(0, out.device), dtype=out.dtype, device=out.device)
        image = second(v)[0]
        v = v[0]
        for kind, dim in (("gaussian", 0), *(("categorical", d) for d in range(out.ndim - 1, 0, -1)), ("bernoulli", 0)):
            shape = _shape_of(out, v, kind, dim)
            keep = (dim,) if kind == "categorical" else tuple(range(out.ndim))
            size = (shape * shape).sum(keep, keepdim=True)
            weight = (image * shape).sum(keep, keepdim=True) / size.clamp_min(torch.finfo(out.dtype).tiny)
            if float((weight * shape - image).norm()) <= CLOSE * float(image.norm()) and bool((weight >= 0).all()):
                return OutputLikelihood(kind, weight, dim)  # type: ignore[arg-type]
    raise ValueError(
        "a Fisher matrix needs a likelihood: the loss must be cross-entropy, mean squared error, or binary "
        "cross-entropy with logits, of one output tensor. Use part='GN', which works with any loss"
    )


def _shape_of(out: Tensor, v: Tensor, kind: str, dim: int) -> Tensor:
    if kind == "gaussian":
        return v
    if kind == "bernoulli":
        p = torch.sigmoid(out)
        return p * (1 - p) * v
    p = out.softmax(dim)
    return p * (v - (p * v).sum(dim, keepdim=True))
