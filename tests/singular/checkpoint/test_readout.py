"""The one-checkpoint readout: planted dead units are found with their order; trained nets say why there is nothing."""

import copy
import math

import pytest
import torch
from torch import nn

from netvitals.capture.task import inputs_of
from netvitals.singular import classify_spectrum, readout
from netvitals.singular.checkpoint.candidates import candidate_directions
from netvitals.singular.checkpoint.readout import distance, spectrum_along


def planted(distance=1e-3, activation=nn.Tanh):
    """A two-layer net whose last hidden unit is almost dead."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 6, bias=False), activation(), nn.Linear(6, 3, bias=False))
    with torch.no_grad():
        model[0].weight[5] = distance * torch.tensor([1.0, -0.5, 0.3, 0.2, 0.1])
        model[2].weight[:, 5] = distance * torch.tensor([0.7, 0.5, -0.5])
    return model


@pytest.mark.parametrize("loss", ["mse", "ce"])
def test_a_planted_dead_unit_is_found_with_order_two(loss):
    model = planted()
    found = readout(model, loss, (torch.randn(200, 5), None), units=2, chains=0)
    (hit,) = found.of("singular")
    assert hit.kind == "joint mode" and hit.name.endswith("unit 5")
    assert hit.scan.order == 2 and hit.scan.estimate == pytest.approx(2, abs=0.1)
    outputs = 3 if loss == "mse" else 2  # cross-entropy does not see a shift of all logits
    assert (hit.own.lam, hit.own.m, hit.own.sheets) == (outputs / 2, 1, (5, outputs))
    assert (found.limit.lam, found.limit.m) == (5 * (5 + outputs) / 2 + outputs / 2, 1)  # five live units besides
    assert found.limit.nu is None and found.triple is None and "no chains" in str(found)
    assert distance(hit) == pytest.approx(1e-3 * math.sqrt(2) * 1.17, rel=0.5)
    assert "next to the checkpoint" in str(found)


@pytest.mark.parametrize("loss", ["mse", "ce"])
def test_a_unit_that_is_quite_dead_is_found_too(loss):
    found = readout(planted(0.0), loss, (torch.randn(200, 5), None), units=1, chains=0)
    (hit,) = found.of("singular")
    assert hit.scan.order == 2 and hit.kind == "joint mode"


def test_the_spectrum_of_a_dead_unit_falls_even_with_fewer_samples_than_weights():
    """Along the whole layers the constant eigenvalues would fill the rank and hide those of the unit."""
    model, x = planted(0.0), torch.randn(8, 5)
    (hit,) = readout(model, "mse", (x, None), units=1, chains=0).of("singular")
    found = spectrum_along(model, "mse", (x, None), candidate=hit)
    assert found.count("constant") == 0 and len(found.directions) == 5 + 3
    assert [round(d.exponent) for d in found.of("transversal")].count(2) >= 3


def test_more_parameters_than_scores_are_said():
    wide = classify_spectrum(
        lambda th: (th * torch.arange(1.0, 5)).sum().expand(2, 1), torch.ones(4), torch.ones(4), (0.1, 0.2, 0.4)
    )
    assert "4 parameters and only 2 scores" in wide.note


def test_a_random_network_has_no_singular_direction_and_says_so():
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3))
    found = readout(model, nn.CrossEntropyLoss(), (torch.randn(100, 5), None), units=1, chains=0)
    assert f"none among the {len(found.candidates)} directions tried" in str(found)
    # a regular point: 57 weights, of which 7 only shift all logits
    assert (found.limit.lam, found.limit.m, found.limit.nu, found.limit.fibre) == (25.0, 1, 25.0, 7)
    assert found.of("regular") and not found.of("unclear") and "of its largest on the way out" in str(found)
    assert found.conditions["expected Fisher"] == "holds: categorical, expected Fisher"
    assert found.conditions["equivariant optimiser"].startswith("not checked")


def test_norm_kernel_is_a_gauge_direction():
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(5, 6), nn.LayerNorm(6), nn.Linear(6, 3))
    with torch.no_grad():
        model[1].weight.uniform_(0.5, 2)
    found = readout(model, "mse", (torch.randn(64, 5), None))
    (kernel,) = [c for c in found.candidates if c.kind == "norm kernel"]
    assert kernel.verdict == "gauge"


class Tied(nn.Module):
    """Embedding and head share one weight."""

    def __init__(self):
        super().__init__()
        self.embed, self.norm = nn.Embedding(70, 8), nn.LayerNorm(8)
        self.up, self.down = nn.Linear(8, 12), nn.Linear(12, 8)
        self.head = nn.Linear(8, 70, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        h = self.embed(tokens)
        return self.head(h + self.down(torch.relu(self.up(self.norm(h)))))


def test_a_language_model_with_tied_weights_is_read():
    torch.manual_seed(3)
    found = readout(Tied(), "ce", (torch.randint(0, 70, (2, 12)), None), units=2, chains=0)
    kinds = {c.name: (c.kind, c.verdict) for c in found.candidates}
    assert kinds["norm read by up"] == ("norm kernel", "gauge") and kinds["head"][0] == "K-FAC bottom"
    assert sum(k == "joint mode" for k, _ in kinds.values()) == 2 and found.triple is None and found.whole.why
    assert "2 times per forward pass" in found.skipped["head"] and "down" not in found.skipped


def test_a_dead_channel_between_convolutions_is_found_and_silent_units_are_passed_over():
    torch.manual_seed(4)
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3, bias=False),
        nn.Tanh(),
        nn.Conv2d(4, 3, 3, bias=False),
        nn.Flatten(),
        nn.Linear(48, 5),
        nn.ReLU(),
        nn.Linear(5, 2),
    )
    with torch.no_grad():
        net[0].weight[2], net[2].weight[:, 2] = 0, 0
        net[4].bias[1] = -1e3
    found = readout(net, "mse", (torch.randn(60, 1, 8, 8), None), units=1, chains=0)
    (hit,) = found.of("singular")
    assert (hit.name, hit.scan.order) == ("0 → 2, unit 2", 2) and "order 2" in str(hit)
    assert (hit.own.lam, hit.own.m, hit.own.sheets) == (4.5, 1, (9, 27))
    every = readout(net, "mse", (torch.randn(60, 1, 8, 8), None), units=5, chains=0)
    tried = [c.name for c in every.candidates if c.kind == "joint mode" and c.name.startswith("4 → 6")]
    assert sorted(tried) == [f"4 → 6, unit {u}" for u in (0, 2, 3, 4)]  # the silent one is passed over, and said
    assert "shut on the whole batch" in every.skipped["4 → 6, unit 1"] and "not measured: " in str(every)
    assert any(c.name.startswith("2 → 4, unit") for c in every.candidates)  # a channel owns the columns of its pixels


def test_the_model_is_left_as_it_was():
    model = planted().half()
    x = torch.randn(20, 5)
    before, rng = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    found = readout(model, "mse", (x, None), units=1, chains=0)
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    assert torch.equal(rng, torch.get_rng_state()) and not any(m._forward_hooks for m in model.modules())
    assert any("promoted" in n for n in found.notes)


def test_wrong_input_gets_a_sentence():
    with pytest.raises(ValueError, match="likelihood"):
        readout(planted(), nn.L1Loss(), (torch.randn(4, 5), None))
    with pytest.raises(ValueError, match="NaN"):
        readout(planted(), "mse", (torch.full((4, 5), math.nan), None))


def test_a_model_that_is_one_layer_and_a_batch_that_is_no_pair():
    layer, x = nn.Linear(4, 3), torch.randn(40, 4)
    found = readout(layer, "ce", (x, None))
    assert found.candidates[0].name == "model"
    assert str(readout(layer, "ce", x)) == str(found)
    with pytest.raises(ValueError, match="no input tensor"):
        readout(layer, "ce", ["a", "b", "c"])


class Blocks(nn.Module):
    """Norms and layers one after the other."""

    def __init__(self, depth):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 6), nn.Tanh()) for _ in range(depth))
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


def test_finding_what_reads_a_norm_takes_as_many_passes_for_many_blocks_as_for_few():
    def passes(depth):
        net, calls = Blocks(depth).double(), []
        forward = net.forward
        net.forward = lambda x: (calls.append(1), forward(x))[1]
        task = inputs_of(net, torch.randn(8, 6).double())
        found, _ = candidate_directions(task, "mse", 1)
        assert sum(d.kind == "norm kernel" for d in found) == depth
        return len(calls), len(found)

    (few, candidates), (many, more) = passes(2), passes(8)
    assert few == many <= 3 + 2 * candidates < 3 + 2 * more, (few, many, candidates, more)
