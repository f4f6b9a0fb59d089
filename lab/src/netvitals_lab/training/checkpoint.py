"""Checkpoints: plain tensors and numbers in one file, read back without running anything from it."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.optim import Optimizer

from netvitals_lab.training.history import Evaluation
from netvitals_lab.training.recipe import Group, Recipe

_FORMAT = 1


@dataclass(frozen=True)
class Checkpoint:
    """A run at the end of an epoch: enough to go on from there as if nothing had happened."""

    model: dict[str, Tensor]
    optimizer: dict[str, Any]
    recipe: Recipe
    step: int
    epoch: int
    order: Tensor  # state of the generator that decides the order of examples
    rng: Tensor  # state of torch's generator (dropout, noisy activations)
    loss: list[float]
    lr: list[float]
    grad_norm: list[float]
    evaluations: list[Evaluation]


def save_checkpoint(
    path: str | Path,
    model: nn.Module,
    optimizer: Optimizer,
    recipe: Recipe,
    *,
    step: int,
    epoch: int,
    order: Generator,
    loss: list[float],
    lr: list[float],
    grad_norm: list[float],
    evaluations: list[Evaluation],
) -> Path:
    """Write a checkpoint; a crash in the middle leaves the former file whole."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".part")
    torch.save(
        {
            "format": _FORMAT,
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "recipe": asdict(recipe),
            "step": step,
            "epoch": epoch,
            "order": order.get_state(),
            "rng": torch.get_rng_state(),
            "loss": loss,
            "lr": lr,
            "grad_norm": grad_norm,
            "evaluations": [asdict(e) for e in evaluations],
        },
        partial,
    )
    os.replace(partial, path)
    return path


def load_checkpoint(path: str | Path) -> Checkpoint:
    """Read a checkpoint with ``weights_only=True``: the file cannot run code."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no checkpoint at {path}")
    try:
        raw = torch.load(path, weights_only=True, map_location="cpu")
    except Exception as error:  # torch has no one error for a file that is no checkpoint
        raise ValueError(
            f"{path} cannot be read as a checkpoint ({type(error).__name__}); is it whole, and was it "
            "written by this training loop?"
        ) from error
    if not isinstance(raw, dict) or raw.pop("format", None) != _FORMAT:
        raise ValueError(f"{path} is not a checkpoint written by this version of the training loop")
    settings = raw.pop("recipe")
    settings["groups"] = tuple(Group(**g) for g in settings["groups"])
    evaluations = [Evaluation(**e) for e in raw.pop("evaluations")]
    return Checkpoint(recipe=Recipe(**settings), evaluations=evaluations, **raw)
