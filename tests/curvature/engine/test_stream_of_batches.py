"""Many batches: the curvature of their union, one batch in memory at a time."""

import gc

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from netvitals.curvature import between_layers, operators, spectral_density, top_eigenvalues, trace


@pytest.fixture
def problem():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 3)).double()
    x, y = torch.randn(23, 4).double(), torch.randint(0, 3, (23,))
    return net, (x, y), [(x[:9], y[:9]), (x[9:18], y[9:18]), (x[18:], y[18:])]  # of unequal length


def test_every_measurement_of_many_batches_is_that_of_their_union(problem, bench):
    net, whole, parts = problem
    dense, _ = bench.parameter_hessian(net, F.cross_entropy, whole)
    with operators(net, F.cross_entropy, parts) as of:
        torch.testing.assert_close(of.whole().dense(), dense, atol=1e-10, rtol=1e-8)
        name = of.names[0]
        torch.testing.assert_close(of.block(name, name).dense(), dense[:24, :24], atol=1e-10, rtol=1e-8)
    one, many = (trace(net, F.cross_entropy, b, probes=6, method="hutchinson") for b in (whole, parts))
    np.testing.assert_allclose(many.draws, one.draws, rtol=1e-9, atol=1e-12)
    assert np.isnan(one.total_sampling) and many.total_sampling > 0 and "over batches" in str(many)
    found = top_eigenvalues(net, F.cross_entropy, parts, k=2, tol=1e-9)
    np.testing.assert_allclose(found.values, torch.linalg.eigvalsh(dense).flip(0)[:2], rtol=1e-7)
    assert (found.sampling_stderr > 0).all()
    density = spectral_density(net, F.cross_entropy, parts, steps=8, runs=2)
    np.testing.assert_allclose(density.trace, spectral_density(net, F.cross_entropy, whole, steps=8, runs=2).trace)


@pytest.mark.parametrize("space", ["parameter", "activation"])
def test_interlayer_of_many_batches_is_that_of_their_union(problem, space):
    net, whole, parts = problem
    one, many = (between_layers(net, F.cross_entropy, b, probes=5, space=space, refine=2) for b in (whole, parts))
    for metric in ("resonance", "tensor", "gn_gap", "coupling", "stable_rank", "resonance_stderr"):
        np.testing.assert_allclose(getattr(many, metric), getattr(one, metric), rtol=1e-6, atol=1e-9, err_msg=metric)
    assert many.examples == 23 and many.loss == pytest.approx(one.loss)


@pytest.mark.slow
def test_the_error_over_batches_is_the_spread_of_other_data():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).double()
    draw = lambda: [(torch.randn(8, 4).double(), torch.randint(0, 3, (8,))) for _ in range(10)]
    runs = [trace(net, F.cross_entropy, draw(), probes=20) for _ in range(30)]
    ratio = np.std([r.total for r in runs]) / np.mean([r.total_sampling for r in runs])
    assert 0.65 < ratio < 1.5, f"the spread over data sets is {ratio:.2f} of the stated error"


def test_a_loader_is_taken_and_one_that_changes_its_data_is_refused(problem):
    net, (x, y), _ = problem
    data = TensorDataset(x, y)
    expected = top_eigenvalues(net, F.cross_entropy, (x, y), k=1).values
    found = top_eigenvalues(net, F.cross_entropy, DataLoader(data, batch_size=8, shuffle=True), k=1).values
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    moving = DataLoader(data, batch_size=8, shuffle=True, drop_last=True)
    with pytest.raises(ValueError, match="different data in every pass"):
        top_eigenvalues(net, F.cross_entropy, moving, k=1, memory=1 << 17)  # too little to keep the first pass
    once = ((x[i : i + 8], y[i : i + 8]) for i in (0, 8, 16))
    assert trace(net, F.cross_entropy, once, probes=4, method="hutchinson").total == pytest.approx(
        trace(net, F.cross_entropy, (x, y), probes=4, method="hutchinson").total
    )
    with pytest.raises(ValueError, match="read only once"):
        top_eigenvalues(net, F.cross_entropy, iter([(x, y)]), k=1)
    with pytest.raises(ValueError, match="no batch"):
        trace(net, F.cross_entropy, [], probes=4)


