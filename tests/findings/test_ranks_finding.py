"""Which rank and which micro-batch pushed in another way than the rest, in words."""

import numpy as np
import pytest

from netvitals.capture import ArrayMeasurement, Measurement
from netvitals.findings import diagnose


class Source:
    """Measurements of the vital sign `ranks`, one row a measured step: (over median, rank, micro-batch, not finite)."""

    def __init__(self, rows, ranks=4):
        self.meta = {}
        metrics = ("grad_over_median", "grad_rank", "grad_micro_batch", "not_finite")
        self.measurements = [
            Measurement(10 * i, "ranks", "model", m, float(v))
            for i, row in enumerate(rows)
            for m, v in zip(metrics, row)
        ]
        self.arrays = [ArrayMeasurement(0, "ranks", "model", "grad_norm", np.ones((ranks, 2)))]

    def found(self):
        result = diagnose(self)
        assert not [c.trouble for c in result.checked if c.trouble]
        return [f for f in result if f.rule == "ranks"]


ORDINARY = (2.0, 1, 0, 0)


@pytest.mark.parametrize(("ratio", "says"), [(9.9, 0), (10.1, 1), (29.0, 1)])
def test_a_gradient_of_more_than_ten_medians_is_a_finding(ratio, says):
    found = Source([ORDINARY, (ratio, 3, 1, 0), ORDINARY]).found()
    assert len(found) == says
    if says:
        assert found[0].severity == "warning" and "again" not in found[0].what
        assert f"up to {ratio:.0f} times the median" in found[0].what
        assert "rank 3, micro-batch 1 on step 10" in found[0].what
        assert "examples of this micro-batch" in found[0].advice
        assert [(e.metric, e.step, e.value) for e in found[0].evidence] == [
            ("grad_over_median", 10, ratio),
            ("grad_rank", 10, 3),
            ("grad_micro_batch", 10, 1),
        ]


def test_one_that_is_not_finite_is_critical_and_named_apart():
    found = Source([(50.0, 0, 1, 0), (np.inf, 2, 0, 1), (20.0, 1, 1, 0), ORDINARY]).found()
    assert [f.severity for f in found] == ["critical", "warning"]
    assert "infinite or NaN" in found[0].what and "rank 2, micro-batch 0 on step 10" in found[0].what
    assert "up to 50 times" in found[1].what and "rank 0, micro-batch 1 on step 0" in found[1].what


@pytest.mark.parametrize(
    ("ranks", "of", "blames"), [([0, 0, 0], 4, True), ([0, 0, 0], 1, False), ([0, 0], 4, False), ([0, 2, 0], 4, False)]
)
def test_the_same_rank_three_times_is_a_trouble_of_the_rank(ranks, of, blames):
    (found,) = Source([*((20.0, rank, 0, 0) for rank in ranks), ORDINARY], ranks=of).found()
    assert f"on {len(ranks) / (len(ranks) + 1):.0%} of the measured steps" in found.what
    assert ("Rank 0 has the outlier every time" in found.advice) is blames
