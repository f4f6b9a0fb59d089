"""Forecasts whatever the kind of run: what is shown where is tested in ``test_skill.py``."""

import math

import pytest

from netvitals.forecasts import skill


@pytest.fixture
def every_kind(monkeypatch):
    monkeypatch.setattr(skill, "LEAST", -math.inf)
