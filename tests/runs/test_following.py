"""A run is followed bit by bit: nothing is read twice, and a branch that was left is left."""

import numpy as np
import pytest

from netvitals.capture import ArrayMeasurement, Measurement
from netvitals.runs import RunWriter, following


def _write(writer, steps, value=1.0):
    writer.write(
        [Measurement(s, "v", "a", "m", value + s) for s in steps],
        [ArrayMeasurement(steps[-1], "v", "a", "channels", np.full(3, float(steps[-1])))],
    )
    assert writer.flush()


def test_what_is_new_and_nothing_twice(tmp_path, monkeypatch):
    with RunWriter(tmp_path / "r") as writer:
        _write(writer, [0, 1])
        follower = following.Follower(tmp_path / "r")
        first = follower.news()
        assert first.again and first.batches[0].steps.tolist() == [0, 1] and first.series[0] == ("v", "a", "m")
        assert first.arrays[0].value.tolist() == [1.0] * 3
        _write(writer, [2])
        asked = []
        original = following.Tables.batches
        monkeypatch.setattr(
            following.Tables, "batches", lambda self, after=0: asked.append(after) or original(self, after)
        )
        second = follower.news()
        assert not second.again and [b.steps.tolist() for b in second.batches] == [[2]] and asked == [1]
        assert second.arrays[0].value.tolist() == [2.0] * 3
        monkeypatch.setattr(following, "opened", lambda file: pytest.fail("an unchanged run was opened"))
        assert follower.news() is None


def test_a_run_that_was_resumed_earlier_is_told_from_its_beginning(tmp_path):
    with RunWriter(tmp_path / "r") as writer:
        _write(writer, [0, 1, 2, 3])
    follower = following.Follower(tmp_path / "r")
    follower.news()
    with RunWriter(tmp_path / "r", existing="resume", at=2) as writer:
        _write(writer, [2], value=50.0)
    news = follower.news()
    assert news.again
    steps = np.concatenate([b.steps for b in news.batches])
    values = np.concatenate([b.values for b in news.batches])
    assert dict(zip(steps.tolist(), values.tolist())) == {0: 1.0, 1: 2.0, 2: 52.0}


def test_measurements_between_two_steps(tmp_path):
    with RunWriter(tmp_path / "r") as writer:
        for start in (0, 10, 20):
            _write(writer, list(range(start, start + 10)))
    follower = following.Follower(tmp_path / "r")
    follower.news()
    assert follower.between(8, 12, most=1000).steps.tolist() == [8, 9, 10, 11, 12]
    assert follower.between(8, 12, most=2) is None


def test_the_summary_has_the_loss_and_the_learning_rate(tmp_path):
    with RunWriter(tmp_path / "r") as writer:
        writer.write([Measurement(s, "loss", "model", "loss", 2.0 - s / 1000) for s in range(1000)])
        writer.write(
            [Measurement(0, "optimizer", "group 0", "lr", 0.1), Measurement(999, "optimizer", "group 0", "lr", 0.01)]
        )
    from netvitals.runs import open_run

    shown = open_run(tmp_path / "r").summary.shown
    assert shown["lr"] == 0.01 and shown["loss"]["last"] == pytest.approx(1.001)
    assert 32 <= len(shown["loss"]["means"]) <= 64 and shown["loss"]["means"][0] == pytest.approx(2.0, abs=0.02)
