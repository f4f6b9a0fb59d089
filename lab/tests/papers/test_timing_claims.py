"""When means turn negative and how bands narrow: judged on rows whose answer is known."""

import pytest

from netvitals_lab.papers.gate_density import timing_claims as claims
from netvitals_lab.papers.gate_density.trajectories import NINE


def sweep_rows(turn: int = 4, start: float = 0.02, slope: float = 0.0) -> list[dict]:
    rows = []
    for i, act in enumerate(NINE):
        noise = (0.01, -0.01, 0.0)[i % 3] / 3
        for seed in range(2):
            mu = [start if e < turn else -0.05 for e in range(-1, 10)]
            rows += [
                {"quantity": "epoch", "act": act, "seed": seed, "epoch": e, "mu": m} for e, m in zip(range(-1, 10), mu)
            ]
            last = -0.05 + noise + slope * i
            rows.append({"quantity": "run", "act": act, "seed": seed, "mu last": last, "variance": 0.01 * i})
    return rows


def test_means_must_start_above_zero_and_stay_below_it_from_epoch_six_on():
    assert claims.flips.single(sweep_rows()).status == "holds"
    assert claims.flips.single(sweep_rows(turn=7)).status == "fails"
    assert claims.flips.single(sweep_rows(start=-0.01)).status == "fails"
    late = sweep_rows()
    late[next(i for i, r in enumerate(late) if r.get("epoch") == 9)]["mu"] = 1.0  # one mean comes back at the end
    assert claims.flips.single(late).measured == f"{len(NINE) - 1} of {len(NINE)} by epoch 6"
    assert "<svg" in claims.means(late).svg()


def test_a_final_mean_that_follows_smoothness_is_told():
    assert claims.unrelated.single(sweep_rows()).status == "holds"
    steep = claims.unrelated.single(sweep_rows(slope=0.01))
    assert steep.status == "fails" and steep.measured == pytest.approx(1, abs=0.05)


def image_rows(tail: float = 0.9) -> list[dict]:
    smooth = {"q05": (0.0, 0.1), "q50": (0.5, 0.5), "q95": (1.0, tail), "q01": (0.0, 0.0), "q99": (1.1, 1.0)}
    hard = {"q05": (0.0, 0.0), "q50": (1.0, 0.0), "q95": (1.0, 1.0), "q01": (0.0, 0.0), "q99": (1.0, 1.0)}
    return [
        {"quantity": "epoch", "act": a, "optimizer": "sgd", "epoch": e, **{q: v[e] for q, v in size.items()}}
        for a, size in (("relu", hard), ("gelu", smooth))
        for e in (0, 1)
    ]


def test_bands_narrow_from_both_tails_and_relu_keeps_zero_and_one():
    assert claims.narrowed.judge(image_rows()).status == "holds"
    assert claims.narrowed.judge(image_rows(tail=1.2)).status == "fails"  # the upper tail widens
    off = image_rows()
    off[0]["q99"] = 0.9
    assert claims.narrowed.judge(off).status == "fails"
    assert "<svg" in claims.bands(image_rows()).svg()
