"""The `paper` scale is the paper's own: networks, data, rates, batches, epochs and seeds as they are printed."""

from collections import Counter

import pytest
import torch

from netvitals_lab import find_study, models
from netvitals_lab.data import names as datasets
from netvitals_lab.papers.dag_hessian import _printed
from netvitals_lab.papers.gate_density._training import FOUR
from netvitals_lab.papers.gate_density.ablations import VIT
from netvitals_lab.papers.weight_drift import _grid
from netvitals_lab.training import recipe_named


def paper(name):
    return find_study(name).configs("paper")


def test_convolutional_towers_have_batch_norm_and_the_others_layer_norm():
    norms = {c["network"]: c["norm"] for c in paper("gate-density-architectures")}
    assert norms == {
        "resnet18": "batch",
        "resnet50": "batch",
        "vgg11": "batch",
        "mixer": "layer",
        "encoder": "layer",
        "convnext-tiny": "layer",
        VIT: "layer",
    }


def test_the_vision_transformer_is_the_canonical_one_on_enlarged_images():
    runs = [c for c in paper("gate-density-architectures") if c["network"] == VIT]
    assert {c["act"] for c in runs} == {"gelu"}
    spec = models.parse(VIT)
    assert (spec.depth, spec.heads, spec.width, spec.hidden, spec.patch) == (12, 12, 768, 3072, 16)
    small = models.build("vit-mini,patch=4,channels=3,side=8,resize=16")
    assert small.positions.shape[1] == 16 + 1 and small(torch.randn(2, 3, 8, 8)).shape == (2, 10)


def test_architectures_run_on_both_cifars_and_on_photographs():
    runs = Counter((c["network"], c["data"].split(",")[0], c["epochs"]) for c in paper("gate-density-architectures"))
    small = ("resnet18", "resnet50", "vgg11", "mixer", "encoder")
    expected = {(n, d, 25): 12 for n in small for d in ("cifar10", "cifar100")}  # 4 activations × 3 seeds
    expected |= {("resnet18", "tiny-imagenet", 25): 12, ("resnet50", "places365", 25): 8}
    expected |= {("convnext-tiny", d, 15): 4 for d in ("cifar10", "cifar100")}
    expected |= {(VIT, d, 25): 2 for d in ("cifar10", "cifar100")}  # GELU only
    assert runs == expected
    crops = {c["data"].split(",")[0]: c["augment"] for c in paper("gate-density-architectures")}
    assert crops == {"cifar10": True, "cifar100": True, "tiny-imagenet": True, "places365": "resized"}


@pytest.mark.parametrize("name", ["norms", "architectures", "sweep"])
def test_training_follows_appendix_a8(name):
    for c in paper(f"gate-density-{name}"):
        assert (c["optimizer"], c["S"], c["weight_decay"], c["batch"]) == ("sgd", None, 5e-4, 128), c
        assert "lr" not in c and c["augment"] and c["data"].split(",")[0] in datasets()
        models.parse(c["network"], act=c["act"])


def test_norms_are_compared_on_a_resnet18_and_cifar10():
    runs = Counter((c["network"], c["data"], c["norm"], c["epochs"]) for c in paper("gate-density-norms"))
    assert runs == {("resnet18", "cifar10", n, 25): 12 for n in ("batch", "group")}, runs


def test_thirteen_conditions_three_seeds():
    runs = paper("gate-density-sweep")
    assert len(runs) == 39 and {(c["network"], c["data"]) for c in runs} == {("resnet18", "cifar10")}


def test_the_ablation_has_48_runs_under_each_of_three_optimizers():
    every = paper("gate-density-cnn")
    runs = [c for c in every if c["act"] in FOUR and c["norm"] == "batch"]
    assert Counter(c["optimizer"] for c in runs) == {"sgd": 48, "adam": 48, "adamw": 48}
    assert {c["lr"] for c in runs if c["optimizer"] != "sgd"} == {1e-3}
    assert {(c["network"], c["data"]) for c in runs} == {
        (n, d) for n in ("resnet18", "vgg11") for d in ("cifar10", "cifar100")
    }
    others = [c for c in every if c not in runs]  # Table 4's other five activations, and GroupNorm
    assert Counter(c["norm"] for c in others) == {"batch": 15, "group": 12}
    assert {(c["network"], c["data"], c["optimizer"]) for c in others} == {("resnet18", "cifar10", "sgd")}


