"""Ways to learn a new task without touching an old one: adapters, and updates of all weights that are projected."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from netvitals import singular
from netvitals_lab import data

Task = tuple[Tensor, Tensor]
PAIRS = ("0–4 then 5–9", "upright then turned")
RATES = (5e-3, 5e-2)
EXAMPLES = 500  # of each task to learn from; the rest is for the test
Project = Callable[[list[Tensor]], list[Tensor]]  # updates of the parameters, in their order


def tasks(pair: str) -> tuple[Task, Task]:
    """Old task, new task, on the digits."""
    digits = data.load("digits")
    x = torch.cat([digits.train.x, digits.test.x]).flatten(1)
    y = torch.cat([digits.train.y, digits.test.y])
    if pair == PAIRS[0]:
        return (x[y < 5], y[y < 5]), (x[y >= 5], y[y >= 5])
    turned = torch.rot90(x.view(-1, 8, 8), 1, (1, 2)).reshape(-1, 64)
    return (x, y), (turned, y)


def halves(task: Task, seed: int) -> tuple[Task, Task]:
    """To learn from, and to test on."""
    order = torch.randperm(len(task[1]), generator=torch.Generator().manual_seed(seed))
    first, second = order[:EXAMPLES], order[EXAMPLES:]
    return (task[0][first], task[1][first]), (task[0][second], task[1][second])


def network(seed: int, widths: tuple[int, ...] = (64, 48, 48, 10)) -> nn.Sequential:
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    for a, b in itertools.pairwise(widths):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def learn(
    model: nn.Module,
    trained: list[nn.Parameter],
    task: Task,
    target: float,
    lr: float,
    steps: int,
    project: Project | None,
) -> float:
    """Full-batch Adam until the loss is below the target; ``project`` replaces each update."""
    optimizer = torch.optim.Adam(trained, lr=lr)
    value = float("inf")
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(task[0]), task[1])
        value = float(loss.detach())
        if value <= target:
            break
        loss.backward()
        before = [p.detach().clone() for p in trained]
        optimizer.step()
        if project is not None:
            with torch.no_grad():
                moves = project([p - b for p, b in zip(trained, before)])
                for p, b, move in zip(trained, before, moves):
                    p.copy_(b + move)
    return value


@dataclass(frozen=True)
class Option:
    """One setting of a method: what is attached to a copy of the model, and what becomes of an update."""

    name: str
    attach: Callable[[nn.Module], list[nn.Parameter]]
    project: Callable[[nn.Module], Project] | None = None


class PlainLoRA(nn.Module):
    """W + up @ down, both trained; ``down`` starts at random, ``up`` at zero."""

    def __init__(self, linear: nn.Linear, rank: int) -> None:
        super().__init__()
        self.linear = linear.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(rank, linear.in_features) / linear.in_features**0.5)
        self.up = nn.Parameter(torch.zeros(linear.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) + x @ self.down.T @ self.up.T


def plain(model: nn.Module, rank: int) -> list[nn.Parameter]:
    model.requires_grad_(False)
    out: list[nn.Parameter] = []
    for name, layer in list(model.named_modules()):
        if isinstance(layer, nn.Linear):
            adapted = PlainLoRA(layer, rank)
            model.set_submodule(name, adapted)
            out += [adapted.up, adapted.down]
    return out


def options(method: str, old: Task, new: Task) -> Iterator[Option]:
    """The settings of a method that are tried."""
    whole = lambda m: list(m.parameters())
    if method == "all weights":
        yield Option("", whole)
    for rank in (4, 8, 16):
        if method == "plain LoRA":
            yield Option(f"rank {rank}", lambda m, r=rank: plain(m, r))  # type: ignore[misc]
        if method == "tangential LoRA":
            yield Option(
                f"rank {rank}",
                lambda m, r=rank: singular.tangential_lora(m, old[0], rank=r, new=new[0]).attach(m),  # type: ignore[misc]
            )
    for share in (0.9, 0.99, 0.999):
        if method == "null space":
            yield Option(f"energy {share:g}", whole, lambda m, s=share: null_space(m, old[0], s))  # type: ignore[misc]
    for stored in (50, 200):
        if method == "OGD":
            yield Option(f"{stored} gradients", whole, lambda m, n=stored: orthogonal(m, old, n))  # type: ignore[misc]


METHODS = ("all weights", "plain LoRA", "tangential LoRA", "null space", "OGD")


def layer_inputs(model: nn.Module, x: Tensor) -> dict[str, Tensor]:
    """What every linear layer reads, with a one for its bias."""
    seen: dict[str, Tensor] = {}
    handles = [
        m.register_forward_pre_hook(lambda _, args, n=n: seen.__setitem__(n, args[0].detach()))
        for n, m in model.named_modules()
        if isinstance(m, nn.Linear)
    ]
    with torch.no_grad():
        model(x)
    for handle in handles:
        handle.remove()
    return {n: torch.cat([v, torch.ones(len(v), 1)], 1) for n, v in seen.items()}


def free_inputs(rows: Tensor, energy: float) -> Tensor:
    """The projector off the directions that hold so much of the inputs' energy (gradient projection memory)."""
    _, s, v = torch.linalg.svd(rows.double(), full_matrices=False)
    kept = int((s.square().cumsum(0) / s.square().sum() < energy).sum()) + 1
    top = v[:kept]
    return (torch.eye(rows.shape[1], dtype=torch.float64) - top.T @ top).float()


