"""Measured steps and losses of several ranks: kept until the ranks exchange them, then handed to the buffer as one.

A loss is known after the optimizer has stepped, so that a measured step is exchanged when its loss is given, or with
the next step at the latest; losses of steps between measured ones go along with the next measured one.
"""

from __future__ import annotations

import numpy as np
from torch import Tensor, nn

from netvitals.capture import Buffer, Recorder, Schedule
from netvitals.watching.micro_batch_gradients import MicroBatchGradients
from netvitals.watching.micro_batches import MicroBatches
from netvitals.watching.ranks import OneRank, Ranks
from netvitals.watching.replicas import Replicas

ACTIVATIONS = (
    "layers are cut over several groups of ranks (tensor parallel in more than one way), and which part of a layer a "
    "rank computes is not known; parameters, gradients and the loss are those of the whole model"
)
PAIRS = "a pass is not followed through them, so that pairs of such layers are not known"
COMPILED = "gradients of single micro-batches of a compiled model are not seen"


def shared_steps(
    ranks: Ranks | None,
    buffer: Buffer,
    model: nn.Module,
    schedule: Schedule,
    notes: dict[str, str],
    compiled: bool = False,
) -> SharedSteps | None:
    """What stands before the buffer; None where one process trains and nobody asks for its micro-batches."""
    vital = next((v for v in schedule.vitals if v.name == "ranks"), None)
    if compiled and vital is not None:  # hooks on its parts would be compiled too
        vital, notes["ranks: micro-batches"] = (
            None,
            COMPILED,
        )
    if ranks is None and vital is None:
        return None
    taking_part = ranks or OneRank()
    notes.update(taking_part.notes)
    taking_part.notes = notes
    return SharedSteps(taking_part, buffer, None if vital is None else MicroBatchGradients(model, vital))


class SharedSteps:
    """Stands before the buffer of a watch where several ranks train one model."""

    def __init__(self, ranks: Ranks | OneRank, buffer: Buffer, arrivals: MicroBatchGradients | None) -> None:
        self.ranks, self._buffer, self._arrivals = ranks, buffer, arrivals
        self.looks = ranks.looks  # at activations
        self.batches: MicroBatches | None = None
        self.replicas: Replicas | None = None
        self.notes: dict[str, str] = ranks.notes
        self._pending: tuple[Recorder, list[Tensor]] | None = None
        self._steps: list[int] = []
        if ranks.part.places > 1:
            self.notes["imbalance: layers that are cut over ranks"] = PAIRS
        if not ranks.looks:
            self.notes["activations"] = ACTIVATIONS

    def loss(self, step: int, value: Tensor | float) -> None:
        """The loss of a step on this rank."""
        if isinstance(self.ranks, OneRank) or not self.ranks.together:
            self._buffer.loss(step, value)
        else:
            self.ranks.loss(step, value)
            self._steps.append(step)

    def arm(self, recorder: Recorder) -> None:
        """A measured step begins."""
        recorder.ranks, recorder.part = self.ranks.world, self.ranks.part
        recorder.examples_of = self.ranks.examples_of
        if self._arrivals is not None:
            self._arrivals.arm()

    def disarm(self) -> None:
        """Take every hook away."""
        if self._arrivals is not None:
            self._arrivals.disarm()

    def observe(self, recorder: Recorder) -> None:
        """A measured step is over on this rank."""
        self.exchange()
        recorder.leave_device()
        self._pending = (recorder, [] if self._arrivals is None else self._arrivals.taken())

    def exchange(self) -> None:
        """Exchange the measured step that waits, if one does."""
        if self._pending is None:
            return
        (recorder, norms), self._pending = self._pending, None
        held = np.empty(0) if self.replicas is None else self.replicas.facts()
        arrived = np.empty(0)
        if self._arrivals is not None:
            given = self.batches.given(recorder.step) if self.batches is not None else []
            arrived = self._arrivals.facts(norms, given)
        found = self.ranks.pooled(recorder, recorder.step, np.concatenate([[len(held)], held, arrived]))
        self._hand_on(found)
        rows = {rank: row[1 + int(row[0]) :] for rank, row in sorted(found.items())}  # behind the losses
        if self.replicas is not None:
            self.replicas.compare(recorder.step, {rank: row[1 : 1 + int(row[0])] for rank, row in rows.items()})
        if self._arrivals is not None:
            behind = {rank: row[1 + int(row[0]) :] for rank, row in rows.items()}
            self._arrivals.write(recorder, behind or {self.ranks.rank: arrived})
        self.notes.update(recorder.skipped)
        self._buffer.observe(recorder)

    def leave(self) -> None:
        """The watch is gone, and nobody waits for anybody: what this rank has is what there is."""
        if self.batches is not None:
            self.batches.flush()
        if self._pending is not None:
            recorder, self._pending = self._pending[0], None
            recorder.take(None)
            self._buffer.observe(recorder)
        if self._steps:
            self.notes["loss of other ranks"] = (
                f"from step {self._steps[0]} on the loss is that of rank {self.ranks.rank}"
            )
            self._hand_on({})

    def close(self, status: str) -> None:
        """Exchange what is left; who ends otherwise than by the end of training does not wait for the others."""
        if status == "finished" or isinstance(self.ranks, OneRank):
            self.exchange()
        if self._steps and status == "finished" and self.ranks.together:
            self._hand_on(self.ranks.pooled(None, self._steps[-1]))
        self.leave()

    def _hand_on(self, found: dict[int, np.ndarray]) -> None:
        """Losses to the buffer: the mean over ranks where it is known, else those of this rank."""
        steps, self._steps = self._steps, []
        own = self.ranks.own_losses()
        counts = {int(row[0]) for row in found.values()}
        if found and counts == {len(own)}:
            mean = np.mean([row[1 : 1 + len(own)] for row in found.values()], axis=0)
            own = dict(zip(own, mean.tolist()))
        elif found:
            self.notes["loss of other ranks"] = "ranks passed different numbers of losses; the loss of rank 0 is shown"
        for step in dict.fromkeys(steps):
            self._buffer.loss(step, own[step])
