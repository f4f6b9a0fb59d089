"""Slope fits with errors, exact tests, correlations and bootstrap, thin over scipy."""
