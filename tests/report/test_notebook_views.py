"""What a notebook shows: a run, a checkup, an anatomy, on one screen each."""

from html import escape

import torch
from torch import nn

import netvitals as nv
from netvitals.capture import Measurement
from netvitals.runs import RunWriter


def test_a_checkup_is_one_line_and_its_page_one_screen():
    net = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2))
    found = nv.checkup(net, "ce", (torch.randn(32, 4), torch.randint(2, (32,))), curvature=False)
    assert len(repr(found)) < 120 and "Sequential" in repr(found)
    assert found._repr_html_().startswith("<pre") and "Checkup of Sequential" in found._repr_html_()


def test_a_run_shows_its_loss_and_escapes_its_name(tmp_path):
    with RunWriter(tmp_path / "<b>run", meta={"model": "MLP"}) as writer:
        writer.write([Measurement(s, "loss", "model", "loss", 2.0 / (1 + s)) for s in range(200)])
    shown = nv.open_run(tmp_path / "<b>run")._repr_html_()
    assert "<svg" in shown and "finished" in shown and "step 199" in shown and "&lt;b&gt;run" in shown


def test_an_anatomy_is_its_outline():
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    chart = nv.anatomy.chart(net, torch.ones(3, 4))
    assert chart._repr_html_() == f'<pre style="line-height:1.3">{escape(str(chart))}</pre>'


def test_findings_and_a_watch_are_paragraphs_and_escape_names():
    from netvitals.findings import diagnose

    found = diagnose([Measurement(s, "loss", "model", "loss", float("nan")) for s in range(9)])
    shown = found._repr_html_()
    assert "critical" in shown and "<p>" in shown
    with nv.watch(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), every=1) as watching:
        assert "Watch(Sequential" in watching._repr_html_()
