"""The pictures of the explanations, measured anew by ``python docs/hooks/pictures.py`` (about a minute).

Each is a small experiment of its page, drawn by ``netvitals.report.Plot`` into ``explanation/images``. The picture of
README (``python docs/hooks/pictures.py report``) is the page of the run of its example, as chromium shows it.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import torch
from torch import nn

import netvitals as nv
from netvitals import activations, curvature
from netvitals.report import Plot, Series

DOCS = Path(__file__).parents[1]
FOLDER = DOCS / "explanation" / "images"


def gates() -> Plot:
    """|f'| of four activations, and the threshold above which a gate counts as open."""
    z = torch.linspace(-4, 4, 161, dtype=torch.float64)
    out = []
    for name in ("relu", "gelu", "silu", "tanh"):
        x = z.clone().requires_grad_()
        (g,) = torch.autograd.grad(activations.get(name)(x).sum(), x)
        out.append(Series(name, z.tolist(), g.abs().tolist(), line=True))
    out.append(Series("open above 0.1", [-4, 4], [0.1, 0.1], line=True, dashed=True))
    return Plot("input of the activation", "gate |f'|", out)


def _small(scale: float, layers: int) -> nn.Sequential:
    torch.manual_seed(1)
    widths = [8, *([32] * (layers - 1)), 4]
    parts: list[nn.Module] = []
    for i, (a, b) in enumerate(pairwise(widths)):
        parts += [nn.Linear(a, b, bias=False)] + ([nn.Tanh()] if i < layers - 1 else [])
    net = nn.Sequential(*parts)
    for p in net.parameters():
        p.data.mul_(scale)
    return net


def plateaus() -> Plot:
    """The loss of one network begun at four scales."""
    torch.manual_seed(0)
    x = torch.randn(256, 8)
    y = torch.tanh(x @ torch.randn(8, 1) / 8**0.5) @ torch.randn(1, 4)
    out = []
    for scale in (1.0, 0.2, 0.1, 0.05):
        net, losses = _small(scale, 3), []
        opt = torch.optim.SGD(net.parameters(), lr=0.3)
        for _ in range(240):
            loss = nn.functional.mse_loss(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
        out.append(Series(f"weights × {scale:g}", list(range(240)), [v / losses[0] for v in losses], line=True))
    return Plot("step", "loss, start = 1", out)


def orders() -> Plot:
    """How the divergence grows along directions of order 1, 2 and 3."""
    t = torch.logspace(-2, 0, 25, dtype=torch.float64)
    curves = {f"order {k}": (0.5 * t ** (2 * k)).tolist() for k in (1, 2, 3)}
    out = [Series(name, t.tolist(), y, line=True) for name, y in curves.items()]
    return Plot("distance from the checkpoint", "divergence", out, log_x=True, log_y=True)


def drift() -> Plot:
    """Mean input of the hidden activations, in standard deviations, on random data and random labels."""
    out = []
    for name, act in (("ReLU", nn.ReLU), ("GELU", nn.GELU), ("tanh", nn.Tanh)):
        torch.manual_seed(0)
        net = nn.Sequential(
            nn.Linear(64, 64), act(), nn.Linear(64, 64), act(), nn.Linear(64, 64), act(), nn.Linear(64, 10)
        )
        for layer in net:
            if isinstance(layer, nn.Linear):
                nn.init.normal_(layer.weight, std=(2 / 64) ** 0.5)
                nn.init.zeros_(layer.bias)
        opt = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
        with nv.watch(net, opt, every=5, vitals=["preactivations"], forecasts=False) as vitals:
            for _ in range(200):
                loss = nn.functional.cross_entropy(net(torch.randn(128, 64)), torch.randint(0, 10, (128,)))
                opt.zero_grad()
                loss.backward()
                opt.step()
                vitals.step(loss)
        found = [r for r in vitals.measurements if r.metric == "preact_drift" and r.site == "5"]
        out.append(Series(name, [r.step for r in found], [r.value for r in found], line=True))
    return Plot("step", "mean input of the third activation, in σ", out)


class _Residual(nn.Module):
    def __init__(self, skip: bool) -> None:
        super().__init__()
        self.linear, self.act, self.skip = nn.Linear(24, 24), nn.GELU(), skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.act(self.linear(x))
        return x + out if self.skip else out


def coupling() -> Plot:
    """Curvature between blocks, by how far they are apart."""
    out = []
    for name, skip in (("plain", False), ("with shortcuts", True)):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(10, 24), *[_Residual(skip) for _ in range(8)], nn.Linear(24, 5)).double()
        batch = (torch.randn(32, 10, dtype=torch.float64), torch.randint(0, 5, (32,)))
        nodes = [str(i) for i in range(1, 9)]
        found = curvature.between_layers(net, nn.functional.cross_entropy, batch, nodes=nodes, method="exact")
        r = torch.as_tensor(found.resonance)
        by = [r.diagonal(d).mean().item() for d in range(8)]
        out.append(Series(name, list(range(8)), [v / by[0] for v in by], line=True))
    return Plot("blocks apart", "size of the Hessian block, diagonal = 1", out, log_y=True)


def report() -> Path:
    """The page of the run of README's example."""
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    code = re.search(r"```python\n(.*?)```", (DOCS.parent / "README.md").read_text(encoding="utf-8"), re.S)[1]
    out = DOCS / "images" / "report.png"
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        os.chdir(folder)
        torch.manual_seed(0)
        exec(compile(code, "README.md", "exec"), {})
        page = nv.report.write(nv.open_run("runs/first"), "report.html")
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        opened = browser.new_page(viewport={"width": 1280, "height": 760}, reduced_motion="reduce")
        opened.goto(page.resolve().as_uri())
        opened.screenshot(path=str(out))
        browser.close()
        os.chdir(DOCS)
    return out


PICTURES: dict[str, Callable[[], Plot]] = {
    "gates": gates,
    "plateaus": plateaus,
    "orders": orders,
    "drift": drift,
    "coupling": coupling,
}

if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[1:] or PICTURES:
        if name == "report":
            print(report())
            continue
        PICTURES[name]().save(FOLDER / f"{name}.svg")
        print(FOLDER / f"{name}.svg")
