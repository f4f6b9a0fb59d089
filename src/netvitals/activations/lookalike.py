"""Recognising a stranger: is an unknown module elementwise, and which known activation does it compute?"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor, nn

_CANDIDATES = (
    "relu",
    "gelu",
    "gelu_tanh",
    "quick_gelu",
    "silu",
    "mish",
    "tanh",
    "sigmoid",
    "softplus",
    "elu",
    "selu",
    "hardswish",
    "hardsigmoid",
    "relu6",
    "leaky_relu",
    "relu2",
    "gelu2",
    "silu2",
    "softsign",
    "identity",
)


def _probe(module: nn.Module) -> Tensor:
    like = next(module.parameters(), torch.zeros(()))
    return torch.linspace(-3.1, 2.9, 24, dtype=like.dtype, device=like.device).reshape(2, 3, 4)


def acts_elementwise(module: nn.Module) -> bool:
    """Does the module commute with shuffling and ignore the neighbours, and is it curved?

    The module is called on 24 numbers, without gradients, and the global random state is put back.
    """
    x = _probe(module)
    state = torch.get_rng_state()
    try:
        with torch.no_grad():
            y = module(x.clone())
            if not isinstance(y, Tensor) or y.shape != x.shape:
                return False
            order = torch.arange(24, device=x.device) * 7 % 24  # its own inverse: 49 = 1 mod 24
            shuffled = module(x.flatten()[order].reshape(2, 3, 4)).flatten()[order].reshape(2, 3, 4)
            kept = torch.arange(24, device=x.device).reshape(2, 3, 4) % 2 == 0
            alone = module(torch.where(kept, x, torch.full_like(x, -0.3)))
            bend = (y.flatten()[2:] - 2 * y.flatten()[1:-1] + y.flatten()[:-2]).abs().max()
            return bool(
                torch.allclose(y, shuffled, atol=1e-6)
                and torch.allclose(y[kept], alone[kept], atol=1e-6)
                and bend > 1e-4
            )
    except Exception:  # a stranger's module may refuse the shape; then it is simply not recognised
        return False
    finally:
        torch.set_rng_state(state)


def refusal(f: Callable[[Tensor], Tensor]) -> str:
    """Why ``f`` is no function of one number, in words; empty where it is one. The random state is put back.

    >>> refusal(torch.tanh)
    ''
    >>> print(refusal(nn.Softmax(-1)))
    it is not elementwise: an entry's value depends on its neighbours
    """
    x = torch.linspace(-3.1, 2.9, 24, dtype=torch.float64)
    kept = torch.arange(24) % 2 == 0
    state = torch.get_rng_state()
    try:
        with torch.enable_grad():  # as it will be called to take its derivative
            values = [f(z.requires_grad_().clone()) for z in (x, torch.where(kept, x, torch.full_like(x, -0.3)))]
        strange = next((v for v in values if not isinstance(v, Tensor) or v.shape != x.shape), None)
        if strange is not None:
            what = f"shape {tuple(strange.shape)}" if isinstance(strange, Tensor) else f"a {type(strange).__name__}"
            return f"it turned 24 numbers into {what}, and only elementwise functions have a derivative"
        y, alone = (v.detach().double()[kept] for v in values)
        if torch.allclose(y, alone, rtol=1e-6, atol=1e-6, equal_nan=True):
            return ""
    except Exception as error:  # whatever a stranger raises
        return f"it cannot be called on a row of numbers ({str(error).splitlines()[0] if str(error) else error!r})"
    finally:
        torch.set_rng_state(state)
    return "it is not elementwise: an entry's value depends on its neighbours"


@lru_cache(maxsize=1)
def _known() -> tuple[tuple[str, Tensor], ...]:
    from netvitals.activations.registry import get

    x = _probe(nn.Identity()).double()
    with torch.no_grad():
        return tuple((name, get(name).double().eval()(x)) for name in _CANDIDATES)


def look_alike(module: nn.Module) -> str | None:
    """Return the name of the built-in activation that has the same values as a module, or None.

    Args:
        module: any module; a copy of it in eval mode is called on a few numbers.

    Returns:
        The spec whose values differ by less than 1e-5 everywhere on the probe, or None.

    >>> class Swish(nn.Module):
    ...     def forward(self, x):
    ...         return x * torch.sigmoid(x)
    >>> look_alike(Swish())
    'silu'
    """
    try:
        twin = copy.deepcopy(module).eval()
        if not acts_elementwise(twin):
            return None
        with torch.no_grad():
            y = twin(_probe(twin)).double().cpu()
    except Exception:  # not copyable or not callable on plain numbers: not recognised
        return None
    near = {name: float((y - values).abs().max()) for name, values in _known()}
    best = min(near, key=near.__getitem__)
    return best if near[best] < 1e-5 else None