def test_sums_over_examples_are_refused(problem):
    net, _, parts = problem
    with pytest.raises(ValueError, match="reduction='mean'"):
        trace(net, nn.CrossEntropyLoss(reduction="sum"), parts, probes=4)


def test_a_parameter_that_only_some_batches_use_counts_for_these(bench):
    class Gate(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(3, 2), nn.Linear(3, 2)

        def forward(self, x):
            return torch.tanh(self.a(x)) + (torch.tanh(self.b(x)) if x.sum() > 0 else 0.0)

    torch.manual_seed(0)
    net = Gate().double()
    x, y = torch.rand(8, 3).double(), torch.randn(8, 2).double()
    dense = [bench.parameter_hessian(net, F.mse_loss, (sign * x, y))[0] for sign in (1, -1)]
    with operators(net, F.mse_loss, [(x, y), (-x, y)]) as of:
        torch.testing.assert_close(of.whole().dense(), sum(dense) / 2)


def test_ten_times_the_data_take_the_same_memory():
    net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2))
    alive = []

    def batches(count):
        for i in range(count):
            if i == count - 1:
                gc.collect()
                alive.append(sum(type(o) is torch.Tensor for o in gc.get_objects()))
            yield torch.randn(16, 8), torch.randn(16, 2)

    trace(net, F.mse_loss, batches(3), probes=4)
    trace(net, F.mse_loss, batches(30), probes=4)
    assert alive[1] <= 1.05 * alive[0], f"{alive[0]} tensors alive with 3 batches, {alive[1]} with 30"


class Stopped(Exception):
    pass


class Failing:
    """Batches that stop after so many."""

    def __init__(self, batches, left=10**9):
        self.batches, self.left = batches, left

    def __iter__(self):
        for one in self.batches:
            if self.left == 0:
                raise Stopped
            self.left -= 1
            yield one


@pytest.mark.parametrize("stop", [2, 3, 9])
@pytest.mark.parametrize("of", ["trace", "between_layers", "eigenvalues"])
def test_an_interrupted_run_goes_on_where_it_stopped(problem, tmp_path, monkeypatch, of, stop):
    from netvitals.curvature.engine import journal, stream

    monkeypatch.setattr(journal, "EVERY", 0.0)
    monkeypatch.setattr(stream, "KEPT", 10**12)  # no graph is kept: each pass reads the data
    net, _, parts = problem
    measure = {
        "trace": lambda b, **more: trace(net, F.cross_entropy, b, probes=3, **more).draws,
        "between_layers": lambda b, **more: between_layers(net, F.cross_entropy, b, probes=5, **more).resonance,
        "eigenvalues": lambda b, **more: top_eigenvalues(net, F.cross_entropy, b, k=1, **more).values,
    }[of]
    expected = measure(parts)
    folder = tmp_path / "state"
    batches = Failing(parts, min(stop, 3) if of == "trace" else stop)  # a look at the first, then one pass
    with pytest.raises(Stopped):
        measure(batches, resume=folder)
    read = Failing(parts)
    np.testing.assert_array_equal(measure(read, resume=folder), expected)
    assert not folder.exists()
    afresh = Failing(parts)
    measure(afresh)
    assert read.left > afresh.left or stop < 4 or of == "trace", "what was done before was done again"


def test_a_state_of_another_measurement_is_refused(problem, tmp_path):
    net, _, parts = problem
    batches = Failing(parts, 2)
    with pytest.raises(Stopped):
        trace(net, F.cross_entropy, batches, probes=3, resume=tmp_path / "state")
    with pytest.raises(ValueError, match=r"different measurement \(its seed differ"):
        trace(net, F.cross_entropy, parts, probes=3, seed=1, resume=tmp_path / "state")
    with torch.no_grad():
        net[0].weight.add_(1e-9)
    with pytest.raises(ValueError, match="its parameters differ"):
        trace(net, F.cross_entropy, parts, probes=3, resume=tmp_path / "state")


class Code:
    """Runs when it is unpickled."""

    ran = False

    def __reduce__(self):
        return exec, ("from test_stream_of_batches import Code; Code.ran = True",)


