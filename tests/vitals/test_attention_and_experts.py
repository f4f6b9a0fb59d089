"""Scores, entropy and sinks of attention heads, and the load of experts, against exact twins in double precision."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv
from netvitals.vitals import AttentionVital, ExpertsVital


class Block(nn.Module):
    """One attention block; keeps what it attended with."""

    def __init__(self, way, heads=4, groups=4, width=32):
        super().__init__()
        self.way, self.heads, self.groups, self.size = way, heads, groups, width // heads
        self.q, self.o = nn.Linear(width, width), nn.Linear(width, width)
        self.k, self.v = (nn.Linear(width, groups * self.size) for _ in range(2))

    def forward(self, x):
        split = lambda t, n: t.view(len(x), -1, n, self.size).transpose(1, 2)
        q, k, v = split(self.q(x), self.heads), split(self.k(x), self.groups), split(self.v(x), self.groups)
        self.seen = q, k, v
        return self.o(self.way(q, k, v).transpose(1, 2).flatten(2))


def causal_mask(q, k):
    return torch.full((q.shape[2], k.shape[2]), -torch.inf).triu(1)


def written_out(q, k, v):
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1).bool(), -torch.inf)
    return scores.softmax(-1) @ v


WAYS = {
    "fused": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v), False, 4),
    "fused and causal": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), True, 4),
    "fused with a mask": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=causal_mask(q, k)),
        True,
        4,
    ),
    "grouped": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True), True, 2),
    "written out": (written_out, True, 4),
}


def twin(q, k, v, causal):
    """All numbers by head from the whole map, in double precision."""
    q, k, v = (t.detach().double() for t in (q, k, v))
    k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
    s = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    allowed = torch.ones(s.shape[-2:]).tril().bool() if causal else torch.ones(s.shape[-2:]).bool()
    s = s.masked_fill(~allowed, -torch.inf)
    p = s.softmax(-1)
    n = allowed.sum(-1)
    h = -(p * p.clamp(min=1e-300).log()).sum(-1)
    rows = n > 1
    return {
        "max_logit": s.amax((0, 2, 3)),
        "entropy": (h[..., rows] / n[rows].double().log()).mean((0, 2)),
        "first_token": p[..., rows, 0].mean((0, 2)),
        "q_norm": q.norm(dim=-1).mean((0, 2)),
        "k_norm": k.norm(dim=-1).mean((0, 2)),
        "v_norm": v.norm(dim=-1).mean((0, 2)),
    }


def watch(model, x, vitals, steps=2):
    with nv.watch(model, every=1, vitals=vitals) as watching:
        for _ in range(steps):
            model(x).square().mean().backward()
            watching.step()
    return watching


@pytest.mark.parametrize("rows", [1, 40, 1 << 22])
@pytest.mark.parametrize("way", WAYS)
def test_every_number_equals_that_of_the_whole_map(way, rows):
    torch.manual_seed(0)
    attend, causal, groups = WAYS[way]
    model, x = Block(attend, groups=groups), 2 * torch.randn(3, 10, 32)
    vital = AttentionVital(block=rows)
    vital.every = 1
    watching = watch(model, x, [vital], steps=3)
    exact = twin(*model.seen, causal)
    (site,) = [s.name for s in watching.sites if s.kind == "heads"]
    arrays = {a.metric: a.value for a in watching.arrays if a.site == site}
    for metric, value in exact.items():
        assert arrays[metric] == pytest.approx(value.numpy(), rel=1e-4), metric
    for metric, value in {
        "max_logit": exact["max_logit"].max(),
        "entropy": exact["entropy"].mean(),
        "entropy_min": exact["entropy"].min(),
        "first_token": exact["first_token"].mean(),
        "sink_heads": (exact["first_token"] > 0.3).double().mean(),
    }.items():
        read = [r.value for r in watching.measurements if (r.site, r.metric) == (site, metric)]
        assert read == pytest.approx([float(value)] * 3, rel=1e-4), metric


@pytest.mark.parametrize("need_weights", [True, False])
def test_the_attention_module_of_torch(need_weights):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention, self.head = nn.MultiheadAttention(16, 2, batch_first=True), nn.Linear(16, 2)

        def forward(self, x):
            return self.head(self.attention(x, x, x, need_weights=need_weights)[0])

    torch.manual_seed(0)
    model, x = Net(), torch.randn(3, 5, 16)
    watching = watch(model, x, ["attention"])
    q, k, v = F.linear(x, model.attention.in_proj_weight, model.attention.in_proj_bias).chunk(3, -1)
    exact = twin(*(t.view(3, 5, 2, 8).transpose(1, 2) for t in (q, k, v)), causal=False)
    read = {r.metric: r.value for r in watching.measurements if r.site == "model"}
    assert read["max_logit"] == pytest.approx(float(exact["max_logit"].max()), rel=1e-4)
    assert read["entropy"] == pytest.approx(float(exact["entropy"].mean()), rel=1e-4)
    assert read["first_token"] == pytest.approx(float(exact["first_token"].mean()), rel=1e-4)
    assert read["q_norm"] == pytest.approx(float(exact["q_norm"].mean()), rel=1e-4)


def found(model, x, vitals, steps, rule):
    with nv.watch(model, every=1, vitals=vitals) as watching:
        for _ in range(steps):
            model(x).square().mean().backward()
            watching.step()
    return [f for f in watching.findings().all if f.rule == rule]


def test_exploding_scores_are_told_and_ordinary_ones_are_not():
    torch.manual_seed(0)
    vitals = lambda: [AttentionVital()]
    model, x = Block(WAYS["fused and causal"][0]), torch.randn(3, 10, 32)
    assert found(model, x, vitals(), 6, "logit explosion") == []
    with torch.no_grad():
        model.q.weight.mul_(60)
        model.k.weight.mul_(20)
    (finding,) = found(model, x, vitals(), 6, "logit explosion")
    assert finding.severity in ("warning", "critical") and "explode" in finding.what


def test_heads_that_look_at_one_key_are_told_unless_it_is_the_first():
    torch.manual_seed(0)
    model, x = Block(WAYS["fused"][0]), torch.randn(4, 16, 32)
    assert found(model, x, [AttentionVital()], 6, "attention collapse") == []
    with torch.no_grad():
        model.q.weight.mul_(60)
        model.k.weight.mul_(60)
    (finding,) = found(model, x, [AttentionVital()], 6, "attention collapse")
    assert finding.severity == "warning"
    with torch.no_grad():  # all heads rest on the first token
        model.q.weight.zero_(), model.q.bias.fill_(1.0)
        model.k.weight.zero_(), model.k.bias.zero_()
        model.k.weight[:, 0] = 30.0
        x = x.clone()
        x[:, :, 0] = 0.0
        x[:, 0, 0] = 10.0
    assert found(model, x, [AttentionVital()], 6, "attention collapse") == []


class Mixture(nn.Module):
    """Each token goes to the best two of six experts."""

    def __init__(self, stacked=False, scores="softmax"):
        super().__init__()
        self.router, self.scores, self.stacked = nn.Linear(8, 6), scores, stacked
        if stacked:
            self.weight = nn.Parameter(0.3 * torch.randn(6, 8, 8))
        else:
            self.experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(6))
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        self.logits = self.router(x)
        p = self.logits.softmax(-1) if self.scores == "softmax" else self.logits
        weights, chosen = p.topk(2, -1)
        weights = weights if self.scores == "softmax" else weights.softmax(-1)
        self.chosen = chosen
        if self.stacked:
            made = torch.einsum("bki,bkio->bko", x[:, None].expand(-1, 2, -1), self.weight[chosen])
            return self.head((made * weights[..., None]).sum(1))
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            rows, place = torch.where(chosen == i)
            out = out.index_add(0, rows, expert(x[rows]) * weights[rows, place, None])
        return self.head(out)


@pytest.mark.parametrize(("stacked", "scores"), [(False, "softmax"), (False, "logits"), (True, "softmax")])
def test_the_load_of_experts_equals_its_definition(stacked, scores):
    torch.manual_seed(1)
    model, x = Mixture(stacked, scores), torch.randn(50, 8)
    vital = ExpertsVital()
    vital.every = 1
    watching = watch(model, x, [vital], steps=3)
    (site,) = [s.name for s in watching.sites if s.kind == "router"]
    share = torch.bincount(model.chosen.flatten(), minlength=6).double() / 100
    p = model.logits.detach().double().softmax(-1)
    load = float(-(share[share > 0] * share[share > 0].log()).sum())
    ordered = p.sort(-1, descending=True).values
    exact = {
        "load_entropy": load / math.log(6),
        "effective": math.exp(load),
        "dead": float((share == 0).sum()),
        "hot": float(share.max()) * 6,
        "router_entropy": float(-(p * p.log()).sum(-1).mean()) / math.log(6),
        "margin": float((ordered[:, 1] - ordered[:, 2]).mean()),
    }
    for metric, value in exact.items():
        read = [r.value for r in watching.measurements if (r.site, r.metric) == (site, metric)]
        assert read == pytest.approx([value] * 3, rel=1e-4), metric
    (array,) = [a.value for a in watching.arrays if (a.site, a.metric) == (site, "share")]
    assert array == pytest.approx(share.numpy(), rel=1e-5)


def test_dead_and_hot_experts_are_told_and_a_balanced_load_is_not():
    torch.manual_seed(1)
    model, x = Mixture(), torch.randn(200, 8)
    with torch.no_grad():
        model.router.bias.zero_()
    assert (
        found(model, x, [ExpertsVital()], 8, "dead experts")
        == found(model, x, [ExpertsVital()], 8, "hot experts")
        == []
    )
    with torch.no_grad():
        model.router.bias[:4] -= 100.0
    (dead,) = found(model, x, [ExpertsVital()], 8, "dead experts")
    assert dead.severity == "critical" and "4 of" in dead.what
    (hot,) = found(model, x, [ExpertsVital()], 8, "hot experts")
    assert hot.severity == "warning" and "gets 3.0 times an equal share" in hot.what


def test_the_model_has_the_dead_of_all_routers_and_the_hottest_expert():
    torch.manual_seed(1)
    model = nn.Sequential(Mixture(), nn.Linear(2, 8), Mixture())
    with torch.no_grad():
        model[0].router.bias[:3] -= 100.0
        model[2].router.bias[:4] -= 100.0
    watching = watch(model, torch.randn(50, 8), [ExpertsVital()], steps=1)
    read = {(r.site, r.metric): r.value for r in watching.measurements}
    sites = [s.name for s in watching.sites if s.kind == "router"]
    assert len(sites) == 2 and [read[site, "dead"] for site in sites] == [3, 4]
    assert read["model", "dead"] == 7
    assert read["model", "hot"] == max(read[site, "hot"] for site in sites) == pytest.approx(3.0)
    mean = sum(read[site, "effective"] for site in sites) / 2
    assert read["model", "effective"] == pytest.approx(mean, rel=1e-6)
