"""The planner and the command line."""

import json
import math

import pytest
import torch

import netvitals as nv
from netvitals import saddle
from netvitals.cli import main


def cli(capsys, *arguments):
    code = 0
    try:
        main(list(arguments))
    except SystemExit as stop:
        code = stop.code or 0
    out = capsys.readouterr()
    return code, out.out, out.err


def test_plan_and_its_inverse_agree():
    for p in saddle.plan("tanh", 5, 64, steps=20_000, lr=0.05):
        back = saddle.plan("tanh", 5, 64, eps=p.epsilon, r=p.r, lr=0.05)[0]
        assert back.steps == pytest.approx(20_000, rel=1e-6)
        assert p.s == pytest.approx(64 * p.t) and p.steps == pytest.approx(p.s / 0.05)
    assert {p.r for p in saddle.plan("tanh", 5, 64, steps=20_000, lr=0.05)} == {3, 4, 5}


def test_planned_plateau_is_the_one_the_exact_flow_has():
    law, exact = (saddle.plan("tanh", 5, 16, eps=0.01, r=3, exact=e)[0] for e in (False, True))
    assert law.t == pytest.approx(exact.t, rel=0.05) and exact.method == "ode"
    times = [saddle.plan("tanh", 6, 16, eps=e, r=4)[0].t for e in (1e-3, 2e-3)]
    assert math.log(times[0] / times[1]) / math.log(0.5) == pytest.approx(-2, abs=0.01)


def test_bad_plans():
    with pytest.raises(ValueError, match="exactly one of steps"):
        saddle.plan("tanh", 4, 8)
    with pytest.raises(ValueError, match="smaller learning rate"):
        saddle.plan("tanh", 4, 64, steps=1e-6, lr=1.0)
    with pytest.raises(ValueError, match="between 0 and the threshold"):
        saddle.plan("tanh", 4, 64, eps=2.0)
    with pytest.raises(ValueError, match="r= is the number of small layers"):
        saddle.plan("tanh", 4, 64, eps=0.01, r=9)
    with pytest.raises(ValueError, match="does not cover"):
        saddle.plan("elu", 4, 64, eps=0.01)


def test_plan_on_the_command_line(capsys):
    code, out, _ = cli(capsys, "saddle", "plan", "tanh", "5", "64", "--eps", "0.01", "--r", "3", "--json")
    row = json.loads(out)[0]
    assert code == 0 and row["r"] == 3 and row["t"] == pytest.approx(19.89, abs=0.01)
    code, out, _ = cli(capsys, "saddle", "plan", "gelu", "4", "64", "--steps", "100000")
    assert code == 0 and "eps^-1" in out
    code, _, err = cli(capsys, "saddle", "plan", "elu", "4", "64", "--eps", "0.05")
    assert code == 2 and "does not cover elu" in err


def test_forecast_of_a_run_on_the_command_line(capsys, tmp_path):
    from netvitals.capture import Measurement
    from netvitals.runs import RunWriter

    with RunWriter(tmp_path / "looks") as writer:
        names = {"escape": 900.0, "low": 800.0, "high": 1000.0, "small_layers": 3.0, "signal": 0.01, "resting": 0.2}
        writer.write([Measurement(10, "plateau", "model", m, v) for m, v in names.items()], [])
    code, out, _ = cli(capsys, "saddle", "forecast", str(tmp_path / "looks"))
    assert code == 0 and "around step 900" in out
    with RunWriter(tmp_path / "empty") as writer:
        writer.write([Measurement(0, "loss", "model", "loss", 0.2)], [])
    code, _, err = cli(capsys, "saddle", "forecast", str(tmp_path / "empty"))
    assert code == 2 and "has no plateau measurements" in err
    code, _, err = cli(capsys, "saddle", "forecast", str(tmp_path / "nothing"))
    assert code == 2 and err.startswith("netvitals: ")


def test_room_is_light_to_import():
    import subprocess
    import sys

    heavy = "('scipy', 'sklearn', 'plotly', 'polars')"
    code = f"import sys, netvitals.saddle; print([m for m in {heavy} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]", out
    assert nv.saddle is saddle and isinstance(torch.__version__, str)


@pytest.mark.parametrize("threshold", [None, 0.3])
@pytest.mark.parametrize("rates", ["layerwise", "uniform"])
def test_a_plan_says_when_the_plateau_counts_as_over(threshold, rates):
    (found,) = saddle.plan("tanh", depth=5, width=64, eps=0.01, r=3, lr=0.1, threshold=threshold, rates=rates)
    wanted = 0.5 * min(saddle.drive("tanh", 5, 64).resting_scale, 1.0) if threshold is None else threshold
    assert found.threshold == pytest.approx(wanted) and f"{wanted:.3g}" in str(found)
    if rates == "layerwise":
        x0 = [0.01] * 3 + [1.0] * 2
        after = saddle.escape_time(x0, "tanh", 64, threshold=found.threshold, method="leading")
        assert found.t == pytest.approx(float(after))
