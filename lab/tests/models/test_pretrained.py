"""A pretrained encoder from a folder: a tiny one is written here in the same format and read again."""

import json
import struct

import pytest
import torch
from torch import nn

from netvitals_lab.models import pretrained

CONFIG = {
    "model_type": "bert",
    "hidden_size": 8,
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
    "intermediate_size": 16,
    "vocab_size": 7,
    "max_position_embeddings": 10,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
    "initializer_range": 0.02,
}
WORDS = ("[PAD]", "[CLS]", "[SEP]", "a", "cat", "sat", ".")


def written(path, tensors):
    header, blob = {"__metadata__": {"format": "pt"}}, b""
    for name, t in tensors.items():
        raw = t.contiguous().numpy().tobytes()
        header[name] = {"dtype": "F32", "shape": list(t.shape), "data_offsets": [len(blob), len(blob) + len(raw)]}
        blob += raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + blob)


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    torch.manual_seed(0)
    model = pretrained.Encoder(CONFIG).eval()
    where = tmp_path / "tiny"
    where.mkdir()
    (where / "config.json").write_text(json.dumps(CONFIG))
    (where / "vocab.txt").write_text("\n".join(WORDS))
    written(where / "model.safetensors", {pretrained.theirs(n): t for n, t in model.state_dict().items()})
    monkeypatch.setenv("NETVITALS_MODELS", str(tmp_path))
    return model


def test_what_is_written_is_read(tiny):
    assert pretrained.folders() == ["tiny"]
    model, words = pretrained.load("tiny")
    ids = pretrained.windows("A cat sat. A dog sat.", words, 5)
    assert ids.tolist() == [[1, 3, 4, 5, 2], [1, 6, 3, 5, 2]]  # "dog" is no token
    with torch.no_grad():
        assert torch.equal(model(ids), tiny(ids))
    drawn, _ = pretrained.load("tiny", drawn=0)
    assert abs(float(drawn.words.weight.detach().std()) - 0.02) < 0.005 and not torch.equal(
        drawn.words.weight, model.words.weight
    )


def test_a_layer_is_torchs_own(tiny):
    """The same weights in an ``nn.TransformerEncoderLayer`` that norms behind the sum."""
    mine = tiny.layers[0]
    twin = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, activation="gelu", batch_first=True, layer_norm_eps=1e-12)
    parts = [mine.query, mine.key, mine.value]
    state = {
        "self_attn.in_proj_weight": torch.cat([p.weight for p in parts]),
        "self_attn.in_proj_bias": torch.cat([p.bias for p in parts]),
    }
    for theirs, ours in (
        ("self_attn.out_proj", mine.output),
        ("linear1", mine.up),
        ("linear2", mine.down),
        ("norm1", mine.attention_norm),
        ("norm2", mine.norm),
    ):
        state |= {f"{theirs}.weight": ours.weight, f"{theirs}.bias": ours.bias}
    twin.load_state_dict(state)
    x = torch.randn(3, 4, 8)
    with torch.no_grad():
        assert torch.allclose(mine(x), twin(x), atol=1e-5)


def test_what_is_missing_is_said(tiny, tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match="lacks config"):
        pretrained.load("other")
    (tmp_path / "tiny" / "config.json").write_text(json.dumps({**CONFIG, "model_type": "llama"}))
    with pytest.raises(ValueError, match="'llama' model"):
        pretrained.load("tiny")
    monkeypatch.delenv("NETVITALS_MODELS")
    assert pretrained.folders() == []
    with pytest.raises(FileNotFoundError, match="set NETVITALS_MODELS"):
        pretrained.folder("tiny")
    with pytest.raises(ValueError, match="known tokens"):
        pretrained.windows("dog", {"[CLS]": 0, "[SEP]": 1}, 8)
