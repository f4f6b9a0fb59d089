"""Dead directions of a small GPT: the rates that its parts set, its heads, and the learning coefficient over training.

    python docs/gallery/dead.py

The data are drawn here: 512 windows of a Markov chain. No folder and no network is needed.
"""

from __future__ import annotations

from typing import Any

import torch
from exhibit import Piece, chain, next_token, options, show, watched, windows

from netvitals import singular
from netvitals.report import Plot, Series
from netvitals_lab import models

EXAMPLES, CONTEXT, VOCABULARY = 512, 8, 16
LOCALIZATION = 100.0


def gpt(smoke: bool) -> tuple[Piece, tuple[torch.Tensor, torch.Tensor]]:
    steps, examples = (20, 64) if smoke else (400, EXAMPLES)
    size = "depth=1,heads=2,width=8" if smoke else "depth=1,heads=2,width=16"
    model = models.build(f"gpt-micro,vocab={VOCABULARY},context={CONTEXT},act=gelu,norm=layer,{size}", seed=0)
    x, y = windows(chain(VOCABULARY, seed=0), CONTEXT, examples, seed=0)(0)

    def draw(step: int) -> tuple[torch.Tensor, torch.Tensor]:
        rows = torch.randint(examples, (64,), generator=torch.Generator().manual_seed(step))
        return x[rows], y[rows]

    piece = Piece(
        name="dead-gpt",
        model=model,
        optimizer=torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=0.0),
        loss_fn=next_token,
        draw=draw,
        steps=steps,
        every=max(1, steps // 20),
    )
    return piece, (x, y)


def checkpoints(piece: Piece, at: tuple[int, ...]) -> dict[int, dict[str, torch.Tensor]]:
    """A mapping that holds the weights of each of these steps once it is reached."""
    states: dict[int, dict[str, torch.Tensor]] = {}
    draw = piece.draw

    def looking(step: int) -> tuple[torch.Tensor, torch.Tensor]:
        if step in at:
            states[step] = {name: value.clone() for name, value in piece.model.state_dict().items()}
        return draw(step)

    piece.draw = looking
    return states


def weakest(heads: dict[int, Any]) -> Plot:
    """The smallest singular value of each head's output projection over its largest, over training."""
    names = [f"{h.layer}, head {h.head}" for h in next(iter(heads.values()))]
    lines = [
        Series(name, list(heads), [found[i].weakest for found in heads.values()], line=True)
        for i, name in enumerate(names)
    ]
    return Plot("step", "smallest singular value / largest", lines)


def main() -> None:
    arguments = options(__doc__ or "")
    out, smoke = arguments.out, arguments.smoke
    piece, batch = gpt(smoke)
    states = checkpoints(piece, (5, 19) if smoke else (50, 100, 200, 399))
    run = watched(piece, out)

    few = batch[0][:32], batch[1][:32]
    rates = singular.rates(piece.model, "cross_entropy", few)
    print(f"== Rates after training\n{rates}")
    rates.plot().save(out / "dead-rates.svg")

    heads = {}
    for step, state in states.items():
        piece.model.load_state_dict(state)
        found = singular.readout(piece.model, "cross_entropy", few, units=1, chains=0, static=True).static
        heads[step] = found.attention
    print("== Heads at the last checkpoint", *found.attention, sep="\n")
    weakest(heads).save(out / "dead-heads.svg")

    short = {"draws": 20, "thin": 2} if smoke else {"draws": 60, "burn_in": 500}
    history = singular.coefficient_history(
        piece.model,
        next_token,
        batch,
        checkpoints=states,
        localization=LOCALIZATION,
        batch_size=16 if smoke else 64,
        **short,
    )
    print(f"== λ over training, minibatches\n{history}\n{history.coefficients[-1]}")
    history.plot().save(out / "dead-coefficient.svg")
    show(run, "A GPT and its dead directions", arguments)
    print(f"\nThe pictures: {out}/dead-*.svg")


if __name__ == "__main__":
    main()
