r"""Which modules multiply their input with a weight, and how the weight lies: $z = W u + b$ for each token or pixel.

Known by class, at no cost, for those who meet a module without a charted pass. Hugging Face's ``Conv1D`` (all of a
GPT-2) is a linear layer whose weight is stored (in, out).
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

LayerKind = Literal["linear", "convolution", "transposed convolution", "embedding", ""]

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
TRANSPOSED_CONVOLUTIONS = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


def layer_kind(module: nn.Module | None) -> LayerKind:
    """What a module does with its weight; empty for one that is no layer of its own.

    >>> layer_kind(nn.Linear(2, 3)), layer_kind(nn.Conv2d(1, 2, 3)), layer_kind(nn.ReLU())
    ('linear', 'convolution', '')
    """
    if isinstance(module, nn.Linear) or _stores_inputs_first(module):
        return "linear"
    if isinstance(module, CONVOLUTIONS):
        return "convolution"
    if isinstance(module, TRANSPOSED_CONVOLUTIONS):
        return "transposed convolution"
    return "embedding" if isinstance(module, nn.Embedding) else ""


def channel_dim(module: nn.Module | None) -> int:
    """The dimension of channels in a layer's input and output: 1 for convolutions, else the last."""
    return 1 if isinstance(module, CONVOLUTIONS + TRANSPOSED_CONVOLUTIONS) else -1


def by_output(module: nn.Module, weight: Tensor | None = None) -> Tensor:
    """A layer's weight, or a tensor of its shape, with the units it makes in front: (out, in, …).

    >>> by_output(nn.ConvTranspose2d(4, 7, 3)).shape[:2], by_output(nn.Embedding(5, 2)).shape
    (torch.Size([7, 4]), torch.Size([2, 5]))
    """
    w = module.get_parameter("weight") if weight is None else weight
    inputs_first = isinstance(module, (*TRANSPOSED_CONVOLUTIONS, nn.Embedding)) or _stores_inputs_first(module)
    return w.transpose(0, 1) if inputs_first else w


def _stores_inputs_first(module: nn.Module | None) -> bool:
    """Hugging Face's ``Conv1D``, known by its name and shape: the package need not be installed. A subclass of it is
    one too: torch makes one where a weight is reparametrised."""
    return (
        any(c.__name__ == "Conv1D" for c in type(module).__mro__)
        and isinstance(weight := getattr(module, "weight", None), Tensor)
        and weight.ndim == 2
        and getattr(module, "nf", None) == weight.shape[1]
    )
