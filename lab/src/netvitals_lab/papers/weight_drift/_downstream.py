"""Monte Carlo over the weights downstream of a layer, its activations held fixed: V1–V6 of the theory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from netvitals_lab import Row
from netvitals_lab.theory import drift_signs as theory

P = (1.5, -0.7, 0.4, 2.0, -1.2, 0.1, 0.9, -0.3)  # the pre-activations of every check of V1–V4
OUTPUTS = 5
CHUNK = 5000
DELTA = 0.5  # of the Huber loss


def draw(kind: str, shape: Sequence[int], variance: float, generator: Generator) -> Tensor:
    """Independent weights of mean 0 and the given variance: ``gaussian``, ``uniform`` or ``rademacher``."""
    if kind == "gaussian":
        return torch.randn(*shape, generator=generator, dtype=torch.float64) * variance**0.5
    flat = torch.rand(*shape, generator=generator, dtype=torch.float64)
    if kind == "uniform":
        return (2 * flat - 1) * (3 * variance) ** 0.5
    if kind == "rademacher":
        return torch.where(flat < 0.5, -1.0, 1.0).double() * variance**0.5
    raise ValueError(f"weights are gaussian, uniform or rademacher, got {kind!r}")


@dataclass(frozen=True)
class Draws:
    """One chunk of networks: V maps the activation to the outputs, (networks, outputs, units)."""

    v: Tensor
    o: Tensor  # outputs, (networks, outputs)
    last: Tensor  # ‖h‖² of the last hidden layer, (networks,)


def networks(a: Tensor, hidden: Sequence[int], kind: str, count: int, generator: Generator) -> Iterator[Draws]:
    """He-initialised ReLU layers and a readout of variance 1/fan_in behind the activation ``a``."""
    for start in range(0, count, CHUNK):
        n = min(CHUNK, count - start)
        h = a.expand(n, -1)
        v = torch.eye(len(a), dtype=torch.float64).expand(n, -1, -1)
        for width in hidden:
            w = draw(kind, (n, width, h.shape[1]), 2 / h.shape[1], generator)
            z = torch.bmm(w, h.unsqueeze(-1)).squeeze(-1)
            on = (z > 0).unsqueeze(-1)
            h, v = z.relu(), torch.bmm(w, v) * on
        w = draw(kind, (n, OUTPUTS, h.shape[1]), 1 / h.shape[1], generator)
        yield Draws(torch.bmm(w, v), torch.bmm(w, h.unsqueeze(-1)).squeeze(-1), h.square().sum(1))


class Average:
    """Mean and standard error over networks, added up chunk by chunk."""

    def __init__(self) -> None:
        self.n, self.total, self.squares = 0, torch.zeros(()), torch.zeros(())

    def add(self, values: Tensor) -> None:
        self.n += len(values)
        self.total = self.total + values.sum(0)
        self.squares = self.squares + values.square().sum(0)

    @property
    def mean(self) -> Tensor:
        return self.total / self.n

    @property
    def stderr(self) -> Tensor:
        return ((self.squares / self.n - self.mean.square()).clamp_min(0) / (self.n - 1)).sqrt()


def output_gradients(o: Tensor, y: Tensor) -> dict[str, Tensor]:
    """∇ℓ at the outputs for half the squared error, cross-entropy and Huber."""
    return {"mse": o - y, "ce": o.softmax(-1) - y, "huber": (o - y).clamp(-DELTA, DELTA)}


def fixed_activation(kind: str, hidden: Sequence[int], count: int, seed: int) -> list[Row]:
    """V1–V4: gradients of three losses on a fixed ReLU activation, and inner products of the columns of V."""
    generator = Generator().manual_seed(seed)
    p = torch.tensor(P, dtype=torch.float64)
    a, slope = p.relu(), (p > 0).double()
    y = F.one_hot(torch.tensor(0), OUTPUTS).double()
    share = slope * a / a.square().sum()
    readout = 1 / (hidden[-1] if hidden else len(p))
    averages: dict[tuple[str, str], Average] = {}

    def add(quantity: str, loss: str, values: Tensor) -> None:
        averages.setdefault((quantity, loss), Average()).add(values)

    for net in networks(a, hidden, kind, count, generator):
        for loss, g in output_gradients(net.o, y).items():
            gradient = slope * torch.bmm(g.unsqueeze(1), net.v).squeeze(1)
            inner = (net.o * g).sum(-1, keepdim=True)
            add("gradient", loss, gradient)
            add("push", loss, gradient @ a)
            add("any-loss gap", loss, gradient - share * inner)  # D4 says its mean is zero
            if loss == "ce":
                doubt = 1 - net.o.softmax(-1).square().sum(-1)
                closed = readout * share * (net.last * doubt).unsqueeze(-1)
                add("closed-form gap", loss, gradient - closed)  # D3
                add("closed form", loss, closed)
        add("column product", "", torch.bmm(net.v.transpose(1, 2), net.v))

    gain = theory.he_gain(len(p), OUTPUTS)
    expected = {
        ("gradient", "mse"): theory.expected_gradient(p, gain=gain),
        ("push", "mse"): gain * a.square().sum(),
        ("column product", ""): gain * torch.eye(len(p), dtype=torch.float64),
    }
    rows: list[Row] = []
    for (quantity, loss), average in averages.items():
        want = expected.get((quantity, loss), torch.zeros_like(average.mean))
        known = (quantity, loss) in expected or quantity.endswith("gap")
        rows += _rows(average, want, quantity, loss, known, live=slope > 0)
    return rows


def _rows(average: Average, want: Tensor, quantity: str, loss: str, known: bool, live: Tensor) -> list[Row]:
    mean, stderr = average.mean, average.stderr
    base: Row = {"quantity": quantity, "loss": loss}
    if mean.ndim == 0:
        return [{**base, "mean": mean, "stderr": stderr, "expected": want if known else None}]
    if mean.ndim == 2:
        return [
            {**base, "unit": i, "other": j, "mean": mean[i, j], "stderr": stderr[i, j], "expected": want[i, j]}
            for i in range(len(mean))
            for j in range(i, len(mean))
        ]
    return [
        {**base, "unit": i, "mean": mean[i], "stderr": stderr[i], "expected": want[i] if known else None}
        for i in live.nonzero().flatten().tolist()
    ]


def doubt_of_readout(count: int, seed: int) -> list[Row]:
    """V4: D3 with only the readout downstream, E[1 − ‖softmax(o)‖²] over Gaussian outputs of variance ‖a‖²/d."""
    p = torch.tensor(P, dtype=torch.float64)
    generator = Generator().manual_seed(seed)
    scale = (p.relu().square().sum() / len(p)).sqrt()
    average = Average()
    for start in range(0, count, 100_000):
        o = scale * torch.randn(min(100_000, count - start), OUTPUTS, generator=generator, dtype=torch.float64)
        average.add(1 - o.softmax(-1).square().sum(-1))
    closed = theory.cross_entropy_force(p, readout_variance=1 / len(p), doubt=float(average.mean))
    return [
        {
            "quantity": "cross-entropy closed form",
            "unit": i,
            "mean": closed[i],
            "stderr": closed[i] * average.stderr / average.mean,
        }
        for i in (p > 0).nonzero().flatten().tolist()
    ]


def gelu(hidden: Sequence[int], count: int, seed: int) -> list[Row]:
    """V5: D2 for GELU at p = ±2, ±1, ±.5, ±.2, where mildly negative units are pushed down."""
    generator = Generator().manual_seed(seed)
    p = torch.tensor([2, 1, 0.5, 0.2, -0.2, -0.5, -1, -2], dtype=torch.float64)
    a = F.gelu(p)
    y = F.one_hot(torch.tensor(0), OUTPUTS).double()
    closed = theory.expected_gradient(p, "gelu", gain=theory.he_gain(len(p), OUTPUTS))
    slope = closed / (theory.he_gain(len(p), OUTPUTS) * a)
    average = Average()
    for net in networks(a, hidden, "gaussian", count, generator):
        average.add(slope * torch.bmm((net.o - y).unsqueeze(1), net.v).squeeze(1))
    return [
        {
            "quantity": "gelu gradient",
            "p": p[i],
            "mean": average.mean[i],
            "stderr": average.stderr[i],
            "expected": closed[i],
        }
        for i in range(len(p))
    ]


def weight_gradient(count: int, seed: int) -> list[Row]:
    """V6: the mean gradient of the second weight matrix over draws of everything after it, against D6 and D4."""
    widths, batch = (20, 24, 24, 24), 64
    generator = Generator().manual_seed(seed)
    inputs = torch.randn(batch, widths[0], generator=generator, dtype=torch.float64)
    first, second = (draw("gaussian", (d, before), 2 / before, generator) for before, d in pairwise(widths[:3]))
    x = (inputs @ first.T).relu()
    p = x @ second.T
    a, slope = p.relu(), (p > 0).double()
    y = F.one_hot(torch.randint(OUTPUTS, (batch,), generator=generator), OUTPUTS).double()
    means = {loss: Average() for loss in ("mse", "ce")}  # entry by entry
    layer = {loss: Average() for loss in means}  # mean over the matrix
    inner = {loss: Average() for loss in means}  # ⟨o, ∇ℓ⟩ of every sample
    for start in range(0, count, 250):
        n = min(250, count - start)
        third = draw("gaussian", (n, widths[3], widths[2]), 2 / widths[2], generator)
        readout = draw("gaussian", (n, OUTPUTS, widths[3]), 1 / widths[3], generator)
        z = a @ third.transpose(1, 2)
        o = z.relu() @ readout.transpose(1, 2)
        for loss, g in output_gradients(o, y).items():
            if loss == "huber":
                continue
            back = ((g @ readout) * (z > 0)) @ third * slope
            entries = back.transpose(1, 2) @ x / batch
            means[loss].add(entries)
            layer[loss].add(entries.mean((1, 2)))
            inner[loss].add((o * g).sum(-1))
    gain = theory.he_gain(widths[2], OUTPUTS)
    rows: list[Row] = []
    for loss in means:
        if loss == "mse":
            closed = theory.expected_weight_gradient(x, p, gain=gain)
        else:
            closed = theory.expected_gradient_of_loss(p, inner[loss].mean).T @ x / batch
        got = means[loss].mean
        pair = torch.corrcoef(torch.stack([got.flatten(), closed.flatten()]))
        spread = float(layer[loss].stderr) * count**0.5
        rows.append(
            {
                "quantity": "weight gradient",
                "loss": loss,
                "mean": layer[loss].mean,
                "stderr": layer[loss].stderr,
                "expected": closed.mean(),
                "correlation": pair[0, 1],
                "signal to noise": layer[loss].mean / spread,
            }
        )
    return rows
