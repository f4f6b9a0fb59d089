"""What netvitals sees in models that people train, and what it does not: writes docs/anatomy.md.

python bench/anatomy/table.py
"""

from __future__ import annotations

import warnings
from collections import Counter
from pathlib import Path

import handmade
import hugging_face
import torch

from netvitals.anatomy import Anatomy, chart

PAGE = Path(__file__).parents[2] / "docs" / "anatomy.md"
EXAMPLES = {**hugging_face.EXAMPLES, **handmade.EXAMPLES}
HEAD = (
    "architecture",
    "layers",
    "embedding, positions → readout",
    "activations",
    "norms",
    "attention",
    "gated MLPs",
    "experts",
    "additions to the stream",
    "batch",
    "skipped, and why",
)


def charted(name: str) -> Anatomy:
    """The anatomy of an example, with weights and inputs drawn from a fixed seed, in evaluation mode."""
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        model, batch = EXAMPLES[name]()
        return chart(model.eval(), batch)


def row(name: str, found: Anatomy) -> str:
    """A row of the table."""
    bent = Counter((r.text, r.role) for r in found.activations)
    softmaxes = Counter(s.role for s in found.softmaxes if s.role != "attention weight")
    activations = [_named(text, role, n) for (text, role), n in bent.items()]
    activations += [_named("softmax", role, n) for role, n in softmaxes.items()]
    norms = Counter(n.kind for n in found.norms)
    blocks = Counter(
        f"{h.heads} heads of {h.head_dim}"
        + (f", {h.kv_heads} for keys" if h.kv_heads != h.heads else "")
        + (", cross" if h.cross else "")
        + (", normed" if h.qk_norm else "")
        for h in found.heads
    )
    gated = Counter(g.text or "bilinear" for g in found.gated)
    experts = Counter(f"{len(m.experts)}, {m.top_k} a token{', stacked' if m.stacked else ''}" for m in found.experts)
    places = [*_names(found, "embedding"), *_names(found, "positional")]
    places += [
        p.name for p in found.parameters if p.role == "positional" and p.name.removesuffix(".weight") not in places
    ]
    first = ", ".join(f"`{_short(x)}`" for x in places)
    last = ", ".join(f"`{x}`" for x in _names(found, "readout"))
    ends = f"{first or '·'} → {last or '·'}"
    streams = [f"{len(s.additions)}{' post-norm' if s.post_norm else ''}" for s in found.streams]
    cells = (
        name,
        str(len({x.name for x in found.layers})),
        ends,
        "; ".join(activations) or "·",
        ", ".join(f"{n} {kind}" for kind, n in norms.items()) or "·",
        "; ".join(f"{n} × {text}" for text, n in blocks.items()) or "·",
        "; ".join(f"{n} × {text}" for text, n in gated.items()) or "·",
        "; ".join(f"{n} × {text}" for text, n in experts.items()) or "·",
        ", ".join(streams) or "·",
        "·" if found.batch_dim is None else str(found.batch_dim),
        "; ".join(f"`{place}`: {why}" for place, why in found.skipped.items()) or "nothing",
    )
    return f"| {' | '.join(cells)} |"


def _named(text: str, role: str, count: int) -> str:
    short = text if text.count("→") < 3 else f"{text.split(' → ')[0]} → … → {text.split(' → ')[-1]}"
    return f"{count} × {short}" + ("" if role == "hidden activation" else f" ({role})")


def _names(found: Anatomy, role: str) -> list[str]:
    return list(dict.fromkeys(layer.name for layer in found.layers if layer.role == role))


def _short(name: str) -> str:
    return name if name.count(".") < 3 else "…" + ".".join(name.split(".")[-2:])


def page() -> str:
    """The whole page."""
    title = f"# What is detected in {len(EXAMPLES)} architectures\n"
    words = (
        "`anatomy.chart(model, batch)` detects the parts of a model from its operations, in evaluation mode. This\n"
        "table shows what `anatomy.chart` detects in small configurations of common models. Models of Hugging\n"
        "Face transformers come first, then hand-written ones (`bench/anatomy/`). Each row lists layers,\n"
        "embeddings and the readout, activations, norms, attention blocks, gated MLPs, experts and additions to\n"
        "the residual stream. A shared layer is counted once. The last columns are the batch dimension and the\n"
        "parts that are not detected, with the reason. `python bench/anatomy/table.py` makes this page. A test\n"
        "compares the numbers in the table with numbers counted by hand.\n"
    )
    lines = [f"| {' | '.join(HEAD)} |", "|---" * len(HEAD) + "|", *(row(name, charted(name)) for name in EXAMPLES)]
    example = (
        "```python\n"
        "import torch\n"
        "from torch import nn\n"
        "from netvitals.anatomy import chart\n\n"
        "net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))\n"
        "found = chart(net, torch.randn(4, 8))\n"
        "print(found)                      # an outline\n"
        'found.to_html("anatomy.html")     # a page that folds\n'
        'assert found.roles == {"0": "hidden layer", "1.relu()": "hidden activation", "2": "readout"}\n'
        "```\n"
    )
    return "\n".join([title, words, *lines, "", example])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(PAGE.read_text(encoding="utf-8"))
