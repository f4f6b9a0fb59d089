"""How the tests run: shuffled on request (`--shuffle SEED`), seeded, and ended at once when a worker dies."""

import gc
import random
from itertools import groupby

import pytest


def pytest_addoption(parser):
    parser.addoption(
        "--shuffle", type=int, metavar="SEED", help="run files, and tests within a file, in a random order"
    )


def pytest_collection_modifyitems(config, items):
    seed = config.getoption("--shuffle")
    if seed is None:
        return
    dice = random.Random(seed)
    files = [list(tests) for _, tests in groupby(items, key=lambda item: item.path)]
    for tests in files:
        dice.shuffle(tests)
    dice.shuffle(files)
    items[:] = [item for tests in files for item in tests]


_frozen_for: list = []  # the file whose tests run


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Seed examples in docstrings, as a fixture does for tests; before each file, freeze the garbage collector's heap.

    Imports and earlier files leave millions of objects. Without the freeze every search of the heap goes through them.
    """
    if _frozen_for != [item.path]:
        _frozen_for[:] = [item.path]
        gc.collect()
        gc.freeze()
    if isinstance(item, pytest.DoctestItem):
        import torch

        torch.manual_seed(0)


_running: list[str] = []  # tests that began and have not ended, on whatever worker


def pytest_runtest_logstart(nodeid):
    _running.append(nodeid)


def pytest_runtest_logfinish(nodeid):
    if nodeid in _running:
        _running.remove(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error):
    """End the run when a worker dies: pytest-xdist would give its file to another one, and may wait for it for ever."""
    if error:
        node.config.pluginmanager.getplugin("dsession").shouldstop = f"worker {node.gateway.id} died"


def pytest_internalerror(excrepr):
    """A worker may be gone before pytest-xdist notices, which then stumbles over it: say what was running."""
    print(f"a worker died, or the run did, while running: {', '.join(_running) or 'nothing'}")
