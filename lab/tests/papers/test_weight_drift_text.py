"""The language study's own parts: what is clipped, a loss that breaks, and the text it is given."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from netvitals_lab import Plot, Series, find_study, models
from netvitals_lab.engine import status
from netvitals_lab.engine.judging import data_of
from netvitals_lab.engine.verdict import Verdict
from netvitals_lab.papers.weight_drift import _text
from netvitals_lab.papers.weight_drift.language import clipped_shares, follow, training_of
from netvitals_lab.papers.weight_drift.language_claims import growth


def test_clipped_and_blocked_shares_are_counted():
    net, x = models.build("mlp:4-16x2-3,act=relu2:0.05", seed=0), torch.randn(50, 4)
    p = net.blocks[0].linear(x)
    shares = clipped_shares(net, x)["blocks.0.act"]
    assert shares["clipped"] == pytest.approx((p.relu().square() >= 0.05).float().mean().item(), abs=1e-6)
    assert shares["blocked"] == pytest.approx(((p <= 0) | (p.square() >= 0.05)).float().mean().item(), abs=1e-6)


def test_a_language_model_whose_loss_breaks_keeps_what_it_had():
    data = _text.text(_text.EMBEDDED, 16)
    net = models.build("gpt-micro,depth=1,width=16,heads=2", data=data, seed=0)
    with torch.no_grad():
        net.head.weight[0, 0] = math.inf
    rows = follow(net, data, steps=4, observations=1, test=16)
    (ending,) = [r for r in rows if r["quantity"] == "run"]
    assert "the loss became nan" in ending["stopped"]
    assert any(r["quantity"] == "layer" and r["step"] == 0 for r in rows)


def test_text_need_not_be_utf8(tmp_path, monkeypatch):
    (tmp_path / _text.FILE).write_bytes(bytes(range(256)) * 20)
    monkeypatch.setenv("NETVITALS_DATA", str(tmp_path))
    assert _text.source() == _text.FILE and not _text.needed()
    assert _text.text(_text.source(), 16).train.x.max() == 255


def test_without_its_text_the_study_says_what_it_needs():
    reason = find_study("weight-drift-gpt").obstacle("small")
    assert "tinyshakespeare.txt" in reason and "NETVITALS_DATA" in reason


def test_the_paper_s_gpt_is_trained_by_its_printed_recipe():
    study = find_study("weight-drift-gpt")
    configs = study.configs("paper")
    assert {c["network"] for c in configs} == {"gpt-nano"} and {c["data"] for c in configs} == {"shards:fineweb"}
    assert {c["act"] for c in configs} == {
        "relu", "gelu", "noisy_relu", "sugar_b_silu", "relu2", "gelu2", "relu2:15", "relu2:50"
    }  # fmt: skip
    c = configs[0]
    how = training_of(
        c["recipe"],
        steps=c["steps"],
        observations=c["looks"],
        test=c["test"],
        seed=0,
        optimizer=c["optimizer"],
    )
    assert (how.batch, how.accumulate, how.steps) == (16, 16, 7168) and c["context"] == 2048
    assert 16 * 16 * 2048 == 524_288  # tokens an iteration
    assert (how.lr, how.muon_lr, how.warmup, how.warmdown) == (5e-3, 5e-4, 2000, 2028)
    assert (how.betas, how.weight_decay, how.autocast) == ((0.9, 0.95), 0.0, "bfloat16")
    assert (how.evaluate_every, how.evaluate_on) == (1024, 512)
    with torch.device("meta"):
        net = models.build("gpt-nano", vocab=50_257)
    assert sum(p.numel() for p in net.parameters()) == 123_551_232


def write_shards(folder, vocab=300, count=5000):
    folder.mkdir(parents=True)
    for part in ("train", "val"):
        header = np.zeros(256, np.int32)
        header[:3] = 20240520, 1, count
        tokens = np.random.default_rng(0).integers(0, vocab, count).astype(np.uint16)
        (folder / f"fineweb_{part}_000001.bin").write_bytes(header.tobytes() + tokens.tobytes())


def test_the_gpt_study_reads_shards_and_accumulates(tmp_path, monkeypatch):
    assert "*train*.bin" in find_study("weight-drift-gpt").obstacle("paper")
    write_shards(tmp_path / "fineweb")
    monkeypatch.setenv("NETVITALS_DATA", str(tmp_path))
    assert _text.needed("shards:fineweb") == "" == find_study("weight-drift-gpt").obstacle("paper")
    data = _text.text("shards:fineweb", 8)
    assert data.classes == 50_257 and data.test.x.shape[1] == 8
    small = replace(data, classes=300)
    net = models.build("gpt-micro,depth=1,width=16,heads=2,vocab=300", data=small, seed=0)
    seen = []
    net.register_forward_hook(lambda m, a, out: seen.append(out.dtype) if m.training else None)
    rows = follow(net, small, steps=2, observations=1, test=8, recipe="gpt-nano")
    # two steps of sixteen batches, in half precision
    assert len(seen) == 32 and set(seen) == {torch.bfloat16}, seen
    assert any(r["quantity"] == "final" for r in rows)


def test_made_up_text_is_named_in_the_row_the_picture_and_the_verdict(monkeypatch):
    monkeypatch.delenv("NETVITALS_DATA", raising=False)
    assert _text.source() == "made-up sentences"
    configs = [c for c in find_study("weight-drift-cliff").configs("medium") if c["architecture"] == "gpt"]
    assert configs and {c["data"] for c in configs} == {"made-up sentences"}
    assert data_of(configs) == ("made-up sentences",)
    assert "data digits, made-up sentences" in str(
        Verdict("holds", 1.0, trials=2, scale="small", data=("digits", "made-up sentences"))
    )
    plot = Plot("step", "zeros", [Series("relu", [0, 1], [0, 1])])
    assert "(text: made-up sentences)" in status._marked(plot, [{"data": "made-up sentences"}]).svg()
    assert "text:" not in status._marked(plot, [{"data": "digits"}, {"seed": 1}]).svg()


def grown_rows(end, seeds=5):
    rows = []
    for seed in range(seeds):
        for step, share in ((0, 0.5), (200, end)):
            rows += [
                {"quantity": "layer", "act": "relu", "optimizer": "muon", "seed": seed, "step": step, "layer": layer,
                 "hard": share + 0.001 * seed, "steps": 200}
                for layer in (1, 2)
            ]  # fmt: skip
    return rows


def test_up_to_ninety_percent_is_judged_by_its_number():
    assert growth.judge(grown_rows(0.70)).status == "not-reproduced"
    assert growth.judge(grown_rows(0.91)).status == "holds"
