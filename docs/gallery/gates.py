"""Gate density on a small ResNet and a small GPT: forecast, outcome, and the margins behind them.

    python docs/gallery/gates.py

The data are drawn here: ten noisy patterns for the ResNet, a Markov chain for the GPT. No folder and no network is needed.
"""

from __future__ import annotations

import torch
from exhibit import Piece, chain, next_token, options, patterns, show, watched, windows

import netvitals as nv
from netvitals import gates
from netvitals.report import Plot, Series
from netvitals_lab import models

DECAY = 2.44  # integrated weight decay of the paper's runs with SGD
THETA = 0.1


def resnet(act: str, smoke: bool, seed: int = 0) -> Piece:
    steps, width = (20, 8) if smoke else (600, 16)
    model = models.build(f"resnet-mini,width={width},act={act}", seed=seed)
    decay = DECAY / (0.1 * steps / 2 * 10)  # the rate falls along a cosine, and momentum 0.9 multiplies by ten
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, nesterov=True, weight_decay=decay)
    return Piece(
        name=f"gates-resnet-{act}",
        model=model,
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps),
        loss_fn=torch.nn.functional.cross_entropy,
        draw=patterns(64, seed=seed),
        steps=steps,
        every=max(1, steps // 20),
    )


def gpt(smoke: bool) -> Piece:
    steps, size = (20, "depth=1,heads=2,width=16") if smoke else (300, "depth=3,heads=4,width=64")
    model = models.build(f"gpt-micro,vocab=32,context=32,act=gelu,{size}", seed=0)
    return Piece(
        name="gates-gpt",
        model=model,
        optimizer=torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.1),
        loss_fn=next_token,
        draw=windows(chain(32, seed=0), 32, 16, seed=0),
        steps=steps,
        every=max(1, steps // 20),
    )


def forecast_after(piece: Piece, tenth: int, x: torch.Tensor) -> list[gates.GateOutlook]:
    """A list that holds the forecast once the step is reached; it is made before that step, and changes nothing."""
    made: list[gates.GateOutlook] = []
    draw = piece.draw

    def looking(step: int) -> tuple[torch.Tensor, torch.Tensor]:
        if step == tenth:
            left = gates.will_collapse(piece.optimizer, piece.scheduler, piece.steps - step, model=piece.model)
            made.append(gates.measure(piece.model, x, mode="train").forecast(THETA, decay=left))
        return draw(step)

    piece.draw = looking
    return made


def more_seeds(act: str, seeds: range, smoke: bool) -> None:
    """Forecast and outcome of other weights and patterns, without a watch."""
    print(f"== ResNet with {act}, seeds {seeds[0]} to {seeds[-1]}: margin in σ, what was said, how the density moved")
    found: dict[str, list[str]] = {}
    for seed in seeds:
        piece = resnet(act, smoke, seed)
        x, _ = piece.draw(1_000_003)
        said = forecast_after(piece, piece.steps // 10, x)
        for step in range(piece.steps):
            a, y = piece.draw(step)
            piece.optimizer.zero_grad()
            piece.loss_fn(piece.model(a), y).backward()
            piece.optimizer.step()
            piece.scheduler.step()
        report = gates.measure(piece.model, x, mode="train")
        for name, s in said[0].sites.items():
            moved = report.sites[name].density(THETA) - s.measured
            found.setdefault(name, []).append(f"{s.forecast.margin:+.3f} {s.direction} {moved:+.3f}")
    for name, cells in found.items():
        print(f"  {name}: {' | '.join(cells)}")


def density(runs: dict[str, nv.Run]) -> Plot:
    """Mean density of the activations of each run."""
    lines = []
    for name, run in runs.items():
        found = (
            run.frame("gates", metric=f"density@{THETA:g}").select("step", "value").group_by("step").mean().sort("step")
        )
        lines.append(Series(name, found["step"].to_list(), found["value"].to_list(), line=True))
    return Plot("step", f"gate density, θ = {THETA:g}", lines)


def main() -> None:
    arguments = options(__doc__ or "")
    out, runs = arguments.out, {}
    for act in ("relu", "gelu"):
        piece = resnet(act, arguments.smoke)
        x, _ = piece.draw(1_000_003)
        collapse = gates.will_collapse(piece.optimizer, piece.scheduler, piece.steps, model=piece.model)
        print(f"== ResNet with {act}, before training\n{collapse}")
        said = forecast_after(piece, piece.steps // 10, x)
        runs[f"ResNet, {act}"] = watched(piece, out)
        report = gates.measure(piece.model, x, mode="train")
        channels = gates.channels(report, THETA)
        print(f"== ResNet with {act}, after a tenth of the training\n{said[0]}\n== At its end\n{report}\n{channels}\n")
        for name, s in said[0].sites.items():
            after = report.sites[name].density(THETA)
            print(
                f"  {name}: {s.direction} said (confidence {s.forecast.confidence:.0%}), {s.measured:.3f} → {after:.3f}"
            )
        said[0].plot().save(out / f"gates-forecast-{act}.svg")
        channels.plot().save(out / f"gates-channels-{act}.svg")
        more_seeds(act, range(1, 3 if arguments.smoke else 5), arguments.smoke)
        show(runs[f"ResNet, {act}"], f"ResNet with {act}", arguments)
    piece = gpt(arguments.smoke)
    runs["GPT, gelu"] = watched(piece, out)
    report = gates.measure(piece.model, piece.draw(1_000_003)[0])
    print(f"== GPT\n{report}\n{gates.channels(runs['GPT, gelu'], THETA)}")
    report.plot().save(out / "gates-gpt.svg")
    gates.channels(runs["GPT, gelu"], THETA).plot().save(out / "gates-gpt-channels.svg")
    show(runs["GPT, gelu"], "GPT with gelu", arguments)
    density(runs).save(out / "gates-density.svg")
    print(f"\nThe pictures: {out}/gates-*.svg")


if __name__ == "__main__":
    main()
