"""The readout where λ and m are known: dead units, rotated bottlenecks, units that are one, dead head channels."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from netvitals.singular import readout, rlct_reduced_rank


def answers(found):
    return found.limit.lam, found.limit.m


def limits(*args, **options):
    """A readout of the limits for many samples: nothing is sampled."""
    return readout(*args, **options, chains=0)


class Product(nn.Module):
    """a · tanh(b x) with both weights zero."""

    def __init__(self, activation=torch.tanh):
        super().__init__()
        self.b, self.a, self.activation = nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False), activation
        nn.init.zeros_(self.b.weight)
        nn.init.zeros_(self.a.weight)

    def forward(self, x):
        return self.a(self.activation(self.b(x)))


def test_a_dead_unit_is_a_crossing_and_not_a_ray():
    found = readout(Product(), "mse", torch.randn(50, 1))
    (hit,) = found.of("singular")
    assert answers(found) == (0.5, 2) and (hit.own.lam, hit.own.m) == (0.5, 2)
    assert "λ = 0.5, m = 2" in str(found) and "0.25" not in str(found)
    n = 10_000  # λ log n − (m − 1) log log n
    assert found.triple.free_energy(n) == pytest.approx(0.5 * math.log(n) - math.log(math.log(n)))
    assert found.triple.free_energy(n, entropy=2.0) == pytest.approx(20_000 + found.triple.free_energy(n))
    assert "n S + 2.385 nats" in str(found)


def test_a_dead_relu_has_a_kink_and_is_resolved_by_its_anchored_rays():
    found = readout(Product(torch.relu), "mse", torch.randn(50, 1))
    (hit,) = found.of("singular")
    assert (hit.own.lam, hit.own.m, hit.own.sheets) == (0.5, 2, (1, 1))


@pytest.mark.parametrize("sizes", [(4, 3, 4, 2), (5, 3, 2, 1)])
def test_reduced_rank_in_a_rotated_hidden_basis(sizes):
    n_in, hidden, n_out, rank = sizes
    torch.manual_seed(1)
    turn = torch.linalg.qr(torch.randn(hidden, hidden))[0]
    a, b = torch.randn(hidden, n_in), torch.randn(n_out, hidden)
    a[rank:], b[:, rank:] = 0, 0
    net = nn.Sequential(nn.Linear(n_in, hidden, bias=False), nn.Linear(hidden, n_out, bias=False))
    with torch.no_grad():
        net[0].weight.copy_(turn @ a)
        net[1].weight.copy_(b @ turn.T)
    found = limits(net, "mse", torch.randn(80, n_in))
    assert any(c.kind == "hidden direction" for c in found.of("singular")), str(found)
    if hidden - rank == 1:
        assert answers(found) == rlct_reduced_rank(*sizes), str(found)
    else:  # two dead directions at once are not two crossing sheets: said, not guessed
        assert found.triple is None and "not determined, because" in str(found)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_two_identical_tanh_units_are_one_of_order_two(sign):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4, bias=False), nn.Tanh(), nn.Linear(4, 1, bias=False))
    with torch.no_grad():
        net[0].weight[2] = sign * net[0].weight[0]
    found = limits(net, "mse", torch.randn(100, 3))
    merge = next(c for c in found.of("singular") if c.kind == "merge")
    assert "units 0 and 2" in merge.name and merge.scan.order == 2
    assert answers(found) == (12 / 2 + 3 / 4, 1), str(
        found
    )  # three directions apart, each u⁴; the sum of columns is live


class Attention(nn.Module):
    """One block with a fused projection and torch's fused attention; heads may share keys and values."""

    def __init__(self, d=8, heads=2, kv=2, bias=True):
        super().__init__()
        self.sizes, self.norm = [heads * (d // heads), kv * (d // heads), kv * (d // heads)], nn.LayerNorm(d)
        self.heads, self.kv = heads, kv
        self.qkv, self.out, self.head = nn.Linear(d, sum(self.sizes), bias), nn.Linear(d, d), nn.Linear(d, 5)

    def forward(self, x):
        each = zip(self.qkv(self.norm(x)).split(self.sizes, -1), (self.heads, self.kv, self.kv))
        q, k, v = (t.unflatten(-1, (heads, -1)).transpose(1, 2) for t, heads in each)
        k, v = (t.repeat_interleave(self.heads // self.kv, 1) for t in (k, v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        return self.head(x + self.out(mixed))


def test_a_dead_value_channel_in_a_fused_projection():
    torch.manual_seed(0)
    net = Attention()
    with torch.no_grad():
        net.qkv.weight[16 + 5], net.qkv.bias[16 + 5], net.out.weight[:, 5] = 0, 0, 0
    found = limits(net, "ce", torch.randn(40, 6, 8))
    (hit,) = found.of("singular")
    assert "values → output, head 1" in hit.name and hit.scan.order == 2
    # 7 varying inputs and a constant, 4 channels of which 3 live, 4 logits that cross-entropy sees
    assert (hit.own.lam, hit.own.m) == rlct_reduced_rank(8, 4, 4, 3), str(hit)
    assert found.triple is None and "whole model: λ not determined, because" in str(found)
    named = {n for n, _ in net.named_parameters()}
    moved = {n for c in found.candidates for n in c.direction}
    assert all(n in moved or n in found.skipped or n.rpartition(".")[0] in found.skipped for n in named)


def test_a_dead_channel_of_values_that_two_heads_share():
    torch.manual_seed(0)
    net = Attention(heads=4, kv=2, bias=False)  # a constant would pass all heads alike
    with torch.no_grad():  # channel 1 of the second pair of heads: value row 3, read at columns 5 and 7
        net.qkv.weight[12 + 3], net.out.weight[:, [5, 7]] = 0, 0
    found = limits(net, "ce", torch.randn(40, 6, 8), units=2, only=["qkv", "out"])
    (hit,) = found.of("singular")
    assert "values → output, heads 2 to 3" in hit.name and hit.scan.order == 2
    # 7 varying inputs, 2 channels of which 1 lives, 4 logits through each of two heads
    assert (hit.own.lam, hit.own.m) == rlct_reduced_rank(7, 2, 8, 1), str(hit)
    assert any("queries · keys, heads 0 to 1" in c.name for c in found.candidates)


def test_a_dead_unit_of_a_gated_expert_that_shares_its_tensor():
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": 11, "hidden_size": 8, "intermediate_size": 6, "num_hidden_layers": 1, "num_local_experts": 2}
    config = transformers.MixtralConfig(**sizes, num_attention_heads=2, num_key_value_heads=1, num_experts_per_tok=1)
    torch.manual_seed(0)
    net = transformers.MixtralForCausalLM(config)
    experts = net.model.layers[0].mlp.experts
    with torch.no_grad():
        for p in experts.parameters():
            p.mul_(20)
        experts.gate_up_proj[1, 6 + 4], experts.down_proj[1, :, 4] = 0, 0
    chosen = net.config._experts_implementation
    found = limits(net, "ce", {"input_ids": torch.randint(0, 11, (16, 6))}, units=1, only="*experts")
    (hit,) = [c for c in found.of("singular") if "joint" in c.kind]
    assert hit.name.endswith("gate_up_proj[1, 6:12] → model.layers.0.mlp.experts.down_proj[1], unit 4"), hit.name
    assert hit.scan.order == 2 and (hit.own.lam, hit.own.m) == (4.0, 2), str(hit)  # two sheets of codimension 8
    assert net.config._experts_implementation == chosen


class Wordy(nn.Module):
    """Takes a dict and gives a dict with several tensors."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, batch):
        hidden = torch.tanh(self.up(batch["features"]))
        return {"hidden": hidden, "output": self.down(hidden)}


def test_dicts_go_in_and_come_out_and_a_loader_is_taken():
    torch.manual_seed(0)
    batch = {"features": torch.randn(40, 3), "labels": torch.randint(0, 2, (40,))}
    found = limits(Wordy(), "ce", batch)
    assert found.candidates and str(limits(Wordy(), "ce", [batch, batch]).limit.parameters) == "26"

    class Odd(Wordy):
        def forward(self, batch):
            return {"hidden": torch.zeros(40, 1), "values": super().forward(batch)["output"]}

    with pytest.raises(ValueError, match=r"2 tensors \(hidden, values\)"):
        limits(Odd(), "ce", batch)


def test_silent_units_are_passed_over_and_the_list_is_full():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 12), nn.ReLU(), nn.Linear(12, 2))
    with torch.no_grad():
        net[0].bias[:6] = -100.0
        net[0].weight[8], net[0].bias[8], net[2].weight[:, 8] = 0, 0, 0
    found = limits(net, "mse", torch.randn(60, 3), units=4)
    modes = [c for c in found.candidates if c.kind == "joint mode"]
    assert len(modes) == 4 and modes[0].name == "0 → 2, unit 8" and modes[0].verdict == "singular"
    assert all(int(c.name.split()[-1]) >= 6 for c in modes)  # the first six are shut
    assert "6 shut on the whole batch" in next(iter(found.skipped.values()))
    (own,) = [c.own for c in modes if c.own is not None]
    assert (own.lam, own.m) == (0.0, 1) and "open cone" in str(own)  # its bias can shut it on every sample


def test_a_straight_way_along_a_curved_gauge_orbit_is_no_singular_direction():
    """Scaling a row up and its column down leaves the orbit at second order; other weights undo that."""
    from netvitals.singular.orders.neighbourhood import local_coefficient

    x = torch.randn(60, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    linear = lambda th: (x @ th[:3])[:, None] * th[3:]
    found = local_coefficient(linear, torch.tensor([1.0, 2.0, -1.0, 0.5, 1.5], dtype=torch.float64))
    assert (found.rank, found.fibre, found.singular, found.lam) == (4, 1, 0, 2.0), str(found)


class Experts(nn.Module):
    """Three experts of five tanh units, two a token: as modules, or in tensors that they share."""

    def __init__(self, held):
        super().__init__()
        torch.manual_seed(0)
        self.held, self.router = held, nn.Linear(6, 3)
        up, down = 0.5 * torch.randn(3, 6, 5), 0.5 * torch.randn(3, 5, 4)
        up[1, :, 2], down[1, 2] = 0, 0
        if held == "modules":
            make = lambda w: nn.utils.skip_init(nn.Linear, *w.shape, bias=False)
            self.experts = nn.ModuleList(nn.Sequential(make(a), nn.Tanh(), make(b)) for a, b in zip(up, down))
            for expert, a, b in zip(self.experts, up, down):
                expert[0].weight.data, expert[2].weight.data = a.T.clone(), b.T.clone()
        else:
            self.up, self.down = nn.Parameter(up), nn.Parameter(down)

    def forward(self, x):
        weight, chosen = self.router(x).softmax(-1).topk(2)
        share = torch.zeros(len(x), 3, dtype=x.dtype).scatter(1, chosen, weight)
        if self.held == "modules":
            return sum(share[:, e, None] * expert(x) for e, expert in enumerate(self.experts))
        if self.held == "einsum":
            hidden = torch.einsum("ni,eih->enh", x, self.up).tanh()
        else:
            hidden = torch.bmm(x.expand(3, *x.shape), self.up).tanh()
        return (torch.bmm(hidden, self.down) * share.T[..., None]).sum(0)


@pytest.mark.parametrize("held", ["modules", "bmm", "einsum"])
def test_a_dead_unit_of_one_expert_is_found(held):
    found = limits(Experts(held), "mse", torch.randn(64, 6))
    (hit,) = found.of("singular")
    name = "experts.1.0 → experts.1.2, unit 2" if held == "modules" else "up[1] → down[1], unit 2"
    assert hit.name == name and (hit.own.lam, hit.own.m) == (2.0, 1), str(found)  # sheets of codimension 6 and 4
    tried = {c.name.split("[")[1][0] for c in found.candidates if "[" in c.name}
    assert held == "modules" or tried == {"0", "1", "2"}, tried
