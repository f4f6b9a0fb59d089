"""What curvature takes for granted is measured on the model; where it fails there is a sentence, never a number."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from netvitals import curvature


class Centred(nn.Module):
    """Examples that see each other without any norm layer."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(3, 4), nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x):
        z = torch.tanh(self.a(x))
        return self.c(torch.tanh(self.b(z - z.mean(0))))


class Graph(nn.Module):
    """Two rounds of a graph convolution: rows are nodes of a graph, not examples."""

    def __init__(self, n):
        super().__init__()
        self.a, self.b = nn.Linear(3, 4), nn.Linear(4, 2)
        ring = torch.eye(n) + torch.roll(torch.eye(n), 1, 0)
        self.register_buffer("ring", ring / ring.sum(1, keepdim=True))

    def forward(self, x):
        return self.b(self.ring @ torch.tanh(self.a(self.ring @ x)))


def shared_hessian(net, nodes, x, y):
    """∂²L/∂ε² in float64, one ε at each node for all rows, and its Gauss–Newton part by the output's Jacobian."""
    sizes = [net.get_submodule(n)(torch.zeros(1, net.get_submodule(n).in_features).double()).shape[-1] for n in nodes]

    def run(eps):
        parts = dict(zip(nodes, eps.split(sizes)))
        hooks = [net.get_submodule(n).register_forward_hook(lambda m, a, o, e=e: o + e) for n, e in parts.items()]
        try:
            return net(x)
        finally:
            for hook in hooks:
                hook.remove()

    zero = torch.zeros(sum(sizes), dtype=torch.float64)
    h = torch.autograd.functional.hessian(lambda e: F.mse_loss(run(e), y), zero)
    j = torch.autograd.functional.jacobian(lambda e: run(e).reshape(-1), zero)
    gn = j.T @ j * 2 / y.numel()
    return h, gn, sizes


@pytest.mark.parametrize("method", ["exact", "stochastic"])
@pytest.mark.parametrize("make", [Centred, lambda: Graph(6)], ids=["batch mean", "graph"])
def test_rows_that_interact_are_noticed_and_the_blocks_are_right(make, method):
    torch.manual_seed(0)
    net, x, y = make().double(), torch.randn(6, 3).double(), torch.randn(6, 2).double()
    nodes = [n for n, _ in net.named_children()][:-1]
    found = curvature.between_layers(net, "mse", (x, y), nodes=nodes, method=method)
    h, gn, sizes = shared_hessian(net, nodes, x, y)
    at = torch.tensor([0, *sizes]).cumsum(0).tolist()
    for i in range(len(nodes)):
        for k in range(len(nodes)):
            block, part = (m[at[i] : at[i + 1], at[k] : at[k + 1]] for m in (h, gn))
            assert found.resonance[i, k] == pytest.approx(float(block.norm()), rel=1e-10)
            assert found.gn_gap[i, k] == pytest.approx(float((block - part).norm() / part.norm()), rel=1e-8)


