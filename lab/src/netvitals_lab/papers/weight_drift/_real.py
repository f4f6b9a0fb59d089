"""Networks that people train, on data that people have: an MLP on photographs, a GPT and Hugging Face's GPT-2 on text.

All have ReLU, so that zeros are exact. GPT-2 is the library's own class with fresh weights: Conv1D layers, a head that
is tied to the embedding, and an output that is no tensor.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from netvitals.anatomy.kinds import layer_kind
from netvitals.drift import weight_drift
from netvitals_lab import data as datasets
from netvitals_lab import models
from netvitals_lab.data import Dataset
from netvitals_lab.papers.weight_drift._networks import change_rows, site_rows
from netvitals_lab.papers.weight_drift._text import EMBEDDED, present, source, text
from netvitals_lab.papers.weight_drift.cliff import IMAGES
from netvitals_lab.training import Recipe, evaluate, train

CONTEXT = 32  # tokens of a window
NETWORKS = ("mlp", "gpt", "gpt2")


def data_of(network: str, *, embedded: bool) -> str:
    """The name of what a network is trained on: photographs or digits, a book or sentences of a grammar."""
    if network == "mlp":
        return "cifar10" if present(IMAGES) and not embedded else "digits"
    return EMBEDDED if embedded else source()


def needed(networks: Sequence[str]) -> str:
    """Why they cannot be made here, or an empty string."""
    if "gpt2" in networks and importlib.util.find_spec("transformers") is None:
        return "needs Hugging Face's GPT-2: pip install 'netvitals[hf]'"
    return ""


class Logits(nn.Module):
    """A language model of Hugging Face as a function of tokens to logits."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> Tensor:
        return self.model(input_ids=tokens).logits


@dataclass(frozen=True, kw_only=True)
class RealTask:
    """A network, what it learns, and how."""

    net: nn.Module  # as its author made it: what the tools are given
    trained: nn.Module  # the same, returning a tensor
    data: Dataset
    recipe: Recipe

    @property
    def language(self) -> bool:
        return self.data.task == "tokens"

    def batch(self, examples: int) -> tuple[Tensor, Tensor]:
        return self.data.train.x[:examples], self.data.train.y[:examples]


def task(network: str, data: str, *, width: int, steps: int, seed: int) -> RealTask:
    """One of ``NETWORKS`` on the data of this name, with Adam at 0.001."""
    known = datasets.load(data) if network == "mlp" else text(data, CONTEXT)
    recipe = Recipe(
        steps=steps,
        batch=128 if network == "mlp" else 16,
        optimizer="adam",
        lr=1e-3,
        weight_decay=0.0,
        schedule="constant",
        seed=seed,
        evaluate_on=0,
    )
    if network == "gpt2":
        net = gpt2(width, known.classes, seed)
        return RealTask(net=net, trained=Logits(net), data=known, recipe=recipe)
    inputs = f"mlp:{known.sizes['inputs']}-{width}x3-10,bias=false,init=he" if network == "mlp" else ""
    net = models.build(inputs or f"gpt-micro,depth=2,width={width},heads=2", seed=seed, data=known, act="relu")
    return RealTask(net=net, trained=net, data=known, recipe=recipe)


def gpt2(width: int, vocabulary: int, seed: int) -> nn.Module:
    """Two blocks of Hugging Face's GPT-2 with ReLU and without dropout, fresh from ``seed``."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=vocabulary,
        n_positions=CONTEXT,
        n_embd=width,
        n_layer=2,
        n_head=2,
        activation_function="relu",
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        use_cache=False,
        bos_token_id=None,
        eos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return GPT2LMHeadModel(config)


def outcome(job: RealTask, optimizer: Any = None) -> dict[str, float]:
    """Train it; the drift of its hidden weights, how far inputs of activations sank, zeros, and the score."""
    probe = job.data.test.x[:64]
    start, sites = hidden_weights(job.net), site_rows(job.trained, probe)
    train(job.trained, job.data, job.recipe, optimizer=optimizer)
    moved = [weight_drift(w, start[name]).drift_z for name, w in hidden_weights(job.net).items()]
    ended = site_rows(job.trained, probe)
    sunk = [r["preact_drift"] - r["preact_drift_0"] for r in change_rows(sites, ended)]
    examples = 128 if job.language else None
    seen = evaluate(job.trained, job.data.test, "lm" if job.language else "ce", examples=examples)
    return {
        "drift_z": sum(moved) / len(moved),
        "sunk": sum(sunk) / len(sunk),
        "sparsity": sum(r["hard"] for r in ended) / len(ended),
        "score": -seen.loss if job.language else float(seen.accuracy or 0.0),  # larger is better
    }


def hidden_weights(net: nn.Module) -> dict[str, Tensor]:
    """The weights as the network uses them: of an MLP without its first layer, and never the readout."""
    layers: list[tuple[str, Any]] = [(n, m) for n, m in net.named_modules() if layer_kind(m) == "linear"]
    found = {n: m.weight.detach().clone() for n, m in layers if n not in ("head", "lm_head")}
    return {n: w for n, w in found.items() if n != "blocks.0.linear"}
