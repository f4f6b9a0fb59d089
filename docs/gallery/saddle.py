"""Saddle escape of small networks: when a plateau ends, how its length follows the scale, what optimizers do to Δ.

    python docs/gallery/saddle.py

The data are drawn here: ten noisy patterns for perceptrons, a Markov chain for the GPT. No folder or network is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from exhibit import Piece, chain, next_token, options, patterns, show, watched, windows
from torch import nn

from netvitals import saddle
from netvitals_lab import models

EPS = (0.2, 0.1, 0.05, 0.025)
RATE = 0.2


def perceptron(small: int, eps: float, seed: int = 0) -> nn.Sequential:
    """Four layers without biases, tanh between them; the first ``small`` are drawn ``eps`` times as large as usual."""
    torch.manual_seed(seed)
    layers = [nn.Linear(a, b, bias=False) for a, b in ((64, 32), (32, 32), (32, 32), (32, 10))]
    with torch.no_grad():
        for layer in layers[:small]:
            layer.weight.mul_(eps)
    return nn.Sequential(*(m for layer in layers[:-1] for m in (layer, nn.Tanh())), layers[-1])


def data() -> tuple[torch.Tensor, torch.Tensor]:
    """One batch of patterns, the same for every network of this page."""
    return flat(patterns(256, seed=0, noise=0.5))(0)


def flat(draw: Callable[[int], Any]) -> Callable[[int], Any]:
    """The same batches with images as rows."""

    def drawn(step: int) -> tuple[torch.Tensor, torch.Tensor]:
        x, y = draw(step)
        return x.flatten(1), y

    return drawn


def escape(model: nn.Module, optimizer: torch.optim.Optimizer, batch: Any, most: int) -> float:
    """The first step at which a twentieth of the plateau's loss is gone; NaN if never."""
    first = None
    for step in range(most):
        loss = nn.functional.cross_entropy(model(batch[0]), batch[1])
        first = loss.item() if first is None else first
        if loss.item() < 0.95 * first:
            return step
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return float("nan")


def forecasts(batch: Any, seeds: int) -> None:
    """When each plateau ends, from one measurement."""
    print("== Forecast at step 0 (SGD) or 20 (Adam), and the step at which the loss left its plateau")
    inside = total = 0
    for name, make, warm in (
        ("SGD", lambda p: torch.optim.SGD(p, lr=RATE), 0),
        ("Adam", lambda p: torch.optim.Adam(p, lr=1e-4), 20),  # its averages are not there before
    ):
        for small, eps in ((2, 0.1), (3, 0.1), (3, 0.05)):
            for seed in range(seeds):
                model = perceptron(small, eps, seed)
                optimizer = make(model.parameters())
                escape(model, optimizer, batch, warm)
                said = saddle.plateau(model, "cross_entropy", batch, optimizer=optimizer, step=warm)
                left = warm + escape(model, optimizer, batch, 3000)
                total, inside = total + 1, inside + (said.low <= left <= said.high)
                span = f"{said.step:.0f} ({said.low:.0f} to {said.high:.0f})" if not said.reason else said.reason
                print(f"  {name}, {small} small layers, ε = {eps:g}, seed {seed}: {span}; left at {left:.0f}")
    print(f"  {inside} of {total} inside the 80 % interval")


def exponents(batch: Any, seeds: int, eps: tuple[float, ...], most: int, out: Any) -> None:
    """How the length of a plateau follows the small scale, on whole networks."""
    print("== Length of the plateau over ε")
    for small in (2, 3, 4):
        times = [
            [
                escape(m := perceptron(small, e, s), torch.optim.SGD(m.parameters(), lr=RATE), batch, most)
                for s in range(seeds)
            ]
            for e in eps
        ]
        fit = saddle.fit_exponent(eps, np.array(times), r=small)
        print(f"  {small} small layers: {np.nanmean(times, 1).round().tolist()} steps at ε = {list(eps)}: {fit}")
        if small == 3:
            fit.plot().save(out / "saddle-exponent.svg")
    flow = saddle.reduced_flow([0.02, 0.02, 0.02, 1.0], "tanh", width=32, threshold=0.45)
    flow.plot().save(out / "saddle-flow.svg")
    print(f"  the reduced flow of such a chain: {flow}")


def balance(arguments: Any, batch: Any) -> None:
    """Δ of two layers over a run, and what plain descent leaves unexplained."""
    for name, make in (
        ("sgd", lambda p: torch.optim.SGD(p, lr=0.1)),
        ("adamw", lambda p: torch.optim.AdamW(p, lr=2e-3, weight_decay=0.1)),
    ):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
        steps = 20 if arguments.smoke else 400
        run = watched(
            Piece(
                name=f"saddle-{name}",
                model=model,
                optimizer=make(model.parameters()),
                loss_fn=nn.functional.cross_entropy,
                draw=flat(patterns(64, seed=1)),
                steps=steps,
                every=max(1, steps // 40),
                vitals=("default", "accounting"),
            ),
            arguments.out,
        )
        found = saddle.imbalance_over_time(run)
        print(f"== Imbalance of a perceptron with ReLU under {name}\n{found}")
        found.plot().save(arguments.out / f"saddle-imbalance-{name}.svg")
        show(run, f"Perceptron under {name}", arguments)


def laws(smoke: bool) -> None:
    """What gradient flow conserves in a GPT, and how much of it is left after training."""
    size, most = ("depth=1,heads=2,width=16", 10) if smoke else ("depth=2,heads=4,width=32", 800)
    draw = windows(chain(32, seed=0), 16, 16, seed=0)
    for name, make, steps in (
        ("SGD", lambda p: torch.optim.SGD(p, lr=0.05), most),
        ("AdamW", lambda p: torch.optim.AdamW(p, lr=2e-3, weight_decay=0.1), max(10, most // 8)),
    ):
        model = models.build(f"gpt-micro,vocab=32,context=16,act=relu,{size}", seed=0)
        found = saddle.conserved(model, next_token, draw(1_000_003))
        if name == "SGD":
            print(f"== What gradient flow conserves in a GPT\n{found}")
        optimizer = make(model.parameters())
        start = {n: p.detach().clone() for n, p in model.named_parameters()}
        for step in range(steps):
            optimizer.zero_grad()
            next_token(model(draw(step)[0]), draw(step)[1]).backward()
            optimizer.step()
        after = dict(model.named_parameters())
        moved = sum(float((after[n].detach() - w).square().sum()) for n, w in start.items())
        changes = {law.name: float(law.value(after) - law.value(start)) for law in found.laws}
        print(f"  {name}, {steps} steps: the weights moved by ‖θ − θ₀‖² = {moved:.1f}; Δ of the laws moved by")
        print("    " + ", ".join(f"{law} {change:+.3f}" for law, change in changes.items()))


def main() -> None:
    arguments = options(__doc__ or "")
    arguments.out.mkdir(parents=True, exist_ok=True)
    batch = data()
    forecasts(batch, 1 if arguments.smoke else 4)
    exponents(batch, 1 if arguments.smoke else 3, EPS[:3] if arguments.smoke else EPS, 20_000, arguments.out)
    balance(arguments, batch)
    laws(arguments.smoke)
    print(f"\nThe pictures: {arguments.out}/saddle-*.svg")


if __name__ == "__main__":
    main()
