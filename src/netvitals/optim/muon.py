r"""Muon: momentum whose matrix updates are replaced by the nearest orthogonal matrix.

With gradient G, momentum μ and the Nesterov look-ahead U of the momentum buffer,

.. math:: B ← μB + G, \quad U = G + μB, \quad W ← (1 − ηλ) W − η\, s\, \mathrm{NS}(U),

where NS pushes every singular value of U to about one by five Newton–Schulz steps and s is a scale by shape.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_SCALES: dict[str, Callable[[int, int], float]] = {
    "max": lambda rows, cols: max(rows, cols) ** 0.5,  # entries of root mean square about one
    "aspect": lambda rows, cols: max(1.0, rows / cols) ** 0.5,  # spectral norm by aspect ratio
    "adam": lambda rows, cols: 0.2 * max(rows, cols) ** 0.5,  # root mean square of a typical Adam update
    "none": lambda rows, cols: 1.0,
}


def newton_schulz(matrix: Tensor, steps: int = 5, coefficients: tuple[float, float, float] = COEFFICIENTS) -> Tensor:
    r"""Push the singular values of a matrix (or a stack of them) towards one.

    X ← aX + (bA + cA²)X with A = XXᵀ, from X = G/‖G‖_F. The default quintic reaches about [0.7, 1.2] in five steps
    for singular values above a hundredth of the norm; it trades exactness for speed.

    >>> _ = torch.manual_seed(0)
    >>> bool((torch.linalg.svdvals(newton_schulz(torch.randn(8, 32))) - 1).abs().max() < 0.35)
    True
    """
    a, b, c = coefficients
    x = matrix.float() if matrix.dtype in (torch.float16, torch.bfloat16) else matrix
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    x = x / (torch.linalg.matrix_norm(x, keepdim=True) + 1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return (x.mT if tall else x).to(matrix.dtype)


class Muon(Optimizer):
    """Muon optimizer: momentum with orthogonalised updates, for weight matrices and convolution kernels.

    Args:
        params: matrices, or groups of them. Vectors, embeddings and readouts belong to another optimiser; see
            :func:`muon_split`.
        lr: step size η. With ``scale="max"`` an update has entries of root mean square about η.
        momentum: μ.
        nesterov: look ahead (U = G + μB) or use the buffer itself.
        steps: Newton–Schulz steps.
        scale: ``max`` √max(rows, cols), ``aspect`` √max(1, rows/cols), ``adam`` 0.2·√max(rows, cols), ``none``.
        parts: orthogonalise this many equal blocks of rows on their own; 3 for a fused query, key, value matrix,
            whose blocks are then scaled by their own shape.
        weight_decay: decoupled decay λ.

    >>> net = torch.nn.Linear(3, 4, bias=False)
    >>> opt = Muon(net.parameters(), lr=0.02)
    >>> loss = net(torch.ones(8, 3)).square().mean()
    >>> loss.backward(); opt.step()
    >>> bool(net(torch.ones(8, 3)).square().mean() < loss)
    True
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 5e-4,
        momentum: float = 0.95,
        *,
        nesterov: bool = True,
        steps: int = 5,
        scale: str = "max",
        parts: int = 1,
        weight_decay: float = 0.0,
    ):
        if lr < 0 or not 0 <= momentum < 1 or weight_decay < 0:
            raise ValueError(
                f"Muon needs lr >= 0, 0 <= momentum < 1 and weight_decay >= 0, got lr={lr}, "
                f"momentum={momentum}, weight_decay={weight_decay}"
            )
        if scale not in _SCALES:
            raise ValueError(f"scale= must be one of {', '.join(_SCALES)}, got {scale!r}")
        super().__init__(
            params,
            {
                "lr": lr,
                "momentum": momentum,
                "nesterov": nesterov,
                "steps": steps,
                "scale": scale,
                "parts": parts,
                "weight_decay": weight_decay,
            },
        )
        for group in self.param_groups:
            for p in group["params"]:
                if p.ndim < 2:
                    raise ValueError(
                        f"Muon needs matrices, got a parameter of shape {tuple(p.shape)}; give vectors to AdamW "
                        "(muon_split divides a model's parameters)"
                    )
                if p.shape[0] % group["parts"]:
                    raise ValueError(
                        f"the number of rows, {p.shape[0]}, must be a multiple of parts, got parts={group['parts']}"
                    )

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Make one optimizer step; ``closure`` may compute the loss again."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            self._update(group)
        return loss

    def _update(self, group: dict[str, Any]) -> None:
        momentum, parts = group["momentum"], group["parts"]
        # matrices of one shape are orthogonalised together: one batched product instead of many small ones
        alike: dict[tuple[Any, ...], list[tuple[Tensor, Tensor]]] = defaultdict(list)
        for p in group["params"]:
            if p.grad is None:
                continue
            state = self.state[p]
            if "momentum_buffer" not in state:
                state["momentum_buffer"] = torch.zeros_like(p)
            buffer = state["momentum_buffer"].mul_(momentum).add_(p.grad)
            update = p.grad.add(buffer, alpha=momentum) if group["nesterov"] else buffer
            blocks = update.flatten(1).unflatten(0, (parts, -1))
            alike[(tuple(blocks.shape), p.dtype, p.device)].append((p, blocks))
        for members in alike.values():
            rows, cols = members[0][1].shape[-2:]
            direction = newton_schulz(torch.stack([blocks for _, blocks in members]), group["steps"])
            step = -group["lr"] * _SCALES[group["scale"]](rows, cols)
            for (p, _), part in zip(members, direction):
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(part.reshape(p.shape), alpha=step)