def test_operators_of_rows_that_interact_are_the_blocks_of_the_dense_hessian():
    torch.manual_seed(0)
    net, x, y = Centred().double(), torch.randn(6, 3).double(), torch.randn(6, 2).double()
    h, gn, _ = shared_hessian(net, ["a", "b"], x, y)
    with curvature.operators(net, "mse", (x, y), nodes=["a", "b"], space="activation") as of:
        torch.testing.assert_close(of.whole().dense(), h, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(of.whole("GN").dense(), gn, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(of.block("a", "b").dense(), h[:4, 4:], rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(of.block("a", "b").dense(), of.block("b", "a").dense().mT)


def test_examples_that_interact_are_not_kept_apart():
    net, x, y = Centred(), torch.randn(6, 3), torch.randn(6, 2)
    for reduction in ("per_sample", "mean_of_norms"):
        with pytest.raises(ValueError, match="the output for one example depends on other"):
            curvature.between_layers(net, "mse", (x, y), nodes=["a", "b"], reduction=reduction)
    plain = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    assert curvature.between_layers(plain, "mse", (x, y), nodes=["0"], reduction="per_sample").examples == 6


def penalised():
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2)).double()
    x, y = torch.randn(6, 4).double(), torch.randn(6, 2).double()
    return net, lambda o, t: F.mse_loss(o, t) + sum((p**4).sum() for p in net.parameters()), x, y


def dense_hessian(net, loss, x, y):
    names, values = zip(*net.named_parameters())
    flat = torch.cat([v.detach().reshape(-1) for v in values])

    def f(w):
        parts = dict(zip(names, (p.view_as(v) for p, v in zip(w.split([v.numel() for v in values]), values))))
        return F.mse_loss(torch.func.functional_call(net, parts, (x,)), y) + loss(parts)

    return torch.autograd.functional.hessian(f, flat)


def test_a_penalty_on_parameters_is_in_h_and_its_gauss_newton_part():
    net, loss, x, y = penalised()
    wanted = dense_hessian(net, lambda parts: sum((p**4).sum() for p in parts.values()), x, y)
    flat = torch.cat([p.detach().flatten() for p in net.parameters()])
    with curvature.operators(net, loss, (x, y)) as of, curvature.operators(net, "mse", (x, y)) as plain:
        torch.testing.assert_close(of.whole("H").dense(), wanted, rtol=1e-10, atol=1e-12)
        gn = plain.whole("GN").dense() + torch.diag(12 * flat**2)  # of the map to (output, parameters)
        torch.testing.assert_close(of.whole("GN").dense(), gn, rtol=1e-10, atol=1e-12)
    assert curvature.trace(net, loss, (x, y), probes=4000).total == pytest.approx(float(wanted.trace()), rel=0.02)


def test_a_copy_in_another_dtype_is_what_the_loss_reads():
    net, loss, x, y = penalised()
    wanted = curvature.trace(net, loss, (x, y), probes=4)
    net.float()
    found = curvature.trace(net, loss, (x.float(), y.float()), probes=4, dtype=torch.float64)
    assert found.total == pytest.approx(wanted.total, rel=1e-4)
    assert all(p.dtype == torch.float32 for p in net.parameters())


class Auxiliary(nn.Module):
    """A loss term kept on a module, as routers do."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x):
        h = torch.tanh(self.a(x))
        self.kept = h.square().mean()
        return self.b(h)


def test_a_number_kept_on_a_module_curves_in_h_and_t():
    net, x, y = Auxiliary().double(), torch.randn(5, 3).double(), torch.randn(5, 2).double()
    loss = lambda o, t: F.mse_loss(o, t) + net.kept
    names, values = zip(*net.named_parameters())
    sizes = [v.numel() for v in values]

    def f(w):
        parts = dict(zip(names, (p.view_as(v) for p, v in zip(w.split(sizes), values))))
        h = torch.tanh(F.linear(x, parts["a.weight"], parts["a.bias"]))
        return F.mse_loss(F.linear(h, parts["b.weight"], parts["b.bias"]), y) + h.square().mean()

    wanted = torch.autograd.functional.hessian(f, torch.cat([v.detach().reshape(-1) for v in values]))
    with curvature.operators(net, loss, (x, y)) as of:
        torch.testing.assert_close(of.whole("H").dense(), wanted, rtol=1e-9, atol=1e-12)
        with curvature.operators(net, "mse", (x, y)) as plain:
            torch.testing.assert_close(of.whole("GN").dense(), plain.whole("GN").dense(), rtol=1e-9, atol=1e-12)


def weight_normed():
    torch.manual_seed(2)
    normed = torch.nn.utils.parametrizations.weight_norm(nn.Linear(4, 5))
    net = nn.Sequential(normed, nn.Tanh(), nn.Linear(5, 2)).double()
    return net, (torch.randn(6, 4).double(), torch.randn(6, 2).double())


MEASUREMENTS = {
    "trace": lambda n, b: curvature.trace(n, "mse", b),
    "trace T, hutchinson": lambda n, b: curvature.trace(n, "mse", b, part="T", method="hutchinson"),
    "diagonal": lambda n, b: curvature.diagonal(n, "mse", b),
    "diagonal, exact": lambda n, b: curvature.diagonal(n, "mse", b, method="exact"),
    "top_eigenvalues": lambda n, b: curvature.top_eigenvalues(n, "mse", b),
    "top_eigenvalues, batches": lambda n, b: curvature.top_eigenvalues(n, "mse", [b, b]),
    "spectral_density": lambda n, b: curvature.spectral_density(n, "mse", b),
    "influence": lambda n, b: curvature.influence(n, "mse", b, b, part="H", damping=10.0),
    "operators, whole": lambda n, b: curvature.operators(n, "mse", b).whole("H") @ torch.ones(42).double(),
    "operators, block": lambda n, b: curvature.operators(n, "mse", b).block("2.weight", "2.weight").dense(),
} | {
    f"between_layers, {how}": lambda n, b, how=how: curvature.between_layers(
        n, "mse", [b, b] if how.get("many") else b, space="parameter", **{k: v for k, v in how.items() if k != "many"}
    )
    for how in [
        {"method": "exact"},
        {"probes": 4},
        {"probes": 12},
        {"probes": 30},
        {"probes": 12, "plain": True},
        {"nodes": ["0", "2"]},
        {"probes": 4, "many": True},
    ]
}  # fmt: skip


@pytest.mark.parametrize("name", MEASUREMENTS)
def test_a_wrong_second_derivative_is_refused_by_every_method(name):
    net, batch = weight_normed()
    with pytest.raises(ValueError, match=r"not symmetric .*weight_norm"):
        MEASUREMENTS[name](net, batch)
    torch.nn.utils.parametrize.remove_parametrizations(net[0], "weight")
    if name != "operators, whole":  # which has other parameters then
        MEASUREMENTS[name](net, batch)


def test_gauss_newton_needs_first_derivatives_only_and_is_measured_through_weight_norm():
    net, batch = weight_normed()
    found = curvature.trace(net, "mse", batch, part="GN", method="hutchinson", probes=400)
    jacobian = torch.cat(
        [
            torch.cat([g.reshape(-1) for g in torch.autograd.grad(o, list(net.parameters()), retain_graph=True)])[None]
            for o in net(batch[0]).reshape(-1)
        ]
    )
    assert found.total == pytest.approx(float(jacobian.square().sum()) * 2 / batch[1].numel(), rel=0.05)


def test_group_norm_is_measured():
    """vmap's rule for its second derivative fails on shapes; products one by one have none of that."""
    torch.manual_seed(3)
    net = nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), nn.SiLU(), nn.Conv2d(4, 4, 3), nn.Flatten(), nn.Linear(16, 3)
    ).double()
    batch = torch.randn(3, 2, 6, 6).double(), torch.randint(0, 3, (3,))
    names, values = zip(*net.named_parameters())
    flat = torch.cat([v.detach().reshape(-1) for v in values])

    def f(w):
        parts = dict(zip(names, (p.view_as(v) for p, v in zip(w.split([v.numel() for v in values]), values))))
        return F.cross_entropy(torch.func.functional_call(net, parts, (batch[0],)), batch[1])

    wanted = torch.autograd.functional.hessian(f, flat)
    with curvature.operators(net, "ce", batch) as of:
        torch.testing.assert_close(of.whole().dense(), wanted, rtol=1e-9, atol=1e-11)
    assert curvature.between_layers(net, "ce", batch, probes=4).nodes


