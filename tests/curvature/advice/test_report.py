"""The answer in words and as a page, against dense Hessians."""

import json
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from netvitals import curvature
from netvitals.curvature.advice.answer import edge_of
from netvitals.curvature.advice.heatmap import heatmap_svg


@pytest.fixture
def problem():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3)).double()
    return net, F.cross_entropy, (torch.randn(32, 5).double(), torch.randint(0, 3, (32,)))


@pytest.fixture
def truth(problem, bench):
    """The dense Hessian of the weights and biases, and its Gauss–Newton part."""
    net, loss, (x, y) = problem
    h, sizes = bench.parameter_hessian(net, loss, (x, y))
    params = dict(net.named_parameters())

    def outputs(flat):
        tree = {n: v.view_as(params[n]) for n, v in zip(sizes, flat.split(list(sizes.values())))}
        return torch.func.functional_call(net, tree, (x,))

    flat = torch.cat([p.detach().flatten() for p in params.values()])
    j = torch.func.jacrev(outputs)(flat).detach()
    p = outputs(flat).softmax(1).detach()
    inner = (torch.diag_embed(p) - p[:, :, None] * p[:, None]) / len(x)
    return h, torch.einsum("bkp,bkl,blq->pq", j, inner, j)


def test_what_gauss_newton_misses_is_of_the_parameters_hessian(problem, truth):
    h, gn = truth
    found = curvature.report(*problem, probes=200)  # more than any layer is wide: exact
    share, _ = found.between.missed_in_all
    assert share == pytest.approx(float((h - gn).norm() / h.norm()), rel=1e-6)
    assert any(f"Gauss–Newton misses {100 * share:.0f} ±" in s for s in found.sentences()), found.sentences()
    activation = curvature.between_layers(*problem, nodes=["0", "2"], method="exact")
    assert activation.global_gap < 1e-12 < share, "a ReLU net has no gap between its activations"
    rough = curvature.report(*problem, probes=12).between
    value, error = rough.missed_in_all
    assert abs(value - share) < 5 * error + 0.01, (value, error, share)


def test_pairs_are_ranked_by_their_true_coupling(problem, truth):
    h, _ = truth
    found = curvature.report(*problem, probes=200)
    at = {"0": slice(0, 48), "2": slice(48, 120), "4": slice(120, 147)}
    norm = lambda v, w: float(h[at[v], at[w]].norm())
    expected = {(v, w): norm(v, w) / np.sqrt(norm(v, v) * norm(w, w)) for v, w in (("0", "2"), ("0", "4"), ("2", "4"))}
    assert [p.coupling for p in found.pairs] == pytest.approx(sorted(expected.values(), reverse=True))
    assert all(p.coupling == pytest.approx(expected[p.v, p.w]) for p in found.pairs)
    dropped = 1 - sum(norm(v, v) ** 2 for v in at) / float(h.norm()) ** 2
    assert sum(d.share for d in curvature.dropped_blocks(found.between)) == pytest.approx(dropped)
    assert f"drops {100 * dropped:.0f} % of the squared curvature" in str(found)


def test_sharpness_is_held_against_the_optimizers_edge(problem, truth):
    net = problem[0]
    top = float(torch.linalg.eigvalsh(truth[0])[-1])
    for rate, state in ((0.5 * 2 / top, "50 % of the edge"), (4 / top, "beyond the edge of stability")):
        found = curvature.report(*problem, optimizer=torch.optim.SGD(net.parameters(), lr=rate))
        assert found.sharpness.values[0] == pytest.approx(top, rel=0.01)
        assert any(state in s for s in found.sentences()), (state, found.sentences())
    adam = curvature.report(*problem, optimizer=torch.optim.Adam(net.parameters(), lr=0.1))
    assert np.isnan(adam.edge) and "rescales its steps" in str(adam)
    assert "stable below a learning rate of" in str(curvature.report(*problem))


@pytest.mark.slow
@pytest.mark.parametrize(("momentum", "nesterov"), [(0.0, False), (0.9, False), (0.9, True)])
def test_the_edge_is_where_the_optimizer_begins_to_diverge(momentum, nesterov):
    for factor, diverges in ((0.98, False), (1.02, True)):
        x = torch.ones(1, dtype=torch.float64, requires_grad=True)
        sgd = torch.optim.SGD([x], lr=0.1, momentum=momentum, nesterov=nesterov)
        _, edge = edge_of(sgd)
        for _ in range(3000):
            sgd.zero_grad()
            (0.5 * factor * edge * x.square()).sum().backward()
            sgd.step()
        assert (abs(float(x.detach())) > 1e3) == diverges, (factor, float(x.detach()))


