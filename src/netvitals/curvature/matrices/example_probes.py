r"""Traces with a probe of its own for every example.

Where examples do not see each other $H=\sum_nH_n$ and $\mathrm{tr}\,H=\sum_nE\,v_n^\top H_nv_n$ with an independent
$v_n$ for each: the variance is $\sum_n\mathrm{Var}(v_n^\top H_nv_n)$, while one probe that all examples share adds
them up in phase. Nothing as large as the parameters is drawn: the perturbation is made at the layers' outputs, and one
product with the Hessian of these tells the traces of all tensors.

Of $H=GN+T$ the first needs no second derivative: with $\nabla^2\ell_n=\sum_kc_{nk}c_{nk}^\top$ at the outputs its trace
is $\sum_{nk}\|J_n^\top c_{nk}\|^2$, squared gradients by example, exact where the outputs are few.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from netvitals.curvature.engine.checks import tolerance
from netvitals.curvature.engine.probes import generator
from netvitals.curvature.engine.products import Products, Progress
from netvitals.curvature.matrices.example_tape import summed


def example_draws(
    products: Products,
    names: Sequence[str],
    probes: int,
    seed: int,
    part: Literal["H", "GN", "T"],
    progress: Progress | None = None,
) -> np.ndarray:
    """Draws (probes, tensors) of the trace of every tensor.

    Where the loss allows it the Gauss–Newton part comes from first derivatives, exact where outputs are few, and
    only the tensor part is left to products with the Hessian.
    """
    known = None if part == "T" else gauss_newton_draws(products, names, probes, seed)
    if part == "GN" and known is not None:
        return known
    rest = _draws(products, names, probes, seed, "T" if known is not None else part, progress)
    return rest if known is None else known + rest


def gauss_newton_draws(products: Products, names: Sequence[str], probes: int, seed: int) -> np.ndarray | None:
    """The Gauss–Newton part by squared gradients, all draws alike where they are exact; None where H does not split."""
    tape: Any = products.tape
    if tape.beyond > tolerance(tape.outputs[0].dtype):
        return None
    exact = None if tape.layers.shared else exact_roots(products, probes)
    if exact is not None:
        return np.tile(_squares(products, names, exact).sum(0), (probes, 1))
    try:
        likelihood = products.likelihood
    except ValueError:
        return None
    out, source = tape.outputs[0].detach(), generator(seed + 1, products.flat[0].device)
    rows = [
        _squares(products, names, likelihood.signed(out, at.stop - at.start, source))
        for at in products.portions(probes)
    ]
    return np.concatenate(rows)


def exact_roots(products: Products, most: int) -> Tensor | None:
    r"""Cotangents (k, *output) with $\nabla^2\ell_n=\sum_kc_{nk}c_{nk}^\top$ for every example n."""
    tape = products.tape
    out, b = tape.outputs[0].detach(), tape.examples
    if len(tape.outputs) != 1 or out.shape[0] != b or out.numel() // b > most:
        return None
    k = out.numel() // b
    basis = torch.eye(k, dtype=out.dtype, device=out.device)[:, None].expand(-1, b, -1).reshape(k, *out.shape)
    second = products.curved([basis], k)[0].reshape(k, b, k).movedim(1, 0).double()
    values, vectors = torch.linalg.eigh((second + second.mT) / 2)  # (b, k), (b, k, k)
    if float(values.clamp_max(0).sum().abs()) > tolerance(out.dtype) * float(values.clamp_min(0).sum()):
        return None
    roots = (vectors * values.clamp_min(0).sqrt()[:, None]).permute(2, 0, 1)  # k, b, outputs
    live = values.amax(0) > 10 * torch.finfo(out.dtype).eps * values.max()
    return roots[live].to(out).reshape(-1, *out.shape)


def _squares(products: Products, names: Sequence[str], roots: Tensor) -> np.ndarray:
    """‖Sᵀ Jᵀ c‖² by cotangent and tensor, (cotangents, tensors)."""
    tape: Any = products.tape
    place = {n: i for i, n in enumerate(names)}
    out = np.zeros((len(roots), len(names)))
    for at in products.portions(len(roots)):
        images = products.pulled([roots[at]], at.stop - at.start)
        products.cost.passes += float(np.mean([s.passes for s in tape.sources])) * (at.stop - at.start)
        for source, g in zip(tape.sources, images):
            for name, value in source.squared(g).items():
                out[at, place[name]] += value.double().cpu().numpy()
    return out


def _draws(
    products: Products, names: Sequence[str], probes: int, seed: int, part: Any, progress: Progress | None
) -> np.ndarray:
    """Quadratic forms by probe and tensor."""
    tape: Any = products.tape
    source, place = generator(seed, products.flat[0].device), {n: i for i, n in enumerate(names)}
    out = np.zeros((probes, len(names)))
    drawing = float(np.mean([s.passes for s in tape.sources]))
    for k, at in enumerate(products.portions(probes)):
        m = at.stop - at.start
        parts = tape.perturbed(tape.signs_of(m, source))
        pieces = summed(parts, products.flat, m)
        images = products.whole(pieces, part)
        products.cost.passes += m * drawing
        if k == 0 and part == "T" and m > 1 and not any(bool(g.any()) for g in images):
            break  # nothing bends between the layers' outputs: the tensor part is an exact zero
        for each, image in zip(parts, images):
            for p, shares in each:
                for name, share in shares.items():
                    weighed = image if share is None else image * share
                    out[at, place[name]] += torch.linalg.vecdot(p.flatten(1), weighed.flatten(1)).double().cpu().numpy()
        if progress:
            progress(at.stop, probes)
    return out
