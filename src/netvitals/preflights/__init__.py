"""Checks before training: exact ones on a few steps of a copy, and what needs a loader, several batches or a copy."""

from netvitals.preflights.result import Preflight, PreflightCheck, PreflightFailed, RateRange
from netvitals.preflights.run import preflight
from netvitals.preflights.testing import assert_preflight

__all__ = ["Preflight", "PreflightCheck", "PreflightFailed", "RateRange", "assert_preflight", "preflight"]
