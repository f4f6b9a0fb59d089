r"""Second moments of a layer's inputs: $E[r r^\top]$ over the rows r that its weights are applied to."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def gram(rows: Tensor) -> Tensor:
    r"""$R^\top R$ in float64 from products in R's precision, bit for bit symmetric on every machine.

    From a width of 128 on only blocks on and above the diagonal are multiplied, two thirds of all.

    >>> gram(torch.tensor([[1.0, 2.0], [0.0, 1.0]]))
    tensor([[1., 2.],
            [2., 5.]], dtype=torch.float64)
    """
    width = rows.shape[1]
    if width < 128:
        return _mirrored((rows.T @ rows).double())
    out = torch.empty(width, width, dtype=torch.float64, device=rows.device)
    step = max(64, -(-width // 4))
    for start in range(0, width, step):
        stop = start + step
        out[start:stop, start:] = rows[:, start:stop].T @ rows[:, start:]
        out[start:stop, start:stop] = _mirrored(out[start:stop, start:stop])
        out[stop:, start:stop] = out[start:stop, stop:].T
    return out


def _mirrored(square: Tensor) -> Tensor:
    """The upper triangle on both sides: a matrix product may sum its two triangles in different orders."""
    return square.triu() + square.triu(1).T


def input_moment(module: nn.Module, x: Tensor, bias: bool, exact: bool = False) -> Tensor:
    """E[r rᵀ] for the input ``x`` of a Linear, Conv1d, Conv2d or Embedding, in the order of the weight's columns.

    With ``bias`` a constant 1 is appended to every row; ``exact`` sums products in float64 whatever x is.
    """
    x = x.double() if exact and x.is_floating_point() else x
    if isinstance(module, nn.Embedding):
        share = F.one_hot(x.flatten(), module.num_embeddings).to(module.weight.dtype)
        second, first, count = gram(share), share.sum(0), len(share)
    elif isinstance(module, nn.Conv1d | nn.Conv2d):
        rows, size = patches(module, x)
        count, channels = len(rows), rows.shape[1] // size
        order = torch.arange(rows.shape[1], device=x.device).view(size, channels).T.reshape(-1)
        second, first = gram(rows)[order][:, order], rows.sum(0)[order]
    else:
        rows = x.reshape(-1, x.shape[-1])
        second, first, count = gram(rows), rows.sum(0), len(rows)
    second /= count
    if not bias:
        return second
    out = torch.ones(len(first) + 1, len(first) + 1, dtype=torch.float64, device=x.device)
    out[:-1, :-1] = second
    out[:-1, -1] = out[-1, :-1] = first.double() / count
    return out


def patches(module: nn.Conv1d | nn.Conv2d, x: Tensor) -> tuple[Tensor, int]:
    """What every output position of a convolution sees, (samples × positions, kernel × channels), and the kernel size.

    Channels come last, so that a patch is copied in long runs.
    """
    flat = isinstance(module, nn.Conv1d)
    x = x.unsqueeze(2) if flat else x
    size, stride, dilation = ((1,) * flat + tuple(v) for v in (module.kernel_size, module.stride, module.dilation))
    edges = [*module._reversed_padding_repeated_twice, *(0, 0) * flat]
    mode = "constant" if module.padding_mode == "zeros" else module.padding_mode
    padded = F.pad(x, edges, mode).permute(0, 2, 3, 1).contiguous()
    places = [(padded.shape[1 + i] - dilation[i] * (size[i] - 1) - 1) // stride[i] + 1 for i in (0, 1)]
    by_sample, by_row, by_column, _ = padded.stride()
    seen = padded.as_strided(
        (len(x), *places, *size, x.shape[1]),
        (by_sample, by_row * stride[0], by_column * stride[1], by_row * dilation[0], by_column * dilation[1], 1),
    )
    return seen.reshape(len(x) * places[0] * places[1], -1), size[0] * size[1]