def test_the_page_has_labelled_maps_and_the_sentences(problem, tmp_path):
    steps = []
    found = curvature.report(*problem, progress=lambda done, planned: steps.append((done, planned)))
    text = found.to_html(tmp_path / "made" / "page.html").read_text(encoding="utf-8")
    assert all(s.split("(")[0].strip() in text for s in found.sentences()) and "<script" not in text
    assert "147 of 147 trainable parameters" in text and "gradient-equivalents" in text
    for weight in ("coupling", "missed"):
        root = ElementTree.fromstring(heatmap_svg(found.between, weight))
        words = [t.text for t in root.iter("{http://www.w3.org/2000/svg}text")]
        assert all(words.count(n) >= 2 for n in found.between.nodes), "a name for its row and one for its column"
        assert weight in words, "the legend says what is drawn"
    assert all(0 < done <= planned for done, planned in steps) and len(steps) > 5
    assert len(str(found).split("\n")) <= 40 and json.dumps(found.to_dict())
    assert {"v", "w", "coupling", "coupling_stderr", "missed"} <= set(found.rows()[0])


def test_many_batches_give_the_same_answer(problem):
    net, loss, (x, y) = problem
    one = curvature.report(net, loss, (x, y), probes=6)
    many = curvature.report(net, loss, [(x[:20], y[:20]), (x[20:], y[20:])], probes=6)
    assert [p.coupling for p in many.pairs] == pytest.approx([p.coupling for p in one.pairs])
    assert many.between.missed_in_all == pytest.approx(one.between.missed_in_all)


def test_a_report_of_many_batches_goes_on_after_an_interruption(tmp_path):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).double()
    parts = [(torch.randn(8, 4).double(), torch.randint(0, 3, (8,))) for _ in range(3)]

    def stop(done, planned):
        if done > 14:
            raise KeyboardInterrupt

    expected = curvature.report(net, "ce", parts, probes=6)
    with pytest.raises(KeyboardInterrupt):
        curvature.report(net, "ce", parts, probes=6, resume=tmp_path / "state", progress=stop)
    assert any((tmp_path / "state").iterdir())
    found = curvature.report(net, "ce", parts, probes=6, resume=tmp_path / "state")
    assert (found.between.resonance == expected.between.resonance).all() and not (tmp_path / "state").exists()
    assert found.sharpness.values == pytest.approx(expected.sharpness.values)
    assert "over batches" in str(found.pairs[0])


def test_blocks_that_were_measured_before_an_interruption_are_not_measured_again(tmp_path):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).double()
    parts = [(torch.randn(8, 4).double(), torch.randint(0, 3, (8,))) for _ in range(3)]

    def stop(done, planned):
        if done > 14:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        curvature.report(net, "ce", parts, probes=6, resume=tmp_path / "state", progress=stop)
    kept = {p.relative_to(tmp_path).as_posix() for p in (tmp_path / "state").rglob("*.pt")}
    assert any(name.startswith("state/blocks/") for name in kept)
    again = curvature.report(net, "ce", parts, probes=6, resume=tmp_path / "state")
    whole = curvature.report(net, "ce", parts, probes=6)
    assert (again.between.resonance == whole.between.resonance).all()
    assert again.between.cost < whole.between.cost / 10, "the products were asked for again"


def test_activation_space_is_in_the_result_its_frame_the_sentences_and_the_page(tmp_path):
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Linear(4, 12), nn.Tanh(), nn.Linear(12, 2), nn.Tanh(), nn.Linear(2, 12), nn.Tanh(), nn.Linear(12, 12)
    ).double()
    batch = torch.randn(16, 4).double(), torch.randn(16, 12).double()
    found = curvature.report(net, "mse", batch, nodes=["0", "2", "4"], probes=40)
    dense = curvature.between_layers(net, "mse", batch, nodes=["0", "2", "4"], method="exact")
    for metric in ("resonance", "coupling", "gn_gap"):
        assert getattr(found.activations, metric) == pytest.approx(getattr(dense, metric), rel=1e-6), metric
    frame = found.to_frame()
    assert set(frame["space"]) == {"parameter", "activation"} and "gn_gap" in frame.columns
    text = "\n".join(found.sentences())
    assert "2 is a bottleneck: width 2" in text and "are coupled most (C = " in text
    page = found.to_html(tmp_path / "page.html").read_text()
    for title in ("Resonance R", "Coupling C", "Stable rank D", "GN-gap", "Bottlenecks"):
        assert title in page, title
    named = curvature.report(net, "mse", batch, nodes=["0.weight", "2.weight"], probes=4)
    assert named.activations is None and "activation space" in named.skipped