def test_figures_1_to_5_of_saddle_escape():
    (one,) = paper("saddle-reduction")
    assert (one["x0"], one["width"], one["inputs"]) == ([0.03, 0.05, 0.07, 0.09], 64, 16)
    assert (one["batch"], one["steps"], one["snapshots"]) == (32_768, 120_000, 25)
    descents = [c for c in paper("saddle-universality") if c["kind"] == "descent"]
    assert {c["activation"] for c in descents} == {"tanh", "erf", "sin", "gelu", "silu"}
    assert {c["seed"] for c in descents} == set(range(5)) and {c["lr"] for c in descents} == {0.05}
    he = [c for c in paper("saddle-he") if c["kind"] == "sgd"]
    assert {(c["depth"], c["width"], c["batch"], c["lr"], c["max_steps"]) for c in he} == {(8, 128, 512, 0.01, 800_000)}
    assert {len(c["seeds"]) for c in he} == {5} and sorted({c["r"] for c in he}) == [3, 5, 8]
    (cascade,) = [c for c in paper("saddle-cascade") if c["kind"] == "network"]
    assert (cascade["eps"], cascade["batch"], cascade["steps"]) == (0.05, 4096, 150_000)


HESSIAN = ("distance", "bottleneck", "gap", "diamond", "resnet")


def test_the_experiments_on_the_hessian_between_layers():
    for name in HESSIAN:
        assert {c["seed"] for c in paper(f"dag-hessian-{name}")} == {42, 43, 44, 45, 46}, name
    necks = paper("dag-hessian-bottleneck")
    assert {(c["depth"], c["base"], c["samples"], c["data"], c["epochs"]) for c in necks} == {
        (6, 512, 64, "cifar100", 50),
        (8, 512, 64, "cifar100", 50),
    }
    assert sorted({c["neck"] for c in necks}) == [4, 8, 16, 32, 64, 128, 256, 512]
    trained = [c for c in paper("dag-hessian-distance") if c["epochs"]]
    assert Counter((c["net"], c["depth"], c["width"], c["epochs"]) for c in trained) == {
        **{(n, d, 64, 50): 5 for n in ("plain", "residual") for d in (8, 10, 12)},
        **{("spectral", d, 64, 50): 5 for d in (8, 12, 16)},
        **{(n, d, 128, 50): 5 for n in ("plain", "residual") for d in (16, 32)},
    }
    gaps = [c for c in paper("dag-hessian-gap") if c["epochs"]]
    assert {(c["epochs"], c["depth"], c["width"], c["samples"], c["data"]) for c in gaps} == {
        (20, 6, 64, 16, "cifar10")
    }
    assert {(c["norm"], c["act"]) for c in gaps} == {(n, a) for n in ("layer", "none") for a in _printed.ACTS}
    diamonds = [c for c in paper("dag-hessian-diamond") if c["epochs"]]
    assert {(c["length"], c["width"], c["samples"], c["epochs"]) for c in diamonds} == {
        (k, 32, 32, 50) for k in (1, 2, 3)
    }
    towers = paper("dag-hessian-resnet")
    assert {(c["data"], c["epochs"], c["samples"], c["probes"]) for c in towers} == {("cifar10", 100, 32, 30)}
    mlp, tower = recipe_named("dag-hessian"), recipe_named("dag-hessian-resnet")
    assert (mlp.lr, mlp.momentum, mlp.weight_decay, mlp.batch, mlp.clip) == (0.01, 0.9, 1e-4, 128, 1.0)
    assert (tower.lr, tower.weight_decay, tower.batch, tower.epochs) == (0.1, 5e-4, 128, 100)


def test_the_79_configurations_have_the_papers_networks():
    runs = paper("weight-drift-cliff")
    assert Counter(c["architecture"] for c in runs) == {"mlp": 14, "resnet": 14, "vit": 14, "denoiser": 14, "gpt": 23}
    gpt = [c for c in runs if c["architecture"] == "gpt"]
    assert {(c["data"], c["steps"], c["seed"]) for c in gpt} == {("shards:fineweb", 7168, 0)}
    assert all(c["full"] for c in runs)
    with torch.device("meta"):
        sizes = {a: sum(p.numel() for p in models.build(spec).parameters()) for a, spec in _grid.FULL.items()}
    assert sizes["gpt"] == 123_551_232 and sizes["resnet"] > 11e6 and 2.2e6 < sizes["denoiser"] < 2.3e6, sizes
    assert "needs" in find_study("weight-drift-cliff").obstacle("paper") or "found" in find_study(
        "weight-drift-cliff"
    ).obstacle("paper")


def test_the_tables_of_dead_directions_have_their_seeds():
    probes = [c for c in paper("dead-directions-rates") if c["check"] == "probe"]
    ladders = Counter(c["options"]["activation"] for c in probes if c["topic"] == "ladder")
    assert ladders == dict.fromkeys(("linear", "relu", "gelu", "tanh"), 3)
    boxes = Counter((c["options"]["activation"], c["probe"].get("seed")) for c in probes if c["topic"] == "autoencoder")
    assert all(boxes[a, s] == 1 for a in ("linear", "relu", "gelu", "tanh") for s in (42, 142, 242, 342, 442))
    losses = {(c["options"]["activation"], c["probe"].get("loss", "mse")) for c in probes if "widths" in c["options"]}
    assert {(a, k) for a in ("linear", "gelu", "tanh") for k in ("mse", "ce")} <= losses