def test_a_loss_function_that_hands_on_the_models_own_loss_is_taken_for_what_it_is():
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        n_layer=1, n_head=1, n_embd=4, vocab_size=5, n_positions=4, bos_token_id=0, eos_token_id=0
    )
    gpt = transformers.GPT2LMHeadModel(config).double().eval()
    ids = torch.tensor([[0, 1, 2, 3], [3, 2, 1, 0]])
    own = curvature.trace(gpt, None, {"input_ids": ids, "labels": ids}, probes=4)
    handed = curvature.trace(gpt, lambda o, y: o.loss, ({"input_ids": ids, "labels": ids}, ids), probes=4)
    assert handed.total == pytest.approx(own.total, rel=1e-9)
    names, values = zip(*gpt.named_parameters())
    sizes = [v.numel() for v in values]

    def f(w):
        parts = dict(zip(names, (p.view_as(v) for p, v in zip(w.split(sizes), values))))
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            return torch.func.functional_call(gpt, parts, (), {"input_ids": ids, "labels": ids}).loss

    wanted = torch.autograd.functional.hessian(f, torch.cat([v.detach().reshape(-1) for v in values]))
    with curvature.operators(gpt, None, {"input_ids": ids, "labels": ids}) as of:
        torch.testing.assert_close(
            of.whole().dense(), wanted, rtol=1e-4, atol=1e-7
        )  # logits are cast to float32 inside
    split = curvature.between_layers(gpt, lambda o, y: o.loss, ({"input_ids": ids, "labels": ids}, ids), probes=4)
    assert split.nodes


class Positions(nn.Module):
    """A table of positions, nanoGPT style: it does not grow with the batch."""

    def __init__(self):
        super().__init__()
        self.tok, self.pos, self.head = nn.Embedding(11, 4), nn.Embedding(8, 4), nn.Linear(4, 11)

    def forward(self, ids):
        return self.head(torch.tanh(self.tok(ids) + self.pos(torch.arange(ids.shape[1]))))


