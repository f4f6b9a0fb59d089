r"""The set-ups that Appendix A.9 admits: what its text leaves open, and every combination of it.

Printed are the kernels' names, c = ½, 64 × 64 pixels, the optimisers and their rates, 200 iterations. Open are the
padding, the scale of Sobel (the usual integer one has norm 8, the paper says 4), the checkerboard's period, whether it
is the output itself or the input that made the output, $y = 1[A x_{true} > c]$, and what IoU compares: $1[h > ½]$ with
y, or, where a picture is the input, $1[x > ½]$ with it. A claim is asked in all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

import torch
from torch import Tensor

from netvitals_lab import Config, Plot, Row
from netvitals_lab.engine.judges import Setup, groups, some
from netvitals_lab.papers.gate_density import reconstruction as rec

UNPRINTED = "the scale of its kernel, the padding, the target and the operands of IoU"
CHOICES = (
    "zero and circular padding; Sobel × 1 and × ½; a checkerboard of blocks of 8 or 4 as the output, and one of blocks "
    "of 8 as the input that made it; IoU of output and target, and there of input and picture too",
    "200 iterations, Adam at 0.03",
)
STIFFNESS = "stiffness enters the four activations that grow as f(α(z − c))/α, as f(α(z − c)), or not at all"
LEARNED = "a learned kernel begins at random with unit norm, or as the fixed one, and has the picture's rate"
TARGETS = ((8, False), (4, False), (8, True))  # period of the checkerboard, and whether it is the input
Open = tuple[str, float, int, bool]  # padding, scale of Sobel, block, reachable
SETUPS: tuple[Open, ...] = tuple(
    (padding, scale, block, reachable)
    for padding, scale, (block, reachable) in product(("zero", "circular"), (1.0, 0.5), TARGETS)
)
FEW: tuple[Open, ...] = (SETUPS[0], SETUPS[-1])  # of the smoke scale
STIFFENED = [(a, way) for a in rec.ACTIVATIONS for way in rec.WAYS if a not in rec.BOUNDED or way == "divided"]
STARTS = ("random", "fixed")  # what a learned kernel begins with
OF_INPUT = {"iou": "iou_input", "fixed_iou": "fixed_input", "joint_iou": "joint_input"}  # columns that change places


def configs_in(setups: Sequence[Open], configs: Sequence[Config], *, blocks: bool = True) -> list[Config]:
    """Every configuration in every set-up; those that differ by the block alone are one where ``blocks`` is false."""
    found: list[Config] = []
    for (padding, scale, block, reachable), config in product(setups, configs):
        if blocks or block == setups[0][2]:
            found.append({"padding": padding, "scale": scale, "block": block, "reachable": reachable, **config})
    return found


def kernel_of(config: Mapping[str, Any], name: str) -> Tensor:
    """A kernel of a set-up: its scale is Sobel's, the others are as printed."""
    return rec.kernel(name, config["scale"] if name == "sobel_x" else 1.0)