def null_space(model: nn.Module, x: Tensor, energy: float) -> Project:
    """Updates of each layer's weight and bias off the old inputs' main directions."""
    free = [free_inputs(rows, energy) for rows in layer_inputs(model, x).values()]

    def project(moves: list[Tensor]) -> list[Tensor]:
        out = []
        for p, weight, bias in zip(free, moves[::2], moves[1::2]):
            joined = torch.cat([weight, bias[:, None]], 1) @ p
            out += [joined[:, :-1], joined[:, -1]]
        return out

    return project


def stored_gradients(model: nn.Module, task: Task, count: int) -> Tensor:
    """Orthonormal columns that span the gradients of the right logits of so many old examples."""
    rows = []
    for x, y in zip(task[0][:count], task[1][:count]):
        logit = model(x[None])[0, y]
        rows.append(torch.cat([g.flatten() for g in torch.autograd.grad(logit, list(model.parameters()))]))
    return torch.linalg.qr(torch.stack(rows, 1).double())[0].float()


def orthogonal(model: nn.Module, task: Task, count: int) -> Project:
    """Updates orthogonal to the old logits' gradients (orthogonal gradient descent)."""
    basis = stored_gradients(model, task, count)

    def project(moves: list[Tensor]) -> list[Tensor]:
        flat = torch.cat([m.flatten() for m in moves])
        flat = flat - basis @ (basis.T @ flat)
        return [part.view_as(m) for part, m in zip(flat.split([m.numel() for m in moves]), moves)]

    return project


def measured(model: nn.Module, task: Task) -> tuple[float, float]:
    """Loss and share of errors."""
    with torch.no_grad():
        out = model(task[0])
        return float(F.cross_entropy(out, task[1])), float((out.argmax(1) != task[1]).float().mean())


def best(
    base: nn.Module, method: str, old: Task, new: Task, target: float, steps: int, seed: int
) -> tuple[nn.Module, float, str]:
    """The setting that reaches the target with the least old training loss, else the one that comes nearest."""
    tried = []
    for option in options(method, old, new):
        for lr in RATES:
            model = copy.deepcopy(base)
            torch.manual_seed(seed)
            project = option.project(model) if option.project else None
            trained = option.attach(model)
            loss = learn(model, trained, new, target, lr, steps, project)
            key = (loss > target, measured(model, old)[0] if loss <= target else loss)
            tried.append((key, model, loss, ", ".join(filter(None, (option.name, f"rate {lr:g}")))))
    _, model, loss, name = min(tried, key=lambda t: t[0])
    return model, loss, name
