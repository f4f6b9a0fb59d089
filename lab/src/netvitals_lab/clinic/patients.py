"""Healthy sessions by architecture: what a disease is planted in, and what stays well as a control.

``size`` 0 is the tuning set's, 1 the test set's: other widths, depths and activations, so that no threshold is fitted
to the networks it is judged on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from netvitals_lab.clinic.networks import Capped, Gated, Mixture, Recurrent
from netvitals_lab.clinic.session import Session, cross_entropy
from netvitals_lab.clinic.tasks import Digits, Language, Rows
from netvitals_lab.models import build

Maker = Callable[[int, int], Session]  # (seed, size)


def patient(architecture: str, seed: int, size: int = 0) -> Session:
    """A fresh healthy session.

    >>> patient("mlp", 0).steps
    160
    """
    if architecture not in ARCHITECTURES:
        raise ValueError(f"there is no patient {architecture!r}; there are {', '.join(ARCHITECTURES)}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return ARCHITECTURES[architecture](seed, size)


def _classifier(model: nn.Module, task: Digits, **options: Any) -> Session:
    return Session(model=model, draw=task.draw, loss=cross_entropy, held=task.held, **options)


def _mlp(act: tuple[str, str] = ("relu", "gelu"), norm: str = "none", **options: Any) -> Maker:
    def make(seed: int, size: int) -> Session:
        hidden = ("48x3", "64x4")[size]
        model = build(f"mlp:64-{hidden}-10,act={act[size]},norm={norm}")
        return _classifier(model, Digits(seed), lr=2e-3, **options)

    return make


def _sgd(seed: int, size: int) -> Session:
    model = build(("mlp:64-48x3-10,act=relu", "mlp:64-64x4-10,act=leaky_relu")[size])
    return _classifier(model, Digits(seed), lr=0.05, optimizer="sgd", weight_decay=1e-4)


def _deep(seed: int, size: int) -> Session:
    model = build(("mlp:64-32x8-10,act=relu", "mlp:64-40x10-10,act=tanh")[size])
    return _classifier(model, Digits(seed), lr=1e-3)


def _residual(seed: int, size: int) -> Session:
    spec = ("mlp:64-32x6-10,kind=residual,act=relu", "mlp:64-40x8-10,kind=residual,act=gelu")[size]
    return _classifier(build(spec), Digits(seed), lr=1e-3)


def _cnn(seed: int, size: int) -> Session:
    model = build(("resnet-mini,width=6", "vgg-mini,norm=batch,act=relu")[size])
    return _classifier(model, Digits(seed, (1, 8, 8), batch=32), lr=2e-3, steps=120)


def _vit(seed: int, size: int) -> Session:
    model = build(("vit-mini,width=24,hidden=48,act=gelu", "vit-mini,width=32,hidden=64,depth=3,act=relu")[size])
    return _classifier(model, Digits(seed, (1, 8, 8), batch=32), lr=1e-3, steps=140)


def _mixer(seed: int, size: int) -> Session:
    model = build(("mixer-mini,width=24", "mixer-mini,width=32,depth=3")[size])
    return _classifier(model, Digits(seed, (1, 8, 8), batch=32), lr=1e-3, steps=140)


def _recurrent(kinds: tuple[str, str]) -> Maker:
    def make(seed: int, size: int) -> Session:
        model = Recurrent(kinds[size], width=(32, 40)[size])
        return _classifier(model, Digits(seed, (8, 8)), lr=3e-3)

    return make


def _moe(seed: int, size: int) -> Session:
    """With a weight of 0.01 for the balance some experts of six get a hundredth of an equal share; with 0.05 none."""
    return _classifier(Mixture(width=(32, 40)[size], experts=(4, 6)[size]), Digits(seed), lr=1e-3, balance=0.05)


def _glu(seed: int, size: int) -> Session:
    return _classifier(Gated(width=(32, 48)[size], depth=(2, 3)[size]), Digits(seed), lr=1e-3)


def _capped(seed: int, size: int) -> Session:
    return _classifier(
        Capped(build(("mlp:64-48x2-10,act=gelu", "mlp:64-64x3-10,act=silu")[size])), Digits(seed), lr=2e-3
    )


def _gpt(seed: int, size: int) -> Session:
    task = Language(seed)
    spec = ("gpt-micro,depth=2,width=32,heads=2", "gpt-micro,depth=3,width=48,heads=3,act=gelu")[size]
    model = build(f"{spec},vocab={task.vocabulary},context={task.context}")
    return Session(
        model=model, draw=task.draw, loss=cross_entropy, held=task.held, lr=3e-3, steps=140, vocabulary=task.vocabulary
    )


def _hugging_face(make: Callable[[Any, int, int], nn.Module]) -> Maker:
    def made(seed: int, size: int) -> Session:
        task = Language(seed)
        model = make(__import__("transformers"), size, task.vocabulary)
        return Session(
            model=model,
            draw=task.draw,
            loss=cross_entropy,
            held=task.held,
            lr=3e-3,
            steps=100,
            vocabulary=task.vocabulary,
        )

    return made


def _llama(t: Any, size: int, vocabulary: int) -> nn.Module:
    wide = (32, 48)[size]
    return t.LlamaForCausalLM(
        t.LlamaConfig(
            vocab_size=vocabulary,
            hidden_size=wide,
            intermediate_size=2 * wide,
            num_hidden_layers=(2, 3)[size],
            num_attention_heads=2,
            num_key_value_heads=(2, 1)[size],
            max_position_embeddings=64,
            use_cache=False,
        )
    )


def _gpt2(t: Any, size: int, vocabulary: int) -> nn.Module:
    wide, deep = (32, 48)[size], (2, 3)[size]
    return t.GPT2LMHeadModel(
        t.GPT2Config(vocab_size=vocabulary, n_embd=wide, n_layer=deep, n_head=2, n_positions=64, use_cache=False)
    )


def _gemma(t: Any, size: int, vocabulary: int) -> nn.Module:
    wide = (32, 48)[size]
    return t.Gemma2ForCausalLM(
        t.Gemma2Config(
            vocab_size=vocabulary,
            hidden_size=wide,
            intermediate_size=2 * wide,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=16,
            max_position_embeddings=64,
            use_cache=False,
        )
    )


def _binary(seed: int, size: int) -> Session:
    task = Rows(seed, "binary")
    model = build(("mlp:12-32x2-1,act=relu", "mlp:12-48x2-1,act=gelu")[size])
    loss = F.binary_cross_entropy_with_logits
    return Session(model=model, draw=task.draw, loss=loss, held=task.held, lr=2e-3)


def _values(seed: int, size: int) -> Session:
    task = Rows(seed, "value")
    model = build(("mlp:12-48x2-1,act=gelu", "mlp:12-64x2-1,act=tanh")[size])
    return Session(model=model, draw=task.draw, loss=F.mse_loss, held=task.held, lr=3e-3)


ARCHITECTURES: dict[str, Maker] = {
    "mlp": _mlp(),
    "mlp-relu": _mlp(("relu", "relu")),
    "mlp-batchnorm": _mlp(("relu", "silu"), "batch"),
    "mlp-layernorm": _mlp(("gelu", "relu"), "layer"),
    "mlp-sigmoid": _mlp(("tanh", "sigmoid"), "layer"),
    "mlp-sgd": _sgd,
    "deep": _deep,
    "residual": _residual,
    "cnn": _cnn,
    "vit": _vit,
    "mixer": _mixer,
    "lstm": _recurrent(("lstm", "gru")),
    "rnn": _recurrent(("rnn", "rnn")),
    "moe": _moe,
    "glu": _glu,
    "soft-cap": _capped,
    "gpt": _gpt,
    "llama": _hugging_face(_llama),
    "gpt2": _hugging_face(_gpt2),
    "gemma": _hugging_face(_gemma),
    "binary": _binary,
    "values": _values,
}
