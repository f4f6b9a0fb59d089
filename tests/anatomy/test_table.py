"""docs/anatomy.md is what is charted today, and its key counts are those that a person counts in the models."""

import importlib.util
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench" / "anatomy"

# layers, hidden activations, norms, attention blocks, heads, heads for keys, gated MLPs, experts, additions
COUNTED = {
    "GPT-2": (2 + 2 * 4 + 1, 2, 5, 2, 2, 2, 0, 0, [4]),
    "Llama": (1 + 2 * 7 + 1, 2, 5, 2, 4, 2, 2, 0, [4]),
    "Qwen 3": (1 + 2 * 7 + 1, 2, 2 * 4 + 1, 2, 4, 2, 2, 0, [4]),
    "Gemma 2": (1 + 2 * 7 + 1, 2, 2 * 4 + 1, 2, 4, 2, 2, 0, [4]),
    "BERT": (3 + 2 * 6 + 2, 3, 6, 2, 4, 4, 0, 0, [4]),
    "T5": (2 + 2 + 2 * 6 + 2 * 10 + 1, 4, 2 * 2 + 1 + 2 * 3 + 1, 6, 4, 4, 0, 0, [4, 6]),
    "ViT": (1 + 2 * 6 + 1, 2, 5, 2, 4, 4, 0, 0, [4]),
    "Mixtral": (1 + 2 * (4 + 1 + 2) + 1, 2, 5 + 2, 2, 4, 2, 2, 4, [4]),  # the router's weights are normed, too
    "DeepSeek-V3": (1 + 2 * 5 + 3 + (1 + 2 + 3) + 1, 3, 2 * 4 + 1 + 1, 2, 4, 4, 3, 8, [4]),
    "Mamba": (1 + 2 * 5 + 1, 8, 3, 0, 0, 0, 0, 0, [2]),
    "Whisper": (2 + 1 + 6 + 1 + 10 + 1, 4, 2 + 1 + 3 + 1, 3, 4, 4, 0, 0, [2, 3]),
    "MLP": (3, 2, 0, 0, 0, 0, 0, 0, []),
    "VGG": (6, 5, 4, 0, 0, 0, 0, 0, []),
    "ResNet": (1 + 4 * 2 + 1 + 1, 1 + 4 * 2, 1 + 4 * 2 + 1, 0, 0, 0, 0, 0, [2, 1]),
    "DenseNet": (1 + 3 + 1, 3, 3, 0, 0, 0, 0, 0, []),
    "ConvNeXt": (1 + 2 * 3 + 1, 2, 3, 0, 0, 0, 0, 0, [2]),
    "U-Net": (3 * 2 + 2, 6, 0, 0, 0, 0, 0, 0, []),
    "diffusion U-Net": (2 + 1 + 3 + 2 + 4 + 1, 1 + 3 + 3 + 1, 2 + 1 + 2 + 1, 1, 2, 2, 0, 0, [2]),
    "DiT": (1 + 2 + 1 + 2 * 5 + 1, 1 + 2 * 2, 5, 2, 4, 4, 0, 0, [4]),
    "MLP-Mixer": (1 + 2 * 4 + 1, 4, 5, 0, 0, 0, 0, 0, [4]),
    "nn.TransformerEncoder": (2 * 4, 2, 4, 2, 4, 4, 0, 0, [4]),
    "nanoGPT": (2 + 2 * 4 + 1, 2, 5, 2, 4, 4, 0, 0, [4]),
    "LSTM": (3, 0, 0, 0, 0, 0, 0, 0, []),
    "GRU": (2 + 2, 0, 0, 0, 0, 0, 0, 0, []),
    "LSTM by hand, 3 steps": (3, 3 * 5 - 1, 0, 0, 0, 0, 0, 0, []),  # the first forget gate meets a zero state
    "GCN": (2, 1, 1, 0, 0, 0, 0, 0, []),
    "VAE": (5, 3, 0, 0, 0, 0, 0, 0, []),
    "Siamese": (2, 2, 2, 0, 0, 0, 0, 0, []),
    "mixture of experts by hand": (2 + 4 * 2, 4, 0, 0, 0, 0, 0, 4, []),
}
SKIPPED = {"LSTM": ["rnn"], "GRU": ["rnn"], "GCN": ["batch dimension"]}


@pytest.fixture(scope="module")
def table():
    sys.path.insert(0, str(BENCH))
    try:
        spec = importlib.util.spec_from_file_location("anatomy_table", BENCH / "table.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(BENCH))
    return module


def _charted(table, name):
    if name in table.hugging_face.EXAMPLES:
        pytest.importorskip("transformers")
    return table.charted(name)


@pytest.mark.parametrize("name", COUNTED)
def test_an_architecture_is_seen_as_a_person_counts_it_and_as_the_page_says(table, name):
    found = _charted(table, name)
    blocks = found.heads[:1]
    seen = (
        len({x.name for x in found.layers}),
        sum(r.role == "hidden activation" for r in found.activations),
        len(found.norms),
        len(found.heads),
        *((blocks[0].heads, blocks[0].kv_heads) if blocks else (0, 0)),
        len(found.gated),
        len(found.experts[0].experts) if found.experts else 0,
        [len(s.additions) for s in found.streams],
    )
    assert seen == COUNTED[name]
    assert list(found.skipped) == SKIPPED.get(name, []) and found.passes <= 4
    assert table.row(name, found) in table.PAGE.read_text(encoding="utf-8")


def test_every_row_of_the_page_is_counted(table):
    rows = [line.split(" | ")[0].removeprefix("| ") for line in table.PAGE.read_text(encoding="utf-8").splitlines()]
    assert len(COUNTED) >= 25 and set(table.EXAMPLES) == set(COUNTED) <= set(rows)
