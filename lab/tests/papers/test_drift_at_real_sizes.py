"""Drift at the paper's sizes: what is configured, what a two-branch network gives, and both studies at smoke scale."""

import numpy as np
import pytest
import torch

import netvitals_lab as studies
from netvitals_lab import models
from netvitals_lab.models.two_branch import TwoBranchSpec, spectra
from netvitals_lab.papers.weight_drift import endurance, real_sizes


def test_the_paper_scale_has_the_networks_data_and_steps_of_the_paper():
    runs = studies.find_study(real_sizes.NAME).configs("paper")
    assert {c["network"] for c in runs} == {"mlp", "resnet", "resnet-bn", "vit", "gpt", "speech"}
    assert {c["act"] for c in runs} == {"relu", "gelu", "silu"} and all(c["full"] for c in runs)
    gpt = [c for c in runs if c["network"] == "gpt"]
    assert {(c["data"], c["steps"], c["optimizer"]) for c in gpt} == {
        ("shards:fineweb", 7168, o) for o in ("muon", "adam")
    }
    assert {c["data"] for c in runs if c["network"] == "speech"} == {"speech"}
    long = studies.find_study(endurance.NAME).configs("paper")
    assert {(c["network"], c["data"], c.get("epochs"), c.get("steps")) for c in long} == {
        ("resnet", "cifar10", 10, None),
        ("gpt", "shards:fineweb", None, 7168),
    }
    with torch.device("meta"):
        count = lambda net: sum(p.numel() for p in net.parameters())
        assert count(TwoBranchSpec().build()) == pytest.approx(2.26e6, rel=0.005)
        assert (
            count(models.build(endurance.FULL["resnet"])) > 11e6 and count(models.build(endurance.FULL["gpt"])) > 123e6
        )


def test_a_two_branch_network_keeps_the_size_of_its_mask_and_turns_the_phase():
    net = TwoBranchSpec(8, 1, 2, 16, (1,)).build()
    polar, target = spectra(torch.randn(2, 128), window=32, hop=16)
    with torch.no_grad():
        net.mask.weight.zero_()
        net.mask.bias.zero_()  # a mask of 1
        out = net(polar)
    assert out.shape == target.shape == (2, 2, 17, 9)
    assert torch.allclose(out.square().sum(1), polar[:, 0].square(), atol=1e-4)
    assert not torch.allclose(out, target, atol=1e-2)  # an untrained phase is not the right one


def test_folders_of_speech_are_read_with_phase(tmp_path):
    from scipy.io import wavfile

    rng = np.random.default_rng(0)
    for part in ("train/noisy", "train/clean", "test/noisy", "test/clean"):
        (tmp_path / part).mkdir(parents=True)
        wavfile.write(tmp_path / part / "a.wav", 16_000, (3000 * rng.normal(size=4000)).astype(np.int16))
    data = real_sizes._Phased(file=str(tmp_path), seconds=0.1).load(None)
    assert data.train.x.shape == data.train.y.shape == (3, 2, 201, 17)
    assert float(data.train.x[:, 1].abs().max()) <= np.pi + 1e-5
    (tmp_path / "train/clean/a.wav").unlink()
    with pytest.raises(ValueError, match="wave files of the same names"):
        real_sizes._Phased(file=str(tmp_path)).load(None)


def test_a_flip_in_any_layer_ends_persistence():
    layer = {"quantity": "layer", "t_flip": None, "positive": 1.0, "agreement": 1.0, "seed": 0}
    run = {"quantity": "run", "steps": [0, 9], "push_flip": None, "data": "digits", "seed": 0}
    weights = {"quantity": "weights", "place": "hidden", "drift_z": -0.1, "seed": 0}
    assert endurance.persists.judge([layer, run, weights]).status == "holds"
    assert endurance.persists.judge([layer, {**layer, "t_flip": 5, "positive": 0.4}, run, weights]).status == "fails"


@pytest.mark.slow
@pytest.mark.parametrize("name", [endurance.NAME, real_sizes.NAME])
def test_smoke_run(name, tmp_path):
    run = studies.run(name, "smoke", engine="inline", results=tmp_path / "results.sqlite", progress=False)
    assert run.failed == 0 and len(run.verdicts) == 2
    for claim in studies.claims_of(studies.find_study(name)):
        if claim.plot is not None:
            assert "<svg" in claim.plot(run.rows).svg()
