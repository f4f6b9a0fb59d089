"""Curvature routing with error bars on a ResNet-18 and a GPT of ten million parameters.

python bench/papers/curvature_graph.py       some minutes on one core
"""

from __future__ import annotations

import time

import torch

from netvitals import curvature
from netvitals_lab import models


def resnet() -> None:
    net = models.build("resnet18,width=64", seed=0).eval()
    print(f"ResNet-18, {sum(p.numel() for p in net.parameters()) / 1e6:.1f} M parameters")
    batch = torch.randn(8, 3, 32, 32), torch.arange(8) % 10
    began = time.time()
    nodes = [n for n, m in net.named_modules() if type(m).__name__ == "ReLU"]
    found = curvature.graph(net, "cross_entropy", batch, nodes=nodes, probes=12)
    print(found, f"\n{time.time() - began:.0f} s\n")


def gpt() -> None:
    net = models.GPTSpec(vocab=96, context=32, depth=6, heads=6, width=384).build().eval()
    print(f"GPT, {sum(p.numel() for p in net.parameters()) / 1e6:.1f} M parameters")
    ids = torch.randint(0, 96, (4, 32))
    began = time.time()
    found = curvature.graph(net, "cross_entropy", (ids, ids.roll(-1, 1)), probes=12)
    print(found, f"\n{time.time() - began:.0f} s")


if __name__ == "__main__":
    torch.manual_seed(0)
    resnet()
    gpt()
