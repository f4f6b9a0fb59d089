"""Progress of a study in the terminal: trials done, running, failed, and the time left."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from netvitals_lab.engine.runner import State

QUIET_S = 2.0  # shorter work shows nothing
SAY_S = 30.0  # where there is no terminal, a line this often


@contextmanager
def shown(state: State, progress: bool | Callable[[State], None]) -> Iterator[Callable[[State], None]]:
    """A function to call after every change of ``state``; draws a bar on stderr, or does what the caller wants."""
    if callable(progress):
        yield progress
        return
    if not progress:
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    console = Console(stderr=True, emoji=False)
    if not console.is_terminal:
        yield _lines(console.print)
        return
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[words]}"),
        console=console,
        transient=True,
    ) as bar:
        task = bar.add_task(state.study, total=state.total, words="", visible=False)

        def draw(now: State) -> None:
            bar.update(
                task,
                completed=now.reused + now.done + now.failed,
                words=words(now),
                visible=time.monotonic() - now.started > QUIET_S,
            )

        yield draw


def words(state: State) -> str:
    """The state as one line.

    >>> from netvitals_lab.engine.runner import State
    >>> words(State("demo", total=10, slots=2, reused=2, done=4, running=2, spent=40.0))
    '6/10 done (2 reused), 2 running, 0 failed, 20 s left'
    """
    left = state.left
    reused = f" ({state.reused} reused)" if state.reused else ""
    return (
        f"{state.reused + state.done}/{state.total} done{reused}, {state.running} running, {state.failed} failed, "
        + ("time left not known yet" if left is None else f"{duration(left)} left")
    )


def duration(seconds: float) -> str:
    """
    >>> duration(42.3), duration(200), duration(8000)
    ('42 s', '3 min', '2.2 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _lines(say: Callable[[str], object]) -> Callable[[State], None]:
    last = time.monotonic()

    def watch(state: State) -> None:
        nonlocal last
        if time.monotonic() - last > SAY_S:
            last = time.monotonic()
            say(f"{state.study}: {words(state)}")

    return watch
