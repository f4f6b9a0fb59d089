"""Exact blocks against torch.func, on every shape of net, in both spaces and all reductions."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from netvitals.curvature import between_layers


def test_activation_blocks_equal_the_hessian_of_the_perturbed_loss(case, bench):
    model, loss, batch, nodes = case
    found = between_layers(model, loss, batch, nodes=nodes, method="exact")
    reference, _ = bench.perturbed_hessian(model, loss, batch, list(found.nodes))
    error = bench.relative(found.blocks.hessian, reference)
    assert error <= 1e-10, f"relative error {error:.1e}"


def test_parameter_blocks_equal_the_hessian_of_the_loss(case, bench):
    model, loss, batch, _ = case
    nodes = [n for n, _ in model.named_parameters()]
    found = between_layers(model, loss, batch, nodes=nodes, method="exact", space="parameter")
    reference, sizes = bench.parameter_hessian(model, loss, batch)
    at = dict(zip(sizes, torch.arange(sum(sizes.values())).split(list(sizes.values()))))
    order = torch.cat([at[n] for n in found.nodes])
    error = bench.relative(found.blocks.hessian, reference[order][:, order])
    assert error <= 1e-10, f"relative error {error:.1e}"


def test_gauss_newton_part_is_the_output_jacobian_squared(case, bench):
    model, loss, batch, nodes = case
    x, y = batch
    found = between_layers(model, loss, batch, nodes=nodes, method="exact")
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        out = model(x).detach()
    curvature = torch.func.hessian(lambda o: loss(o, y))(out).reshape(out.numel(), out.numel())
    # the Jacobian of the outputs in the perturbations is the Hessian of <c, out> in (c, eps)
    columns = []
    for k in range(out.numel()):
        cot = torch.zeros(out.numel(), dtype=x.dtype)
        cot[k] = 1
        grad = _gradient(model, lambda o, _, c=cot: (o.flatten() * c).sum(), batch, list(found.nodes))
        columns.append(grad)
    jacobian = torch.stack(columns)
    assert bench.relative(found.blocks.gauss_newton, jacobian.mT @ curvature @ jacobian) <= 1e-10


def _gradient(model, loss, batch, calls):
    eps = {}
    counts = {}
    modules = dict(model.named_modules())

    def add(name):
        def hook(m, a, out):
            counts[name] = counts.get(name, 0) + 1
            key = name if counts[name] == 1 else f"{name}#{counts[name]}"
            if key not in calls:
                return None
            eps[key] = torch.zeros(1, *out.shape[1:], dtype=out.dtype, requires_grad=True)
            return out + eps[key]

        return hook

    handles = [modules[b].register_forward_hook(add(b)) for b in dict.fromkeys(c.split("#")[0] for c in calls)]
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        value = loss(model(batch[0]), batch[1])
    [h.remove() for h in handles]
    grads = torch.autograd.grad(value, [eps[c] for c in calls])
    return torch.cat([g.flatten() for g in grads])


@pytest.mark.parametrize("reduction", ["per_sample", "joint"])
def test_blocks_by_sample_agree_with_the_full_perturbation(case, reduction, bench):
    model, loss, batch, nodes = case
    found = between_layers(model, loss, batch, nodes=nodes, method="exact", reduction=reduction)
    reference, sizes = bench.perturbed_hessian(model, loss, batch, list(found.nodes), per_sample=True)
    b = batch[0].shape[0]
    if reduction == "joint":
        assert bench.relative(found.blocks.hessian, reference) <= 1e-10
        return
    starts = np.cumsum([0, *sizes])
    for i in range(b):
        rows = torch.cat([torch.arange(s + i * k // b, s + (i + 1) * k // b) for s, k in zip(starts, sizes)])
        assert bench.relative(found.blocks.hessian[i] / b, reference[rows][:, rows]) <= 1e-10


def test_reductions_differ_as_they_should(case):
    """Norm of the mean ≤ mean of norms; the joint norm is the root of the summed squares over B."""
    model, loss, batch, nodes = case
    get = lambda r: between_layers(model, loss, batch, nodes=nodes, method="exact", reduction=r)
    mean, apart, joint = get("mean_block"), get("per_sample"), get("joint")
    assert (mean.resonance <= apart.resonance + 1e-12).all()
    b = batch[0].shape[0]
    np.testing.assert_allclose(joint.resonance, np.sqrt((apart.per_sample["resonance"] ** 2).sum(0)) / b, rtol=1e-10)
    np.testing.assert_allclose(get("mean_of_norms").resonance, apart.resonance)
    assert get("mean_of_norms").per_sample == {}


def test_metrics_are_those_of_the_blocks(case):
    model, loss, batch, nodes = case
    found = between_layers(model, loss, batch, nodes=nodes, method="exact")
    v, w = found.nodes[0], found.nodes[-1]
    h, gn, t = found.block(v, w)
    numbers = found.at(v, w)
    assert torch.allclose(h, gn + t)
    assert numbers["resonance"] == pytest.approx(float(h.norm()))
    assert numbers["gn_gap"] == pytest.approx(float(t.norm() / gn.norm()))
    assert numbers["stable_rank"] == pytest.approx(float(h.norm() ** 2 / torch.linalg.matrix_norm(h, 2) ** 2))
    assert numbers["coupling"] == pytest.approx(
        float(h.norm() / (found.block(v, v).H.norm() * found.block(w, w).H.norm()).sqrt())
    )
    singular = torch.linalg.svdvals(h)
    at = found.position(v), found.position(w)
    assert found.effective_dimension[at] == pytest.approx(float(singular.sum() / singular[0]))
    rows = {(r["v"], r["w"]): r for r in found.rows()}
    assert rows[v, w]["effective_dimension"] == found.effective_dimension[at]
    assert not rows[v, w]["effective_dimension_is_partial"]
    assert (found.effective_dimension >= found.stable_rank - 1e-9).all()
    assert np.nanmin(found.stable_rank) >= 1 - 1e-9
    assert numbers["stable_rank"] <= min(h.shape) + 1e-9


@pytest.mark.parametrize("act", [nn.ReLU, lambda: nn.LeakyReLU(0.1)])
def test_piecewise_linear_nets_have_no_tensor_part_in_activation_space_but_a_residual_in_parameters(act):
    net = nn.Sequential(nn.Linear(5, 6), act(), nn.Linear(6, 6), act(), nn.Linear(6, 3)).double()
    batch = (torch.randn(4, 5).double(), torch.randint(0, 3, (4,)))
    activations = between_layers(net, F.cross_entropy, batch, nodes=["1", "3"], method="exact")
    assert float(activations.blocks.tensor.abs().max()) == 0
    parameters = between_layers(net, F.cross_entropy, batch, nodes=["0", "2", "4"], method="exact", space="parameter")
    off = ~np.eye(3, dtype=bool)
    assert (parameters.gn_gap[off] > 1e-2).all(), parameters.gn_gap
    assert (np.diag(parameters.gn_gap) < 1e-12).all(), parameters.gn_gap


def test_float32_gap_of_a_relu_net_is_below_1e_7():
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3))
    found = between_layers(net, F.cross_entropy, (torch.randn(8, 8), torch.randint(0, 3, (8,))), probes=6)
    assert np.nanmax(found.gn_gap) <= 1e-7


def test_batch_norm_in_train_mode_couples_samples_and_gives_a_relu_net_a_tensor_part(bench):
    net = nn.Sequential(
        nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 3)
    ).double()
    batch = (torch.randn(6, 4).double(), torch.randint(0, 3, (6,)))
    assert between_layers(net, F.cross_entropy, batch, nodes=["0"], method="exact", mode="eval").global_gap == 0
    assert between_layers(net, F.cross_entropy, batch, nodes=["0"], method="exact").global_gap > 0.1
    same = copy.deepcopy(net)  # torch.func cannot count batches; batch statistics are the same without the count
    same[3].track_running_stats, same[3].running_mean, same[3].running_var = False, None, None
    reference, _ = bench.perturbed_hessian(same, F.cross_entropy, batch, ["0"], per_sample=True)
    found = between_layers(net, F.cross_entropy, batch, nodes=["0"], method="exact", reduction="joint")
    assert bench.relative(found.blocks.hessian, reference) <= 1e-10
    with pytest.raises(ValueError, match="batch normalisation is in train mode"):
        between_layers(net, F.cross_entropy, batch, nodes=["0"], reduction="per_sample")


def test_a_linear_head_leaves_no_tensor_part_at_the_last_node(bench):
    net = bench.chain().double()
    batch = (torch.randn(3, 5).double(), torch.randint(0, 3, (3,)))
    found = between_layers(net, F.cross_entropy, batch, nodes=["1", "4"], method="exact")
    assert found.tensor[0, 1] == 0 and found.tensor[1, 1] == 0 and found.tensor[0, 0] > 1e-4


def test_intermediate_tensors_are_wrong_where_the_leaves_are_right(bench):
    """The trap: backward of tanh keeps its output, so differentiating by that output counts it twice."""
    a, b = torch.randn(4, dtype=torch.float64).requires_grad_(), torch.randn(4, 4, dtype=torch.float64)
    f = torch.tanh(a)
    loss = torch.tanh(b @ f).square().sum()
    (grad_v,) = torch.autograd.grad(loss, a, create_graph=True)
    wrong = torch.stack([torch.autograd.grad(g, f, retain_graph=True)[0] for g in grad_v])

    def shifted(e):
        return torch.tanh(b @ (torch.tanh(a.detach() + e[:4]) + e[4:])).square().sum()

    right = torch.func.hessian(shifted)(torch.zeros(8, dtype=torch.float64))[:4, 4:]
    assert bench.relative(wrong, right) > 0.1


def test_attention_blocks_at_initialisation(bench):
    """H^T is nonzero for QQ, QK, QV, KK, KV and zero for VV."""
    net = bench.Attention().double()
    batch = (torch.randn(4, 3, 4).double(), torch.randn(4, 2).double())
    found = between_layers(net, F.mse_loss, batch, nodes=["q", "k", "v"], method="exact")
    assert found.tensor[2, 2] < 1e-12
    others = [found.tensor[i, j] for i in range(3) for j in range(3) if (i, j) != (2, 2)]
    assert min(others) > 1e-8


def test_residual_gap_needs_no_copy_of_a_float64_model(bench):
    net = bench.Residual().double()
    before = [p.clone() for p in net.parameters()]
    between_layers(net, F.cross_entropy, (torch.randn(3, 5).double(), torch.randint(0, 3, (3,))), method="exact")
    assert all(torch.equal(a, b) for a, b in zip(before, net.parameters()))