@pytest.mark.parametrize("batch", [2, 4, 8])
def test_a_table_of_positions_is_one_tensor_whatever_the_batch(batch):
    torch.manual_seed(0)
    net, ids = Positions().double(), torch.randint(0, 11, (batch, 8))
    loss = lambda o, y: F.cross_entropy(o.flatten(0, 1), y.flatten())
    found = curvature.between_layers(net, loss, (ids, ids), nodes=["tok", "pos"], probes=40)
    assert found.sizes == (32, 32)
    eps = torch.zeros(8, 4, dtype=torch.float64)

    def f(e):
        handle = net.pos.register_forward_hook(lambda m, a, o: o + e)
        try:
            return loss(net(ids), ids)
        finally:
            handle.remove()

    wanted = torch.autograd.functional.hessian(f, eps).reshape(32, 32)
    assert found.resonance[1, 1] == pytest.approx(float(wanted.norm()), rel=1e-9)


class Second(nn.Module):
    """Only the second tensor that the body returns is used, as with BERT's pooled output or an LSTM's last state."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.LSTM(3, 4, batch_first=True), nn.Linear(4, 2)

    def forward(self, x):
        _, (state, _) = self.body(x)
        return self.head(torch.tanh(state[-1]))


def test_every_tensor_that_a_node_returns_is_perturbed_and_the_used_ones_count():
    torch.manual_seed(0)
    net, x, y = Second().double(), torch.randn(5, 6, 3).double(), torch.randn(5, 2).double()
    found = curvature.between_layers(net, "mse", (x, y), nodes=["body"], method="exact")
    assert found.sizes == (4,) and found.resonance[0, 0] > 0

    def f(e):
        with torch.no_grad():
            _, (state, _) = net.body(x)
        return F.mse_loss(net.head(torch.tanh(state[-1] + e)), y)

    wanted = torch.autograd.functional.hessian(f, torch.zeros(4, dtype=torch.float64))
    assert found.resonance[0, 0] == pytest.approx(float(wanted.norm()), rel=1e-9)


def test_a_sequence_first_layer_is_measured_with_its_examples_in_the_second_dimension():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0).double()
    net = nn.Sequential(layer, nn.Linear(4, 3)).double()
    x, y = torch.randn(6, 3, 4).double(), torch.randn(6, 3, 3).double()  # positions, examples, channels
    found = curvature.between_layers(net, "mse", (x, y), nodes=["0"], method="exact")
    assert found.examples == 3 and found.sizes == (24,)

    def f(e):
        with torch.no_grad():
            h = net[0](x)
        return F.mse_loss(net[1](h + e[:, None]), y)

    wanted = torch.autograd.functional.hessian(f, torch.zeros(6, 4, dtype=torch.float64)).reshape(24, 24)
    assert found.resonance[0, 0] == pytest.approx(float(wanted.norm()), rel=1e-9)
    with pytest.raises(ValueError, match="the output for one example depends on other"):
        curvature.between_layers(net, "mse", (x, y), nodes=["0"], reduction="per_sample")


def test_an_expert_that_sees_some_rows_is_measured_for_what_it_saw():
    class Routed(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.head = nn.Linear(3, 4), nn.Linear(3, 4), nn.Linear(4, 2)

        def forward(self, x):
            first = x[:, 0] > 0
            out = torch.zeros(len(x), 4, dtype=x.dtype)
            out = out.index_put((first,), torch.tanh(self.a(x[first])))
            return self.head(out.index_put((~first,), torch.tanh(self.b(x[~first]))))

    torch.manual_seed(0)
    net, x, y = Routed().double(), torch.randn(6, 3).double(), torch.randn(6, 2).double()
    x[:, 0] = torch.tensor([1.0, 2.0, -1.0, 3.0, -2.0, 4.0])
    found = curvature.between_layers(net, "mse", (x, y), nodes=["a", "b"], method="exact")
    assert found.sizes == (16, 8) and (found.resonance.diagonal() > 0).all()
    chosen = x[:, 0] > 0

    def f(e):  # what expert a gave to its four rows, moved
        out = torch.zeros(6, 4).double().index_put((chosen,), torch.tanh(net.a(x[chosen]) + e))
        return F.mse_loss(net.head(out.index_put((~chosen,), torch.tanh(net.b(x[~chosen])))), y)

    wanted = torch.autograd.functional.hessian(f, torch.zeros(4, 4).double()).reshape(16, 16)
    assert found.resonance[0, 0] == pytest.approx(float(wanted.norm()), rel=1e-9)


def test_a_block_that_vanishes_is_no_wrong_derivative():
    """A shift of what batch normalisation reads changes nothing: the block is rounding, which has no symmetry."""
    torch.manual_seed(4)
    net = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))
    batch = torch.randn(8, 5), torch.randint(0, 3, (8,))
    found = curvature.between_layers(net, "ce", batch, nodes=["1", "2", "4"], mode="train", probes=4)
    assert found.resonance[1, 1] < 1e-5 * found.resonance[2, 2]