@pytest.mark.parametrize("legacy", [False, True])
def test_a_state_that_would_run_code_is_refused(problem, tmp_path, legacy):
    net, _, parts = problem
    with pytest.raises(Stopped):
        trace(net, F.cross_entropy, Failing(parts, 2), probes=3, resume=tmp_path / "state")
    state = tmp_path / "state" / "pass-00000.pt"
    torch.save({"over": True, "total": Code()}, state, _use_new_zipfile_serialization=not legacy)
    with pytest.raises(ValueError, match=r"pass-00000\.pt is not a stored measurement state"):
        trace(net, F.cross_entropy, parts, probes=3, resume=tmp_path / "state")
    state.write_bytes(b"cut")
    with pytest.raises(ValueError, match="is not a stored measurement state"):
        trace(net, F.cross_entropy, parts, probes=3, resume=tmp_path / "state")
    assert not Code.ran


@pytest.mark.slow
def test_the_error_over_batches_of_norms_and_ratios_is_the_spread_of_other_data():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 3)).double()
    draw = lambda: [(torch.randn(16, 4).double(), torch.randint(0, 3, (16,))) for _ in range(12)]
    runs = [between_layers(net, F.cross_entropy, draw(), nodes=["0", "2"], probes=6) for _ in range(30)]
    for metric in ("resonance", "gauss_newton", "coupling", "gn_gap"):
        for i, j in ((0, 0), (0, 1), (1, 1)):
            if metric == "coupling" and i == j:
                continue
            spread = np.std([getattr(r, metric)[i, j] for r in runs])
            error = np.mean([r.sampling[metric][i, j] for r in runs])
            assert 0.55 < spread / error < 1.7, f"{metric} of {i}, {j}: {spread:.3g} against {error:.3g}"
    assert runs[0].at("0", "2")["resonance_sampling"] > 0 and np.isnan(runs[0].sampling["stable_rank"]).all()


def test_batches_of_another_length_are_refused_between_activations():
    net = nn.Sequential(nn.Conv1d(2, 3, 3, padding=1), nn.Tanh(), nn.Conv1d(3, 2, 3, padding=1))
    batch = lambda length: (torch.randn(4, 2, length), torch.randn(4, 2, length))
    with pytest.raises(ValueError, match="in the first batch and 21 in another"):
        between_layers(net, "mse", [batch(5), batch(7)], nodes=["0"], probes=4)


def test_sequence_first_batches_count_by_their_examples(bench):
    torch.manual_seed(0)
    net = nn.Sequential(nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0), nn.Linear(4, 3)).double()
    x, y = torch.randn(5, 6, 4).double(), torch.randn(5, 6, 3).double()  # positions, examples, channels
    parts = [(x[:, :4], y[:, :4]), (x[:, 4:], y[:, 4:])]
    one, many = (between_layers(net, "mse", b, nodes=["0", "1"], space="parameter", probes=4) for b in ((x, y), parts))
    np.testing.assert_allclose(many.resonance, one.resonance, rtol=1e-8)


def test_memory_of_many_passes_is_flat_when_the_graphs_that_are_kept_fill_their_share():
    net = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 2))
    alive = []

    class Batches:
        def __init__(self, count):
            self.count = count

        def __iter__(self):
            for i in range(self.count):
                if i == self.count - 1:
                    gc.collect()
                    tensors = [o for o in gc.get_objects() if type(o) is torch.Tensor]
                    alive.append(sum(t.untyped_storage().nbytes() for t in tensors))
                g = torch.Generator().manual_seed(i)
                yield torch.randn(64, 32, generator=g), torch.randn(64, 2, generator=g)

    peaks = []
    gc.freeze()  # what other tests have left alive is not searched pass after pass
    try:
        for count in (4, 40):
            alive.clear()
            top_eigenvalues(net, F.mse_loss, Batches(count), k=1, most=4, tol=1.0, memory=1 << 22)
            peaks.append(max(alive))
    finally:
        gc.unfreeze()
    assert peaks[1] <= 1.05 * peaks[0], f"{peaks[0]} bytes alive with 4 batches, {peaks[1]} with 40"
