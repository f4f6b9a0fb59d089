"""Curvature of networks of eleven million parameters, each timed by itself: `bench/curvature/run.py resnet`, `gpt`."""

from __future__ import annotations

import resource
import time

import torch
import torch.nn.functional as F

from netvitals import curvature


def resnet(rounds: int) -> None:
    """ResNet-18 with 32 images, 10 block nodes, 10 probes, once for each activation."""
    from netvitals_lab import data, models

    images = data.load("noise", side=32, channels=3, smooth=True, count=64, test=64).test
    for act in ("relu", "silu"):
        net = models.build(f"resnet18-large,act={act}", seed=0).eval()
        began, wall = time.process_time(), time.perf_counter()
        found = curvature.between_layers(
            net, F.cross_entropy, (images.x[:32], images.y[:32]), nodes=["stem.2", "stem.3", "stages.*.*"], probes=10
        )
        cpu, wall = time.process_time() - began, time.perf_counter() - wall
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(
            f"ResNet-18 {act}: {len(found.nodes)} nodes, {found.products} products, {cpu:.0f} s of CPU, {wall:.0f} "
            f"s, peak {peak:.2f} GiB, GN-gap {found.global_gap:.3g}"
        )


def gpt(probes: int) -> None:
    """`report` of a GPT with 10.8 million parameters on 4 × 128 characters of real text (NETVITALS_DATA has it)."""
    from netvitals_lab import data, models

    torch.manual_seed(0)
    net = models.build("gpt-micro,depth=6,width=384,heads=6,context=128,act=gelu", seed=0)
    text = data.load("text:tinyshakespeare.txt,context=128").test
    x, y = text.x[:4], text.y[:4]
    loss = lambda out, target: F.cross_entropy(out.flatten(0, 1), target.flatten())
    size = sum(p.numel() for p in net.parameters())
    began, wall = time.process_time(), time.perf_counter()
    found = curvature.report(net, loss, (x, y), probes=probes)
    spent = f"{time.process_time() - began:.0f} s of CPU, {time.perf_counter() - wall:.0f} s"
    print(found)
    print(f"GPT of {size:,} parameters, {probes} probes: {spent}, {found.cost:.0f} gradients, {_peak()}")
    began, wall = time.process_time(), time.perf_counter()
    traces = curvature.trace(net, loss, (x, y), probes=20)
    spent = f"{time.process_time() - began:.0f} s of CPU, {time.perf_counter() - wall:.0f} s"
    error = 100 * traces.total_stderr / abs(traces.total)
    print(f"traces of all tensors, 20 probes ({traces.method}): {spent}, total to {error:.1f} %, {_peak()}")


def _peak() -> str:
    return f"peak {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB"
