"""Langevin chains, the learning coefficient, and what Bayesian theory makes of it."""
