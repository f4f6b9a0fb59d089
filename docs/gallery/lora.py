"""A LoRA fine-tune: a GPT that has read Shakespeare learns Python through a few of its weights.

    NETVITALS_DATA=FOLDER python docs/gallery/lora.py

The base is trained here, on the text of FOLDER (``tinyshakespeare.txt``), and frozen; adapters of rank 4 beside every
linear layer then learn from the source code of Python's own library, which every Python brings.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

import torch
from exhibit import Piece, next_token, options, show, text, watched, windows
from torch import Tensor, nn

from netvitals_lab import models


class LoRA(nn.Module):
    """W x + (α/r) B A x with W frozen; B begins at zero, so that the network begins as it was."""

    def __init__(self, base: nn.Linear, rank: int, alpha: float) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)
        nn.init.kaiming_uniform_(self.down.weight, a=math.sqrt(5))
        nn.init.zeros_(self.up.weight)
        self.scale = alpha / rank

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.scale * self.up(self.down(x))


def adapted(model: nn.Module, rank: int, alpha: float) -> nn.Module:
    """All parameters frozen, an adapter beside every linear layer of the blocks."""
    model.requires_grad_(False)
    for name, layer in list(model.named_modules()):
        if isinstance(layer, nn.Linear) and name.startswith("blocks"):
            parent, _, child = name.rpartition(".")
            setattr(model.get_submodule(parent), child, LoRA(layer, rank, alpha))
    return model


def source(smoke: bool) -> Tensor:
    """Python's own library as bytes."""
    if smoke:
        return torch.tensor(list(b"for word in words:\n    print(word)\n" * 100))
    files = sorted(Path(os.__file__).parent.glob("*.py"))
    return torch.tensor(list(b"".join(f.read_bytes() for f in files)[:2_000_000]))


def base(smoke: bool) -> nn.Module:
    """The GPT after a while with Shakespeare, not watched."""
    context, batch, steps = (16, 4, 10) if smoke else (64, 16, 300)
    size = "depth=1,heads=2,width=16" if smoke else "depth=4,heads=4,width=128,act=gelu"
    model = models.build(f"gpt-micro,context={context},{size}", seed=0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.1)
    draw = windows(text(smoke), context, batch, seed=0)
    for step in range(steps):
        x, y = draw(step)
        loss = next_token(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


def piece(smoke: bool) -> Piece:
    model = base(smoke)
    torch.manual_seed(0)
    model = adapted(model, rank=2 if smoke else 4, alpha=4 if smoke else 8)
    learn = [p for p in model.parameters() if p.requires_grad]
    share = sum(p.numel() for p in learn) / sum(p.numel() for p in model.parameters())
    print(f"{sum(p.numel() for p in learn):,} weights learn, {share:.1%} of all")
    return Piece(
        name="lora",
        model=model,
        optimizer=torch.optim.AdamW(learn, lr=2e-3),
        loss_fn=next_token,
        draw=windows(source(smoke), 16 if smoke else 64, 4 if smoke else 16, seed=1),
        steps=22 if smoke else 300,
        every=2 if smoke else 10,
    )


def main() -> None:
    arguments = options(__doc__ or "")
    show(watched(piece(arguments.smoke), arguments.out), "GPT with LoRA, from Shakespeare to Python", arguments)


if __name__ == "__main__":
    main()