class MuonAdamW(Optimizer):
    """One optimizer that uses Muon for some parameters and AdamW for the others.

    Args:
        muon: groups for Muon, as dictionaries with ``params`` and options.
        adamw: groups for AdamW.

    >>> net = torch.nn.Linear(3, 4)
    >>> opt = MuonAdamW([{"params": [net.weight]}], [{"params": [net.bias]}])
    >>> net(torch.ones(8, 3)).square().mean().backward(); opt.step()
    >>> len(opt.param_groups)
    2
    """

    def __init__(self, muon: list[dict[str, Any]], adamw: list[dict[str, Any]]):
        self._muon, self._adamw = Muon(muon), AdamW(adamw)
        super().__init__(self._muon.param_groups + self._adamw.param_groups, {})
        self._link()

    def _link(self) -> None:
        # one list of groups and one state, seen by both: a schedule or a checkpoint touches them in one place
        cut = len(self._muon.param_groups)
        self._muon.param_groups, self._adamw.param_groups = self.param_groups[:cut], self.param_groups[cut:]
        self._muon.state = self._adamw.state = self.state

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Make one step of Muon and of AdamW; ``closure`` may compute the loss again."""
        self._link()
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._muon.step()
        self._adamw.step()
        return loss


def muon_split(model: nn.Module) -> tuple[dict[str, nn.Parameter], dict[str, nn.Parameter]]:
    """Divide the parameters of a model into hidden weight matrices for Muon and everything else for AdamW.

    Hidden matrices are the weights of linear and convolution layers, except the last layer (the readout). Weights tied
    to an embedding, position embeddings, gains and biases go to AdamW.

    Args:
        model: its parameters are shared, not copied.

    Returns:
        Parameters by name for Muon, and those for AdamW; together all of them.

    >>> matrices, rest = muon_split(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)))
    >>> list(matrices), list(rest)
    (['0.weight'], ['0.bias', '2.weight', '2.bias'])
    """
    layers = [
        m
        for m in model.modules()
        if isinstance(m, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d | nn.MultiheadAttention)
    ]
    embedded = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    matrices = {id(p) for m in layers[:-1] for p in m.parameters(recurse=False) if p.ndim >= 2} - embedded
    named = dict(model.named_parameters())
    return (
        {n: p for n, p in named.items() if id(p) in matrices},
        {n: p for n, p in named.items() if id(p) not in matrices},
    )


def fused_parts(name: str, parameter: Tensor) -> int:
    """3 when a matrix holds query, key and value one below the other, else 1.

    Args:
        name: dotted name of the parameter.
        parameter: the parameter; query, key and value have as many rows as the matrix has columns.

    Returns:
        The number of matrices to orthogonalise one by one.

    >>> fused_parts("attn.qkv.weight", torch.zeros(12, 4)), fused_parts("fc.weight", torch.zeros(12, 4))
    (3, 1)
    """
    fused = re.search(r"qkv|in_proj|c_attn", name) is not None
    return 3 if fused and parameter.shape[0] == 3 * parameter.flatten(1).shape[1] else 1
