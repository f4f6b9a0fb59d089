"""Gated MLPs, experts, residual streams and the readers of norms, as dataflow shows them."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from netvitals.anatomy import chart


class Gated(nn.Module):
    def __init__(self, form="two", f=F.silu):
        super().__init__()
        self.form, self.f = form, f
        self.down, self.up, self.gate, self.both = nn.Linear(6, 4), nn.Linear(4, 6), nn.Linear(4, 6), nn.Linear(4, 12)

    def forward(self, x):
        if self.form == "two":
            return self.down(self.up(x) * self.f(self.gate(x)))
        if self.form == "fused":
            gate, up = self.both(x).chunk(2, -1)
            return self.down(self.f(gate) * up)
        return self.down(F.glu(self.both(x), -1))


def test_a_gated_mlp_is_found_with_two_matrices_with_one_and_as_a_glu():
    weights = lambda g: [str(g.gate), str(g.value), *map(str, g.out)]
    (two,) = chart(Gated(), torch.randn(3, 4)).gated
    assert weights(two) == ["gate.weight", "up.weight", "down.weight"] and two.text == "silu"
    (fused,) = chart(Gated("fused"), torch.randn(3, 4)).gated
    assert weights(fused) == ["both.weight[0:6]", "both.weight[6:12]", "down.weight"]
    assert str(fused.value.bias) == "both.bias[6:12]"
    (glu,) = chart(Gated("glu"), torch.randn(3, 4)).gated
    assert weights(glu) == ["both.weight[6:12]", "both.weight[0:6]", "down.weight"] and glu.text == "sigmoid"
    (bilinear,) = chart(Gated(f=lambda h: h), torch.randn(3, 4)).gated
    assert bilinear.activation == "" and {str(bilinear.gate), str(bilinear.value)} == {"gate.weight", "up.weight"}


def test_a_product_of_different_inputs_is_a_gate_but_no_gated_mlp():
    class Excite(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.squeeze, self.head = nn.Conv2d(3, 6, 3), nn.Linear(6, 6), nn.Conv2d(6, 2, 1)

        def forward(self, x):
            h = torch.relu(self.conv(x))
            return self.head(h * torch.sigmoid(self.squeeze(h.mean((2, 3))))[:, :, None, None])

    found = chart(Excite(), torch.randn(2, 3, 8, 8))
    assert len(found.gates) == 1 and not found.gated and not found.skipped
    assert [r.text for r in found.activations] == ["relu", "sigmoid"]


class Experts(nn.Module):
    """Four experts as modules, as a stack that is indexed, or as a stack that is multiplied at once."""

    def __init__(self, form):
        super().__init__()
        torch.manual_seed(0)
        self.form, self.router, self.head = form, nn.Linear(4, 4, bias=False), nn.Linear(4, 2)
        if form == "modules":
            self.experts = nn.ModuleList(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4)) for _ in range(4))
        else:
            self.first, self.second = nn.Parameter(torch.randn(4, 8, 4)), nn.Parameter(torch.randn(4, 4, 8))
        with torch.no_grad():
            self.router.weight[3] = 0.0
            self.router.weight[3, 0] = -100.0  # inputs have a positive first entry: nobody goes to the last expert

    def forward(self, x):
        weight, chosen = self.router(x).softmax(-1).topk(2, -1)
        out = torch.zeros_like(x)
        if self.form == "dense":
            every = torch.einsum("ech,enh->enc", self.second, torch.relu(torch.einsum("nc,ehc->enh", x, self.first)))
            mask = torch.zeros(len(x), 4).scatter(1, chosen, weight)
            return self.head((mask.T[:, :, None] * every).sum(0))
        for e in range(4):
            rows, slot = torch.where(chosen == e)
            if len(rows):
                h = x[rows]
                if self.form == "modules":
                    h = self.experts[e](h)
                else:
                    h = F.linear(torch.relu(F.linear(h, self.first[e])), self.second[e])
                out = out.index_add(0, rows, h * weight[rows, slot, None])
        return self.head(out)


@pytest.mark.parametrize("form", ["modules", "stack"])
def test_experts_know_their_parameters_and_their_tokens_and_one_without_tokens_is_named(form):
    x = torch.randn(10, 4, generator=torch.Generator().manual_seed(1)).abs()
    net = Experts(form)
    found = chart(net, x)
    (mixture,) = found.experts
    chosen = net.router(x).softmax(-1).topk(2, -1).indices
    assert mixture.tokens == tuple(int((chosen == e).sum()) for e in range(4)) and mixture.tokens[3] == 0
    assert (mixture.top_k, mixture.stacked, str(mixture.router)) == (2, form == "stack", "router.weight")
    assert torch.equal(found.tensors[mixture.chosen], chosen)
    names = [str(p) for p in mixture.experts[2].parameters]
    if form == "modules":
        assert names == [f"experts.2.{n}" for n in ("0.weight", "0.bias", "2.weight", "2.bias")]
        assert found.skipped == {f"experts.3.{k}": "did not run in this pass" for k in (0, 2)}
    else:
        assert names == ["first[2]", "second[2]"]
        assert torch.equal(mixture.experts[2].parameters[0].of(net.first), net.first[2])
    assert found.roles["router"] == "router" and [x.name for x in found.readouts] == ["head"]


def test_an_expert_that_is_called_with_no_tokens_is_an_expert_without_tokens():
    class Always(Experts):
        def forward(self, x):
            weight, chosen = self.router(x).softmax(-1).topk(2, -1)
            out = torch.zeros_like(x)
            for e, expert in enumerate(self.experts):
                rows, slot = torch.where(chosen == e)
                out = out.index_add(0, rows, expert(x[rows]) * weight[rows, slot, None])
            return self.head(out)

    found = chart(Always("modules"), torch.randn(10, 4).abs())
    assert found.experts[0].tokens[3] == 0 and not found.skipped
    assert [r.text for r in found.activations] == ["relu"] * 4


def test_a_stack_that_is_multiplied_at_once_is_a_mixture_with_all_tokens_everywhere():
    (mixture,) = chart(Experts("dense"), torch.randn(10, 4).abs()).experts
    assert mixture.tokens == (10, 10, 10, 10) and mixture.stacked


def test_a_choice_without_experts_is_no_mixture():
    class Sparse(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 6), nn.Linear(6, 2)

        def forward(self, x):
            h = self.a(x)
            top, at = h.topk(2, -1)
            return self.b(torch.zeros_like(h).scatter(-1, at, top))

    assert not chart(Sparse(), torch.randn(3, 4)).experts


class Residual(nn.Module):
    def __init__(self, form):
        super().__init__()
        self.form = form
        self.embed, self.head = nn.Linear(4, 6), nn.Linear(6, 2)
        self.norms = nn.ModuleList(nn.LayerNorm(6) for _ in range(4))
        self.up, self.down = (nn.ModuleList(nn.Linear(6, 6) for _ in range(3)) for _ in range(2))

    def forward(self, x):
        x = self.embed(x)
        for norm, up, down in zip(self.norms, self.up, self.down):
            if self.form == "pre":
                x = x + down(torch.relu(up(norm(x))))
            elif self.form == "post":
                x = norm(x + down(torch.relu(up(x))))
            elif self.form == "relu":
                x = torch.relu(x + down(torch.relu(up(x))))
            elif self.form == "decay":
                x = x + (down(torch.relu(up(norm(x)))) - 0.1 * x)
            else:
                x = x + up(norm(x)) + down(norm(x))
        return self.head(self.norms[3](x))


def test_a_stream_has_its_writers_readers_and_additions_in_order():
    found = chart(Residual("pre"), torch.randn(5, 4))
    (stream,) = found.streams
    assert stream.origin_writers == ("embed",) and stream.writers == ("down.0", "down.1", "down.2")
    assert stream.readers == tuple(f"norms.{i}" for i in range(4)) and stream.width == 6 and not stream.post_norm
    before = found.tensors[stream.origin]
    for addition in stream.additions:
        assert torch.equal(found.tensors[addition.before], before)
        before = before + found.tensors[addition.branch]
        assert torch.equal(found.tensors[addition.after], before)
    assert stream.states[-1] == stream.additions[-1].after and found.stream is stream


def test_streams_go_on_through_norms_and_activations_and_take_parallel_branches():
    post = chart(Residual("post"), torch.randn(5, 4))
    assert [len(s.additions) for s in post.streams] == [3] and post.stream.post_norm
    bent = chart(Residual("relu"), torch.randn(5, 4))
    assert [len(s.additions) for s in bent.streams] == [3] and not bent.stream.post_norm
    both = chart(Residual("parallel"), torch.randn(5, 4))
    assert [a.writers for a in both.stream.additions] == [(f"{n}.{i}",) for i in range(3) for n in ("up", "down")]


def test_a_branch_that_holds_the_stream_itself_is_written_by_its_own_layer_only():
    found = chart(Residual("decay"), torch.randn(5, 4))
    assert [a.writers for a in found.stream.additions] == [(f"down.{i}",) for i in range(3)]


@pytest.mark.parametrize("dims", [1, 2])
def test_the_width_of_a_stream_of_convolutions_is_that_of_its_channels(dims):
    kind = (nn.Conv1d, nn.Conv2d)[dims - 1]

    class Images(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem, self.conv = kind(3, 6, 3, padding=1), kind(6, 6, 3, padding=1)

        def forward(self, x):
            x = self.stem(x)
            return x + self.conv(torch.relu(x))

    assert chart(Images(), torch.randn(2, 3, *(8,) * dims)).stream.width == 6


def test_sums_of_branches_and_hand_made_gates_are_no_stream():
    class Sums(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = nn.Linear(4, 6), nn.Linear(4, 6), nn.Linear(6, 6)

        def forward(self, x):
            h, n = torch.relu(self.a(x) + self.b(x)), torch.tanh(self.a(x))
            z = torch.sigmoid(self.c(h))
            return n + z * (h - n)

    assert not chart(Sums(), torch.randn(3, 4)).streams


def test_the_readers_of_every_norm_are_found_in_the_one_pass():
    found = chart(Residual("pre"), torch.randn(5, 4))
    assert [(c.writer, c.readers, c.clean) for c in found.norm_readers] == [
        *((f"norms.{i}", (f"up.{i}",), True) for i in range(3)),
        ("norms.3", ("head",), True),
    ]
    assert found.passes <= 4
    post = {c.writer: c for c in chart(Residual("post"), torch.randn(5, 4)).norm_readers}
    assert post["norms.0"].readers == ("up.1",) and not post["norms.0"].clean


def test_norms_written_out_have_the_input_the_output_and_the_scale_of_the_whole_norm():
    class RMS(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(6))

        def forward(self, x):
            wide = x.float()
            return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.g, self.b = nn.Parameter(torch.randn(6)), nn.Parameter(torch.randn(6))

        def forward(self, x):
            centred = x - x.mean(-1, keepdim=True)
            return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * self.g + self.b

    for norm, kind, weight, bias in ((RMS(), "rms", "1.weight", ""), (Layer(), "layer", "1.g", "1.b")):
        net = nn.Sequential(nn.Linear(4, 6), norm, nn.Linear(6, 2))
        x = torch.randn(5, 4)
        found = chart(net, x)
        (seen,) = found.norms
        assert (seen.name, seen.kind, seen.weight, seen.bias) == ("1", kind, weight, bias)
        assert torch.allclose(found.tensors[seen.input], net[0](x)) and torch.allclose(
            found.tensors[seen.output], net[:2](x), atol=1e-6
        )
        assert found.norm_readers[0].readers == ("2",) and found.norm_readers[0].clean and not found.activations


def test_unit_vectors_by_functional_normalize_are_a_norm():
    class Unit(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 6), nn.Linear(6, 2)

        def forward(self, x):
            return self.b(F.normalize(self.a(x), dim=-1))

    found = chart(Unit(), torch.randn(5, 4))
    assert [n.kind for n in found.norms] == ["rms"] and not found.activations and not found.skipped


def test_stacked_experts_of_a_language_model_count_the_tokens_that_the_router_sent():
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = transformers.MixtralConfig(**sizes, num_key_value_heads=2, vocab_size=40, num_local_experts=4)
    found = chart(transformers.MixtralForCausalLM(config), {"input_ids": torch.randint(1, 40, (3, 7))})
    for mixture in found.experts:
        sent = torch.bincount(found.tensors[mixture.chosen].flatten(), minlength=4)
        assert mixture.tokens == tuple(sent.tolist()) and sum(mixture.tokens) == 3 * 7 * 2 and mixture.stacked
