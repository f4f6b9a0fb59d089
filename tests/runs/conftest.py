"""A training program that can be killed, and what it says about itself."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

PROGRAM = """
import sys, time, torch
from torch import nn
import netvitals as nv

torch.set_num_threads(1)
torch.manual_seed(0)
path, every, steps, pause, how = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), sys.argv[5]
resume = {"": False, "yes": True}.get(sys.argv[6], None)
if resume is None:
    resume = int(sys.argv[6])
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
x = torch.randn(16, 4)


def train(vitals):
    first = vitals._step
    for step in range(first, first + steps):
        loss = model(x).square().mean()
        model.zero_grad()
        loss.backward()
        vitals.step(loss)
        print(step, time.time(), flush=True)
        time.sleep(pause)


vitals = nv.watch(model, run=path, every=every, vitals=["gates"], resume=resume)
if how == "with":
    with vitals:
        train(vitals)
        print("idle", time.time(), flush=True)
        time.sleep(120)
train(vitals)
if how == "raise":
    raise KeyError("mine")
if how == "idle":
    print("idle", time.time(), flush=True)
    time.sleep(120)
"""


class Training:
    """A running program; ``steps`` holds (step, time) of what it has noted."""

    def __init__(self, programs, path, every, steps, pause=0.0, how="exit", resume="", program=PROGRAM):
        arguments = [str(path), str(every), str(steps), str(pause), how, str(resume)]
        self.process = programs.Popen(
            [sys.executable, "-c", textwrap.dedent(program), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.steps = []

    def line(self):
        assert self.process.stdout is not None
        text = self.process.stdout.readline().split()
        if text and text[0] != "idle":
            self.steps.append((int(text[0]), float(text[1])))
        return text

    def until_idle(self):
        while (text := self.line()) and text[0] != "idle":
            pass
        assert text, f"it ended early: {self.process.stderr.read()}"

    def end(self, number=None):
        """Send a signal, or wait; the exit code and what was on stderr."""
        if number is not None:
            self.process.send_signal(number)
        out, errors = self.process.communicate(timeout=120)
        for text in out.splitlines():
            if text and not text.startswith("idle"):
                step, moment = text.split()
                self.steps.append((int(step), float(moment)))
        return self.process.returncode, errors


@pytest.fixture
def training(programs):
    begun = []

    def begin(*args, **options):
        begun.append(Training(programs, *args, **options))
        return begun[-1]

    yield begin
    for one in begun:
        one.process.kill()
        one.process.wait()
