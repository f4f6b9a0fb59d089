"""``netvitals check`` and ``netvitals top``: a verdict for a pipeline, and a run in the terminal."""

import io
import json

import pytest

from netvitals.capture import Measurement
from netvitals.cli import main
from netvitals.report.terminal import RunPanel, spark
from netvitals.runs import RunWriter


def run_of(path, value=2.0, steps=40, close=True):
    writer = RunWriter(path, meta={"model": "MLP"})
    writer.write([Measurement(s, "loss", "model", "loss", value if s > 5 else 2.0 / (1 + s)) for s in range(steps)])
    writer.write([Measurement(s, "gates", f"layer{k}", "density@0.1", 0.5) for s in range(steps) for k in range(3)])
    writer.flush()
    if close:
        writer.close()
    return writer


def code_of(*arguments):
    with pytest.raises(SystemExit) as stop:
        main(list(arguments))
    return stop.value.code or 0


def test_a_sick_run_fails_and_a_healthy_one_does_not(tmp_path, capsys):
    run_of(tmp_path / "sick", float("nan"))
    with RunWriter(tmp_path / "well") as writer:
        writer.write([Measurement(s, "loss", "model", "loss", 2.0 / (1 + s)) for s in range(40)])
    assert code_of("check", str(tmp_path / "sick")) == 1
    assert "CRITICAL" in capsys.readouterr().out.upper()
    assert code_of("check", str(tmp_path / "well"), "--fail-on", "warning") == 0
    capsys.readouterr()
    assert code_of("check", str(tmp_path / "sick"), "--json") == 1
    assert json.loads(capsys.readouterr().out)[0]["severity"] == "critical"


def test_wrong_input_has_its_own_code(tmp_path, capsys):
    run_of(tmp_path / "r")
    assert code_of("check", str(tmp_path / "r"), "--fail-on", "grave") == 2
    assert "critical, warning, note, info" in capsys.readouterr().err
    assert code_of("check", str(tmp_path / "none")) == 2


def test_the_panel_shows_loss_vital_signs_and_findings_and_follows_the_run(tmp_path):
    from rich.console import Console

    writer = run_of(tmp_path / "r", close=False)
    panel = RunPanel(tmp_path / "r")
    panel.refresh()
    console = Console(width=120, record=True, file=io.StringIO(), emoji=False)
    console.print(panel)
    text = console.export_text()
    assert "running" in text and "Gates" in text and "density@0.1" in text and "▁" in text
    assert "step 39" in panel.line() and "loss 2" in panel.line()
    writer.write([Measurement(40, "loss", "model", "loss", float("nan"))])
    writer.close()
    panel.refresh()
    assert panel.status == "finished" and "critical" in panel.line() and "step 40" in panel.line()


def test_once_prints_and_leaves(tmp_path, capsys):
    run_of(tmp_path / "r")
    assert code_of("top", str(tmp_path / "r"), "--once") == 0
    assert "finished" in capsys.readouterr().out
    assert code_of("top", str(tmp_path / "r")) == 0  # no terminal: a line, and the end
    assert capsys.readouterr().out.count("\n") == 1


def test_a_curve_in_blocks_has_its_ends():
    assert spark([0, 1]) == "▁█" and spark([]) == "" and len(spark(range(1000), 40)) == 40
