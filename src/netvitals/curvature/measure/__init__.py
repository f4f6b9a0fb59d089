"""Curvature measured: between layers, traces, spectra, Jacobians; norms and ratios of one operator or matrix."""

from netvitals.curvature.measure import estimators, metrics

__all__ = ["estimators", "metrics"]