def problem_in(config: Mapping[str, Any], **more: Any) -> tuple[rec.Reconstruction, Tensor, Tensor]:
    """A configuration's batch over stiffness values and seeds, its starts, and the picture an input is held against."""
    size, c = config["size"], config.get("c", 0.5)
    kernel = kernel_of(config, config.get("kernel", "sobel_x"))
    picture = rec.target(config.get("target", "checkerboard"), size, min(config["block"], max(size // 4, 1)))
    y = picture
    if config["reachable"]:
        alone = rec.Reconstruction(torch.ones(1, dtype=torch.float64), kernel, picture, c=c, padding=config["padding"])
        y = (alone.blur(picture[None])[0] > c).double()
    problem, keys = rec.grid(config["alphas"], config["seeds"], [kernel], y, c=c, padding=config["padding"], **more)
    return problem, problem.start(torch.tensor([seed for _, _, seed in keys])), picture


def learned_from(config: Mapping[str, Any], problem: rec.Reconstruction) -> Tensor:
    """The kernels that learning begins with, one a problem: random ones of unit norm, or the fixed one."""
    if config["start"] == "fixed":
        return problem.kernels.expand(problem.batch, 3, 3)
    return torch.stack([rec.kernel("random_norm", seed=i % config["seeds"]) for i in range(problem.batch)])


def spectral_norm(kernel: Tensor, side: int = 64) -> float:
    """Largest gain of a kernel over all waves: of its periodic convolution.

    >>> round(spectral_norm(torch.tensor([[0, 1.0, 0], [1, -4, 1], [0, 1, 0]])), 6)
    8.0
    """
    return float(torch.fft.fft2(kernel.double(), s=(side, side)).abs().max())


def of_picture(x: Tensor, picture: Tensor) -> Tensor:
    """IoU of the input: 1[x > ½] against the picture."""
    return rec.overlap(x > 0.5, picture > 0.5)


def in_words(row: Mapping[str, Any]) -> Setup:
    """
    >>> in_words({"padding": "zero", "scale": 0.5, "block": 8, "reachable": True})
    ('zero padding', 'Sobel × 0.5', 'blocks of 8 as the input')
    """
    target = f"blocks of {row['block']} as the {'input' if row['reachable'] else 'output'}"
    return f"{row['padding']} padding", f"Sobel × {row['scale']:g}", target


def apart(rows: Sequence[Row], *, operands: bool = True) -> dict[Setup, list[Row]]:
    """Rows by set-up; with ``operands`` those whose picture is the input once more, with its IoU in the output's place.

    >>> row = {"padding": "zero", "scale": 1.0, "block": 8, "reachable": True, "iou": [0.9], "iou_input": [0.4]}
    >>> [(setup[-1], mine[0]["iou"]) for setup, mine in apart([row]).items()]
    [('IoU of the output', [0.9]), ('IoU of the input', [0.4])]
    """
    found = {in_words(mine[0]): mine for mine in groups(rows, "padding", "scale", "block", "reachable").values()}
    if not operands:
        return found
    outputs = {(*setup, "IoU of the output"): mine for setup, mine in found.items()}
    inputs = {setup: mine for setup, mine in found.items() if mine[0]["reachable"]}
    return outputs | {(*setup, "IoU of the input"): [_turned(r) for r in mine] for setup, mine in inputs.items()}


def _turned(row: Row) -> Row:
    return row | {output: row[of_input] for output, of_input in OF_INPUT.items() if output in row}


def by_way(rows: Sequence[Row], *, operands: bool = True) -> dict[Setup, list[Row]]:
    """Set-ups of six activations: how stiffness enters those that grow."""
    return {
        (*setup, f"stiffness as {word}"): [r for r in mine if r["way"] == way or r["act"] in rec.BOUNDED]
        for setup, mine in apart(rows, operands=operands).items()
        for way, word in rec.WAYS.items()
    }


def by_start(rows: Sequence[Row], *, operands: bool = True) -> dict[Setup, list[Row]]:
    """Set-ups of a learned kernel: it begins at random, or as the fixed one."""
    return {
        (*setup, f"{start} start of the kernel"): some(mine, start=start)
        for setup, mine in apart(rows, operands=operands).items()
        for start in STARTS
    }


def without_iou(rows: Sequence[Row]) -> dict[Setup, list[Row]]:
    """Set-ups of a claim that has no IoU in it: what IoU compares makes no difference there."""
    return apart(rows, operands=False)


def first(rows: Sequence[Row]) -> list[Row]:
    """The rows of our own set-up, the first of all."""
    return next(iter(apart(rows, operands=False).values()))


def drawn(plot: Callable[[Sequence[Row]], Plot]) -> Callable[[Sequence[Row]], Plot]:
    """A picture of our own set-up alone."""
    return lambda rows: plot(first(rows))
