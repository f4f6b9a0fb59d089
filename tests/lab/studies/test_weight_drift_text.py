"""The language study's own parts: what is clipped, a loss that breaks, and the text it is given."""

from __future__ import annotations

import math

import pytest
import torch

from netvitals.lab import models
from netvitals.lab.studies import find_study
from netvitals.lab.studies.weight_drift import _text
from netvitals.lab.studies.weight_drift.language import clipped_shares, follow

pytestmark = pytest.mark.slow


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
