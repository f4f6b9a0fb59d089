"""Measurements made of products: between layers, trace, spectra, Jacobians."""
