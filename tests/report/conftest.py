"""A short real run with every vital sign, and a browser when there is one."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch
from torch import nn

import netvitals as nv
from netvitals.capture import ArrayMeasurement, Measurement
from netvitals.runs import RunWriter


class Block(nn.Module):
    """A residual block with a perceptron, so that stream and imbalance have something to look at."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.act = nn.LayerNorm(width), nn.ReLU()
        self.up, self.down = nn.Linear(width, 32), nn.Linear(32, width)

    def forward(self, x):
        return x + self.down(self.act(self.up(self.norm(x))))


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    """40 watched steps of a small residual network."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), Block(16), Block(16), nn.Linear(16, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    path = tmp_path_factory.mktemp("runs") / "first"
    x = torch.randn(64, 8)
    y = x[:, :3].argmax(1)
    with nv.watch(model, optimizer=optimizer, run=path, every=2) as vitals:
        for _ in range(40):
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            vitals.step(loss)
    return nv.open_run(path)


@pytest.fixture(scope="module")
def browser():
    """Chromium, driven by playwright, whose event loop must end with the module: others want one of their own."""
    driver = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no chromium, chromium-browser or google-chrome to look at the page with")
    with driver.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        yield opened
        opened.close()


@pytest.fixture
def tab(browser):
    """A page in the browser: ``tab(width, "dark")``."""
    opened = []

    def new(width: int, theme: str):
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme)
        opened.append(context)
        return context.new_page()

    yield new
    for context in opened:
        context.close()


NASTY = ("</script><script>window.broken=1</script>", "<img src=x onerror=window.broken=1>", "a'b\"c&d", "{{ 7*7 }}")


@pytest.fixture
def nasty_run(tmp_path):
    meta = {
        "model": NASTY[1],
        "architecture": NASTY[0],
        "skipped": {NASTY[0]: NASTY[1]},
        "sites": [{"name": n, "kind": "activation", "op": n, "follows": n, "module": n} for n in NASTY],
        NASTY[1]: NASTY[0],
    }
    with RunWriter(tmp_path / "nasty", meta=meta) as writer:
        for step in range(12):
            writer.write(
                [
                    Measurement(step, vital, site, metric, 0.95)
                    for site in NASTY
                    for vital, metric in (("sparsity", "hard"), (NASTY[1], NASTY[0]), ("gates", NASTY[1]))
                ]
            )
            writer.write(
                [Measurement(step, "loss", "model", "loss", 1.0)],
                [ArrayMeasurement(step, "gates", NASTY[0], NASTY[1], np.ones(3))],
            )
    return nv.open_run(tmp_path / "nasty")


@pytest.fixture
def nasty() -> tuple[str, ...]:
    """Names that would like to be markup or script."""
    return NASTY
