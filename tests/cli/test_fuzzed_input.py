"""Whatever is read, a sentence is the worst that comes of it: a bounded part of bench/watching/fuzz.py."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("hypothesis")
sys.path.insert(0, str(Path(__file__).parents[2] / "bench" / "watching"))

from fuzz import TARGETS, fuzz

EXAMPLES = {"files": 25, "values": 40, "command lines": 25}


@pytest.mark.parametrize("target", TARGETS)
def test_random_input_gives_no_traceback(target, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fuzz(target, EXAMPLES.get(target, 300))
