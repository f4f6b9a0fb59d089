"""Networks of the clinic that the catalogue of models does not have: recurrent ones, a mixture, a deep chain."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class Recurrent(nn.Module):
    """Rows of an image one after the other through a recurrent layer; the last state decides."""

    def __init__(self, kind: str = "lstm", inputs: int = 8, width: int = 32, classes: int = 10) -> None:
        super().__init__()
        made: dict[str, Any] = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}
        self.core = made[kind](inputs, width, batch_first=True)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.core(x)[0][:, -1])


class Experts(nn.Module):
    """A mixture of small perceptrons of which a router chooses two for each row; ``balance`` is the usual extra
    loss."""

    def __init__(self, width: int, hidden: int, experts: int = 4, top: int = 2) -> None:
        super().__init__()
        self.router = nn.Linear(width, experts, bias=True)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width)) for _ in range(experts)
        )
        self.top = top
        self.balance = torch.zeros(())

    def forward(self, x: Tensor) -> Tensor:
        scores = self.router(x).softmax(-1)
        weight, chosen = scores.topk(self.top, dim=-1)
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            share = (weight * (chosen == i)).sum(-1, keepdim=True)
            out = out + share * expert(x)
        load = torch.nn.functional.one_hot(chosen, len(self.experts)).float().mean((0, 1))
        self.balance = len(self.experts) * (load.detach() * scores.mean(0)).sum()
        return out


class Mixture(nn.Module):
    """Linear in, two residual mixtures, linear out."""

    def __init__(self, inputs: int = 64, width: int = 32, experts: int = 4, classes: int = 10) -> None:
        super().__init__()
        self.embed = nn.Linear(inputs, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.blocks = nn.ModuleList(Experts(width, 2 * width, experts) for _ in range(2))
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x)
        for norm, block in zip(self.norms, self.blocks):
            h = h + block(norm(h))
        return self.head(h)


class Gated(nn.Module):
    """A perceptron whose hidden layers are gated linear units: value · sigmoid(gate)."""

    def __init__(self, inputs: int = 64, width: int = 32, depth: int = 2, classes: int = 10) -> None:
        super().__init__()
        self.embed = nn.Linear(inputs, width)
        self.values = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.gates = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.open = nn.ModuleList(nn.Sigmoid() for _ in range(depth))
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x)
        for value, gate, opened in zip(self.values, self.gates, self.open):
            h = h + value(h) * opened(gate(h))
        return self.head(h)


class Cut(nn.Module):
    """A module whose output is detached: what is below it gets no gradient. ``healed`` takes the detach out."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.healed = False

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        out = self.inner(*args, **kwargs)
        return out if self.healed else out.detach()


class Softmaxed(nn.Module):
    """A classifier that ends with a softmax."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.healed = False

    def forward(self, x: Tensor) -> Tensor:
        out = self.inner(x)
        return out if self.healed else out.softmax(-1)


class Capped(nn.Module):
    """Logits through a soft-cap, as Gemma has it: c·tanh(z / c)."""

    def __init__(self, inner: nn.Module, cap: float = 30.0) -> None:
        super().__init__()
        self.inner, self.cap = inner, cap

    def forward(self, x: Tensor) -> Tensor:
        return self.cap * torch.tanh(self.inner(x) / self.cap)
