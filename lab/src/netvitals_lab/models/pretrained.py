"""A pretrained encoder from a folder that the user names: ``config.json``, ``model.safetensors``, ``vocab.txt``.

The folder is one of a BERT-like encoder as model hubs give it out. Folders are looked for in ``NETVITALS_MODELS``.
Safetensors is a header in JSON and raw numbers, read here in a few lines, so that no package is needed for it.
"""

from __future__ import annotations

import json
import math
import os
import re
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

VARIABLE = "NETVITALS_MODELS"
KINDS = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64}
FILES = ("config.json", "model.safetensors", "vocab.txt")


def folders() -> list[str]:
    """Names of the model folders in ``NETVITALS_MODELS``; none where it is not set."""
    root = os.environ.get(VARIABLE, "")
    return sorted(p.name for p in Path(root).iterdir() if (p / FILES[0]).is_file()) if root else []


def folder(name: str) -> Path:
    """Where a model lies, or what is missing."""
    root = os.environ.get(VARIABLE, "")
    if not root:
        raise FileNotFoundError(f"{name} is a pretrained model: set {VARIABLE} to a folder that holds a folder {name}")
    found = Path(root) / name
    if missing := [f for f in FILES if not (found / f).is_file()]:
        raise FileNotFoundError(f"{found} lacks {', '.join(missing)}: a model's folder holds {', '.join(FILES)}")
    return found


def tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a safetensors file."""
    raw = path.read_bytes()
    (size,) = struct.unpack("<Q", raw[:8])
    header, start = json.loads(raw[8 : 8 + size]), 8 + size
    out = {}
    for name, about in header.items():
        if name == "__metadata__":
            continue
        if about["dtype"] not in KINDS:
            raise ValueError(f"{path.name}: {name} has the type {about['dtype']}; {', '.join(KINDS)} can be read")
        first, last = about["data_offsets"]
        flat = torch.frombuffer(bytearray(raw[start + first : start + last]), dtype=KINDS[about["dtype"]])
        out[name] = flat.reshape(about["shape"])
    return out


class PretrainedLayer(nn.Module):
    """Attention and two linear maps, each added to the stream and normed behind the sum."""

    def __init__(self, width: int, heads: int, inner: int, eps: float) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.output = (nn.Linear(width, width) for _ in range(4))
        self.attention_norm, self.norm = (nn.LayerNorm(width, eps=eps) for _ in range(2))
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x: Tensor) -> Tensor:
        split = lambda t: t.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        q, k, v = split(self.query(x)), split(self.key(x)), split(self.value(x))
        mixed = torch.softmax(q @ k.mT / math.sqrt(q.shape[-1]), -1) @ v
        x = self.attention_norm(x + self.output(mixed.transpose(1, 2).flatten(2)))
        return self.norm(x + self.down(F.gelu(self.up(x))))


class Encoder(nn.Module):
    """Embeddings, a norm, layers: token ids (examples, length) → stream (examples, length, width)."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        width, eps = config["hidden_size"], config["layer_norm_eps"]
        self.words = nn.Embedding(config["vocab_size"], width)
        self.positions = nn.Embedding(config["max_position_embeddings"], width)
        self.kinds = nn.Embedding(config["type_vocab_size"], width)
        self.norm = nn.LayerNorm(width, eps=eps)
        self.layers = nn.ModuleList(
            PretrainedLayer(width, config["num_attention_heads"], config["intermediate_size"], eps)
            for _ in range(config["num_hidden_layers"])
        )

    def forward(self, ids: Tensor) -> Tensor:
        place = torch.arange(ids.shape[1], device=ids.device)
        x = self.norm(self.words(ids) + self.positions(place) + self.kinds(torch.zeros_like(ids)))
        for layer in self.layers:
            x = layer(x)
        return x


NAMES = (  # ours, theirs
    ("words", "embeddings.word_embeddings"),
    ("positions", "embeddings.position_embeddings"),
    ("kinds", "embeddings.token_type_embeddings"),
    ("query", "attention.self.query"),
    ("key", "attention.self.key"),
    ("value", "attention.self.value"),
    ("output", "attention.output.dense"),
    ("attention_norm", "attention.output.LayerNorm"),
    ("up", "intermediate.dense"),
    ("down", "output.dense"),
    ("norm", "output.LayerNorm"),
)


def theirs(name: str) -> str:
    """The name that a parameter of ours has in the file.

    >>> theirs("layers.0.attention_norm.weight"), theirs("norm.bias")
    ('encoder.layer.0.attention.output.LayerNorm.weight', 'embeddings.LayerNorm.bias')
    """
    module, _, kind = name.rpartition(".")
    if module == "norm":
        return f"embeddings.LayerNorm.{kind}"
    head, _, last = module.rpartition(".")
    return f"{head.replace('layers', 'encoder.layer')}.{dict(NAMES)[last]}.{kind}".removeprefix(".")


def load(name: str, *, drawn: int | None = None) -> tuple[Encoder, dict[str, int]]:
    """The encoder of a folder in eval mode and its vocabulary; with ``drawn`` a seed, the weights are drawn anew."""
    where = folder(name)
    config = json.loads((where / FILES[0]).read_text(encoding="utf-8"))
    if config.get("model_type") != "bert":
        raise ValueError(
            f"{where.name} is a {config.get('model_type')!r} model; encoders of the type 'bert' can be read"
        )
    model = Encoder(config).eval()
    if drawn is None:
        held = {n.removeprefix("bert."): t for n, t in tensors(where / FILES[1]).items()}
        model.load_state_dict({n: held[theirs(n)].float() for n in model.state_dict()})
    else:
        gen = torch.Generator().manual_seed(drawn)
        with torch.no_grad():
            for module in model.modules():
                if isinstance(module, nn.Linear | nn.Embedding):
                    module.weight.normal_(0, config["initializer_range"], generator=gen)
                    if isinstance(module, nn.Linear):
                        module.bias.zero_()
    lines = (where / FILES[2]).read_text(encoding="utf-8").splitlines()
    return model, {word: i for i, word in enumerate(lines)}


def windows(text: str, vocabulary: Mapping[str, int], length: int) -> Tensor:
    """Ids of a text's words and marks in windows, (windows, length); words that are not one token are left out."""
    ids = [vocabulary[w] for w in re.findall(r"[a-z]+|[0-9]+|[^\sa-z0-9]", text.lower()) if w in vocabulary]
    count = len(ids) // (length - 2)
    if not count:
        raise ValueError(f"the text has {len(ids)} known tokens, and a window takes {length - 2}")
    body = torch.tensor(ids[: count * (length - 2)]).view(count, length - 2)
    ends = [torch.full((count, 1), vocabulary[mark]) for mark in ("[CLS]", "[SEP]")]
    return torch.cat([ends[0], body, ends[1]], 1)
