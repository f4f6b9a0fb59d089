"""Random compositions of parts train the same with and without a watch, bit for bit."""

import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import netvitals as nv

WIDTH = 12


class Of(nn.Module):
    """A part that is a function."""

    def __init__(self, f):
        super().__init__()
        self.f = f

    def forward(self, x):
        return self.f(x)


class Residual(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return x + self.inner(x)


class Twice(Residual):
    def forward(self, x):
        return self.inner(self.inner(x))


class Checkpointed(Residual):
    def __init__(self, inner, reentrant):
        super().__init__(inner)
        self.reentrant = reentrant

    def forward(self, x):
        return checkpoint(self.inner, x, use_reentrant=self.reentrant)


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return F.silu(self.a(x)) * self.b(x)


class Noisy(nn.Module):
    """Draws from everywhere and counts."""

    def __init__(self):
        super().__init__()
        self.calls = 0
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        self.seen += 1
        return x * (1 + 0.1 * np.random.rand()) + 0.1 * random.random() + 0.01 * torch.randn_like(x) + 0.01 * self.seen


class Attending(nn.Module):
    def __init__(self, need_weights):
        super().__init__()
        self.attention, self.need = nn.MultiheadAttention(WIDTH, 3, batch_first=True), need_weights

    def forward(self, x):
        return self.attention(x[:, None], x[:, None], x[:, None], need_weights=self.need)[0][:, 0]


class Encoder(nn.Module):
    def __init__(self, frozen):
        super().__init__()
        self.layer, self.frozen = nn.TransformerEncoderLayer(WIDTH, 2, 16, batch_first=True), frozen
        if frozen:
            self.layer.requires_grad_(False).eval()

    def forward(self, x):
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            return self.layer(x.reshape(4, -1, WIDTH)).reshape(x.shape) + x


class Experts(nn.Module):
    """A mixture in which an expert may get nothing."""

    def __init__(self):
        super().__init__()
        self.router, self.experts = nn.Linear(WIDTH, 3), nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, x):
        weight, chosen = self.router(x).softmax(-1).max(-1)
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            rows = torch.where(chosen == i)[0]
            if len(rows):
                out = out.index_add(0, rows, torch.relu(expert(x[rows])) * weight[rows, None])
        return out


class Sometimes(nn.Module):
    """Takes another way now and then."""

    def __init__(self):
        super().__init__()
        self.layer, self.calls = nn.Linear(WIDTH, WIDTH), 0

    def forward(self, x):
        self.calls += 1
        h = self.layer(x)
        return h.clamp(0, 6) if self.calls % 3 else h * torch.sigmoid(h)


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.cell = kind(3, WIDTH, batch_first=True)

    def forward(self, x):
        return self.cell(x.reshape(len(x), -1, 3))[0][:, -1]


PARTS = [
    lambda: nn.Linear(WIDTH, WIDTH),
    lambda: nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(inplace=True)),
    lambda: nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()),
    lambda: nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.RReLU()),
    lambda: nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.PReLU(WIDTH)),
    lambda: Of(lambda x: torch.where(x > 0, x, 0.1 * x)),
    lambda: Of(lambda x: x * torch.sigmoid(x)),
    lambda: Of(lambda x: x.clone().clamp_(-1, 1)),
    lambda: Of(lambda x: F.rrelu(x, training=True)),
    lambda: Of(lambda x: F.dropout(x, 0.3)),
    lambda: nn.Dropout(0.2),
    lambda: nn.LayerNorm(WIDTH),
    lambda: nn.BatchNorm1d(WIDTH),
    lambda: nn.utils.parametrizations.weight_norm(nn.Linear(WIDTH, WIDTH)),
    lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(WIDTH, WIDTH)),
    lambda: Residual(nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), nn.Tanh())),
    lambda: Twice(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.SiLU())),
    lambda: Checkpointed(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Dropout(0.1), nn.ReLU()), False),
    lambda: Checkpointed(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()), True),
    Gated,
    Noisy,
    lambda: Attending(True),
    lambda: Attending(False),
    lambda: Encoder(False),
    lambda: Encoder(True),
    Experts,
    Sometimes,
    lambda: Recurrent(nn.GRU),
    lambda: Recurrent(nn.LSTM),
    lambda: Of(lambda x: x.softmax(-1) * x),
    lambda: Of(lambda x: (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1)),
]


def build(seed):
    draw = random.Random(seed)
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(8, WIDTH), *(draw.choice(PARTS)() for _ in range(5)), nn.Linear(WIDTH, 3))


def train(seed, every=None):
    model = build(seed)
    torch.manual_seed(seed), np.random.seed(seed), random.seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    names = ["default", "attention", "experts"]
    watching = None if every is None else nv.watch(model, optimizer=optimizer, every=every, vitals=names)
    losses = []
    for _ in range(5):
        loss = F.cross_entropy(model(torch.randn(16, 8)), torch.randint(0, 3, (16,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        if watching is not None:
            watching.step(loss)
    if watching is not None:
        watching.close()
    counts = [m.calls for m in model.modules() if isinstance(m, Noisy | Sometimes)]
    state = [*losses, *model.state_dict().values(), torch.get_rng_state()]
    return state, (counts, np.random.rand(), random.random()), watching


@pytest.mark.parametrize("every", [1, 2])
@pytest.mark.parametrize("seed", range(40))
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_a_watched_model_trains_the_same(seed, every, caplog):
    bare, drawn, _ = train(seed)
    again, _, _ = train(seed)
    if not all(torch.equal(a, b) for a, b in zip(bare, again, strict=True)):
        pytest.skip("this model does not repeat itself")
    seen, then, watching = train(seed, every)
    different = [i for i, (a, b) in enumerate(zip(bare, seen, strict=True)) if not torch.equal(a, b)]
    assert different == [] and then == drawn
    assert not caplog.records, "a failure of ours, which a warning turned into an error leaves in the log"
    assert {r.step for r in watching.measurements if r.vital == "preactivations"} <= set(range(0, 5, every))
