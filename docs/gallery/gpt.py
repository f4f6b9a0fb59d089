"""A GPT on Shakespeare, healthy and sick: the same weights, text and batches; the rate is the only difference.

    NETVITALS_DATA=FOLDER python docs/gallery/gpt.py

Both learn, and both loss curves look as loss curves do. FOLDER holds ``tinyshakespeare.txt``.
"""

from __future__ import annotations

import torch
from exhibit import Piece, next_token, options, show, text, watched, windows

from netvitals_lab import models

RATES = {"healthy": 2e-3, "sick": 4e-2}


def piece(name: str, smoke: bool) -> Piece:
    context, batch, steps = (16, 4, 22) if smoke else (64, 16, 600)
    size = "depth=1,heads=2,width=16" if smoke else "depth=4,heads=4,width=128,act=gelu"
    model = models.build(f"gpt-micro,context={context},{size}", seed=0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATES[name], weight_decay=0.1)
    rise = 1 if smoke else 40
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda t: min(1.0, (t + 1) / rise) if name == "healthy" else 1.0
    )
    return Piece(
        name=f"gpt-{name}",
        model=model,
        optimizer=optimizer,
        scheduler=scheduler,
        loss_fn=next_token,
        draw=windows(text(smoke), context, batch, seed=0),
        steps=steps,
        every=2 if smoke else 10,
    )


def main() -> None:
    arguments = options(__doc__ or "")
    for name in RATES:
        run = watched(piece(name, arguments.smoke), arguments.out)
        show(run, f"GPT on Shakespeare, {name}", arguments)


if __name__ == "__main__":
    main()
