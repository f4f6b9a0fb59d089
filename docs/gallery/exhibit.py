"""What every piece of the gallery does: train while watched, write the report, take its picture, say what was found.

A piece is a script of this folder: ``python docs/gallery/gpt.py`` makes its runs, reports and pictures below ``--out``;
``--smoke`` does the same in seconds on made-up data and made-up weights, without packages and without a data folder.
"""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import netvitals as nv

HERE = Path(__file__).parent
VIEW = {"width": 1280, "height": 1180}  # pixels of a picture


@dataclass
class Piece:
    """One training run to be measured."""

    name: str
    model: nn.Module
    optimizer: torch.optim.Optimizer
    loss_fn: Callable[[Tensor, Tensor], Tensor]
    draw: Callable[[int], tuple[Tensor, Tensor]]  # step → batch
    steps: int
    every: int
    scheduler: Any = None
    clip: float | None = None  # largest gradient norm
    vitals: tuple[str, ...] = ("default",)


def options(about: str) -> argparse.Namespace:
    """``--smoke``, ``--out`` and ``--picture``, for every script; torch is seeded, so that all repeats."""
    torch.manual_seed(0)
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--smoke", action="store_true", help="seconds, on made-up data and weights")
    parser.add_argument("--out", type=Path, default=Path("runs/gallery"), help="folder for runs, reports and pictures")
    parser.add_argument("--picture", action="store_true", help="also take a picture of each report (needs chromium)")
    return parser.parse_args()


def text(smoke: bool) -> Tensor:
    """The Shakespeare text of NETVITALS_DATA as bytes, or words in a row that repeat."""
    if smoke:
        return torch.tensor(list(b"to be or not to be, that is the question. " * 100))
    folder = os.environ.get("NETVITALS_DATA")
    if folder is None:
        raise SystemExit("set NETVITALS_DATA to the folder with tinyshakespeare.txt, or try --smoke")
    return torch.frombuffer(bytearray(Path(folder, "tinyshakespeare.txt").read_bytes()), dtype=torch.uint8).long()


def windows(stream: Tensor, context: int, batch: int, seed: int) -> Callable[[int], tuple[Tensor, Tensor]]:
    """Batches of a text: ``context`` tokens each, and the tokens that follow them."""

    def draw(step: int) -> tuple[Tensor, Tensor]:
        chosen = torch.Generator().manual_seed(seed * 100_003 + step)
        start = torch.randint(len(stream) - context - 1, (batch, 1), generator=chosen)
        window = stream[start + torch.arange(context + 1)]
        return window[:, :-1], window[:, 1:]

    return draw


def chain(vocabulary: int, seed: int, length: int = 40_000) -> Tensor:
    """Tokens of a Markov chain: four successors for each token, the first of them twice as likely as the next."""
    g = torch.Generator().manual_seed(seed)
    successors = torch.rand(vocabulary, vocabulary, generator=g).argsort(1)[:, :4].tolist()
    picks = torch.multinomial(torch.tensor([8.0, 4.0, 2.0, 1.0]), length, replacement=True, generator=g).tolist()
    out = [0]
    for pick in picks:
        out.append(successors[out[-1]][pick])
    return torch.tensor(out)


def patterns(batch: int, seed: int, noise: float = 1.5) -> Callable[[int], tuple[Tensor, Tensor]]:
    """Batches of ten fixed 8×8 patterns under noise, and which pattern it is."""
    g = torch.Generator().manual_seed(seed)
    classes = torch.randn(10, 1, 8, 8, generator=g)

    def draw(step: int) -> tuple[Tensor, Tensor]:
        g = torch.Generator().manual_seed(seed * 100_003 + step)
        y = torch.randint(10, (batch,), generator=g)
        return classes[y] + noise * torch.randn(batch, 1, 8, 8, generator=g), y

    return draw


def next_token(logits: Tensor, y: Tensor) -> Tensor:
    """Cross-entropy of the tokens that follow."""
    return nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten())


def watched(piece: Piece, out: Path) -> nv.Run:
    """Train with one line added; the run is stored below ``out``."""
    with nv.watch(
        piece.model,
        optimizer=piece.optimizer,
        scheduler=piece.scheduler,
        run=out / piece.name,
        every=piece.every,
        total_steps=piece.steps,
        vitals=piece.vitals,
    ) as vitals:
        for step in range(piece.steps):
            x, y = piece.draw(step)
            loss = piece.loss_fn(piece.model(x), y)
            piece.optimizer.zero_grad()
            loss.backward()
            if piece.clip is not None:
                nn.utils.clip_grad_norm_(piece.model.parameters(), piece.clip)
            piece.optimizer.step()
            if piece.scheduler is not None:
                piece.scheduler.step()
            vitals.step(loss)
    assert vitals.path is not None
    return nv.open_run(vitals.path)


def pretrained(make: Callable[[bool], Piece], name: str, about: str) -> None:
    """A whole script for weights that a package carries: a checkup of them as they come, then a fine-tune."""
    arguments = options(about)
    piece = make(arguments.smoke)
    examine(piece, f"{name} as it comes", arguments)
    show(watched(piece, arguments.out), f"{name} fine-tuned", arguments)


def examine(piece: Piece, title: str, arguments: argparse.Namespace) -> nv.Checkup:
    """One checkpoint, everything at once; the page goes beside the run's folder."""
    x, y = piece.draw(1_000_003)
    found = nv.checkup(piece.model, piece.loss_fn, (x, y), curvature=False)
    arguments.out.mkdir(parents=True, exist_ok=True)
    page = found.to_html(arguments.out / f"{piece.name}-checkup.html")
    print(f"== {title}\n{found.findings()}\n\nThe page: {page}")
    if arguments.picture:
        print(f"Its picture: {picture(page)}")
    return found


def show(run: nv.Run, title: str, arguments: argparse.Namespace) -> nv.Findings:
    """Findings in the terminal; the report, and its picture, beside the run's folder."""
    found = run.findings()
    page = nv.report.write(run, run.path.parent.with_suffix(".html"), title=title, findings=found)
    print(f"== {title}\n{found}\n\nThe report: {page}")
    if arguments.picture:
        print(f"Its picture: {picture(page)}")
    return found


def picture(page: Path) -> Path:
    """What a browser shows of a page when it is opened, as PNG."""
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        raise SystemExit("no chromium to take the picture with: leave --picture out, the report is written")
    target = page.with_suffix(".png")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        tab = browser.new_context(viewport=VIEW, color_scheme="light").new_page()  # type: ignore[arg-type]
        tab.goto(page.resolve().as_uri())
        tab.wait_for_timeout(1500)
        tab.screenshot(path=target)
        browser.close()
    return target
