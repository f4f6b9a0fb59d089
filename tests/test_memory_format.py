"""No measurement changes the strides of what a user's layers are given.

Strides decide which kernel runs, and kernels differ in the last bits: a layer that is handed another memory format on a
measured step may train differently.
"""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv
from netvitals import curvature, drift, gates, saddle, singular

BATCH = 6


class CNN(nn.Module):
    """3×3, then 1×1 with stride 2, each with a norm; a residual step; a pool whose output has ambiguous strides.

    Sixteen channels: with fewer than a vector holds, torch 2.13 itself writes past the end of a buffer in the weight
    gradient of a channels-last 1×1 convolution of stride 2, with or without netvitals.
    """

    def __init__(self, channels):
        super().__init__()
        self.first, self.norm1 = nn.Conv2d(channels, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.act1 = nn.ReLU(inplace=True)
        self.down, self.norm2, self.act2 = nn.Conv2d(16, 16, 1, stride=2), nn.BatchNorm2d(16), nn.GELU()
        self.thin, self.act3 = nn.Conv2d(16, 1, 1), nn.Tanh()
        self.wide = nn.Conv2d(1, 16, 3, padding=1)
        self.pool, self.flat, self.head = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 3)

    def forward(self, x):
        x = self.act2(self.norm2(self.down(self.act1(self.norm1(self.first(x))))))
        x = x + self.wide(self.act3(self.thin(x)))
        return self.head(self.flat(self.pool(x)))


def contiguous():
    return CNN(3), torch.randn(BATCH, 3, 8, 8)


def channels_last():
    return CNN(3).to(memory_format=torch.channels_last), torch.randn(BATCH, 3, 8, 8).to(
        memory_format=torch.channels_last
    )


def mixed():
    return CNN(3), torch.randn(BATCH, 3, 8, 8).to(memory_format=torch.channels_last)


def ambiguous():
    """One channel: (64, 1, 8, 1) is contiguous and channels-last at once."""
    x = torch.randn(BATCH, 1, 8, 8).as_strided((BATCH, 1, 8, 8), (64, 1, 8, 1))
    assert x.is_contiguous() and x.is_contiguous(memory_format=torch.channels_last)
    return CNN(1), x


def formats(t):
    return (
        tuple(t.is_contiguous(memory_format=f) for f in (torch.contiguous_format, torch.channels_last))
        if t.ndim == 4
        else (t.is_contiguous(),)
    )


class Recorder:
    """What every module of a model is given: by (module, its mode) the sets of exact and of rough descriptions."""

    def __init__(self, model):
        self.exact, self.rough, self.passes = {}, {}, 0
        self._handles = [m.register_forward_pre_hook(self._hook(n)) for n, m in model.named_modules()]

    def _hook(self, name):
        def record(module, args):
            key = name, module.training
            self.passes += name == ""
            for t in args:
                if len(t) == BATCH:
                    self.exact.setdefault(key, set()).add((tuple(t.shape), t.stride(), t.dtype))
                else:
                    self.rough.setdefault(key, set()).add((tuple(t.shape[1:]), formats(t), t.dtype))

        record.__module__ = "torch"  # a measurement calls no hook of the user's, but torch's own
        return record

    def close(self):
        for handle in self._handles:
            handle.remove()


def bare(model, x):
    """The reference: plain passes with gradients in both modes, of the whole batch, and of a part of it."""
    recorder = Recorder(model)
    for mode in (True, False):
        model.train(mode)
        model(x)
        model(x[:4])
    model.train()
    recorder.close()
    return recorder


def watched(model, batch):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with nv.watch(model, optimizer=optimizer, every=1) as watching:
        for _ in range(3):
            loss = F.cross_entropy(model(batch[0]), batch[1])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watching.step(loss)


def probed(model, batch):
    with nv.watch(model, every=1, probe=(*batch, F.cross_entropy)) as watching:
        for _ in range(2):
            F.cross_entropy(model(batch[0]), batch[1]).backward()
            watching.step()


MEASUREMENTS = {
    "watch": watched,
    "watch with a probe": probed,
    "checkup": lambda m, b: nv.checkup(m, F.cross_entropy, b),
    "checkup of dead directions": lambda m, b: nv.checkup(m, F.cross_entropy, b, curvature=False, singular=True),
    "gates": lambda m, b: gates.measure(m, F.cross_entropy, b, mode="train"),
    "gates by eval": lambda m, b: gates.measure(m, b[0], mode="eval"),
    "euler": lambda m, b: drift.euler(m, F.cross_entropy, b, mode="eval"),
    "imbalance": lambda m, b: saddle.imbalance(m, F.cross_entropy, b),
    "kfac": lambda m, b: singular.kfac(m, "ce", b),
    "trace": lambda m, b: curvature.trace(m, F.cross_entropy, b, probes=4),
    "between_layers": lambda m, b: curvature.between_layers(m, F.cross_entropy, b, probes=4),
    "between_layers at every layer": lambda m, b: curvature.between_layers(
        m, F.cross_entropy, b, probes=4, nodes=["first", "norm1", "act1", "down", "act2", "thin", "act3", "wide"]
    ),
    "between_layers, exact, in eval": lambda m, b: curvature.between_layers(
        m, F.cross_entropy, b, nodes=["down", "act3"], method="exact", mode="eval"
    ),
}
IN_DOUBLE = {"between_layers, exact, in eval", "checkup of dead directions"}  # these run a copy in float64


@pytest.mark.parametrize("make", [contiguous, channels_last, mixed, ambiguous])
@pytest.mark.parametrize("name", MEASUREMENTS)
def test_every_pass_over_the_batch_sees_the_strides_of_a_bare_pass(name, make):
    model, x = make()
    y = torch.arange(BATCH) % 3
    expected = bare(model, x)
    seen = Recorder(model)
    MEASUREMENTS[name](model, (x, y))
    seen.close()
    assert seen.passes > 0 and seen.exact
    for key, given in seen.exact.items():
        if name in IN_DOUBLE:
            given = {(shape, stride, torch.float32) for shape, stride, _ in given}
        assert given == expected.exact[key], key
    for key, given in seen.rough.items():  # a part of the batch has strides of its own, but the same memory format
        if name in IN_DOUBLE:
            given = {(shape, format_, torch.float32) for shape, format_, _ in given}
        assert given <= expected.rough[key], key
